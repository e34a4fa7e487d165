"""Players that are reached by text: servers with an OpenAI-compatible API.

A remote player is given the view's messages and answers with text, which is put into our own tokens so that it counts like any
other message: the same caps, the same measures. It never teaches the policy anything but through what it says, so there are no
log-probabilities. Unlike everything else in coterie, what it says cannot be played again: the server has its own randomness.
"""

import contextlib
import os
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any
from urllib.parse import urldefrag

import httpx2

from coterie.engines.base import Completion, Request, check_fit
from coterie.tokens import ChatTokenizer
from coterie.types import CoterieError, Player

KEY = "COTERIE_API_KEY"
"""The environment variable that holds the key, sent as a bearer token. It is the only place where one is looked for."""
ATTEMPTS = 6
BACKOFF = 1.0
"""Seconds before the second attempt; doubled for each further one."""
LONGEST_WAIT = 60.0


class RemoteEngine:
    """`addresses`: http://host:port/v1#model, by player. `workers` requests are open at once.

    Raises CoterieError from `step` when a server refuses a request, or cannot be reached after several attempts.
    """

    def __init__(
        self,
        addresses: Mapping[Player, str],
        tokenizer: ChatTokenizer,
        *,
        context_length: int,
        workers: int = 32,
        timeout: float = 300.0,
        backoff: float = BACKOFF,
    ):
        self.policy_version = 0
        self.context_length = context_length
        self._addresses = {player: tuple(urldefrag(address)) for player, address in addresses.items()}
        self._tokenizer, self._backoff = tokenizer, backoff
        self._over = threading.Event()
        self._open: dict[Future[tuple[str, str | None]], tuple[int, int]] = {}
        self._tickets = 0
        key = os.environ.get(KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx2.Limits(max_connections=workers, max_keepalive_connections=workers)
        self._client = httpx2.Client(headers=headers, timeout=timeout, limits=limits)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="coterie-remote")
        self._close = weakref.finalize(self, _shut_down, self._over, self._threads, self._client)

    @property
    def players(self) -> tuple[Player, ...]:
        return tuple(self._addresses)

    @property
    def busy(self) -> bool:
        return bool(self._open)

    def submit(self, request: Request) -> int:
        reason = check_fit(len(request.prompt_ids), request.max_tokens, self.context_length)
        if reason:
            raise CoterieError(reason)
        if request.view is None:
            raise ValueError("a remote player needs the view, not only its token ids")
        self._tickets += 1
        url, model = self._addresses[request.player]
        asking = self._threads.submit(_ask, self._client, url, _body(model, request), self._over, self._backoff)
        self._open[asking] = (self._tickets, request.max_tokens)
        return self._tickets

    def step(self, patience: float | None = None) -> list[tuple[int, Completion]]:
        """The requests that have ended; waits for one, at most `patience` seconds (for as long as it takes when None)."""
        ended, _ = wait(self._open, timeout=patience, return_when=FIRST_COMPLETED)
        done = []
        for future in [future for future in self._open if future in ended]:  # in the order in which they were asked
            ticket, cap = self._open.pop(future)
            try:
                text, reason = future.result()
            except CoterieError:
                self._close()  # the run ends here: let no other request hold it up
                raise
            done.append((ticket, self._completion(text, reason, cap)))
        return done

    def refresh(self, version: int) -> None:
        if self._open:
            raise RuntimeError("the policy's weights changed while messages were being written")
        self.policy_version = version

    def _completion(self, text: str, reason: str | None, cap: int) -> Completion:
        """In our tokens. One that the server cut, or that is longer than the cap in these, has no end."""
        ids = self._tokenizer.encode_text(text.strip())
        if reason == "length" or len(ids) >= cap:
            return Completion(ids[:cap], (), "length")
        return Completion((*ids, self._tokenizer.stop_ids[0]), (), "eos")


def _body(model: str, request: Request) -> dict[str, Any]:
    assert request.view is not None
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": role, "content": content} for role, content in request.view.messages],
        "temperature": request.sampler.temperature,
        "max_tokens": request.max_tokens,
    }
    return body if request.sampler.top_p == 1.0 else {**body, "top_p": request.sampler.top_p}


def _ask(client: httpx2.Client, url: str, body: Mapping[str, Any], over: threading.Event, backoff: float) -> tuple[str, str | None]:
    """One message, in a thread of its own. Tried again when the server is busy, failing or silent."""
    said = ""
    for attempt in range(ATTEMPTS):
        wanted = 0.0
        try:
            reply = client.post(f"{url.rstrip('/')}/chat/completions", json=body)
        except httpx2.TransportError as error:  # time-outs are among them
            said = f"{type(error).__name__}: {error}".rstrip(": ")
        else:
            if reply.status_code == 200:
                return _read(url, reply)
            said = f"it answers {reply.status_code} {reply.text[:200].strip()}"
            if reply.status_code != 429 and reply.status_code < 500:
                raise CoterieError(
                    f"{url}: the remote player {body['model']} refuses a request ({said}); check the address, the model's name "
                    f"after # and {KEY}"
                )
            with contextlib.suppress(ValueError):  # it may also be a date
                wanted = float(reply.headers.get("retry-after", 0))
        if attempt + 1 < ATTEMPTS and over.wait(min(LONGEST_WAIT, max(wanted, backoff * 2**attempt))):
            break
    raise CoterieError(
        f"{url}: the remote player {body['model']} could not be reached in {ATTEMPTS} attempts ({said}); start the server and "
        "go on with --resume"
    )


def _read(url: str, reply: httpx2.Response) -> tuple[str, str | None]:
    """The text and the reason for its end."""
    try:
        choice = reply.json()["choices"][0]
        return choice["message"]["content"] or "", choice.get("finish_reason")
    except (ValueError, LookupError, TypeError) as error:
        raise CoterieError(
            f"{url}: the answer is not that of an OpenAI-compatible /chat/completions ({reply.text[:160].strip()}); "
            "check the address"
        ) from error


def _shut_down(over: threading.Event, threads: ThreadPoolExecutor, client: httpx2.Client) -> None:
    over.set()
    threads.shutdown(wait=False, cancel_futures=True)
    client.close()
