"""The tables that protocols play at: where messages are sampled, where an episode is played again, and where only lengths count."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace

from coterie.engines.base import Completion, Request
from coterie.hall import Hall, Plan
from coterie.protocols.base import Ask
from coterie.seeding import stream
from coterie.tokens import ChatTokenizer
from coterie.types import POLICY, Message, Seat, View


class Asked:
    """What a coroutine awaits: yields its requests to the driver and receives their completions, in the same order."""

    def __init__(self, requests: Sequence[Request]):
        self.requests = requests

    def __await__(self) -> Generator[Sequence[Request], Sequence[Completion], Sequence[Completion]]:
        return (yield self.requests)


class _Saying:
    """`say` in terms of `say_all`."""

    async def say(
        self,
        seat: Seat,
        view: View,
        *,
        max_tokens: int,
        final: bool = False,
        graded: bool = False,
        heard: tuple[int, ...] | None = None,
    ) -> Message:
        return (await self.say_all([Ask(seat, view, max_tokens, final, graded, heard)]))[0]

    async def say_all(self, asks: Sequence[Ask]) -> tuple[Message, ...]:
        raise NotImplementedError


class LiveTable(_Saying):
    """One episode's table, at which messages are sampled; or, for a plan with a replay, taken over from the old episode where
    nothing that they heard has changed."""

    def __init__(self, plan: Plan, hall: Hall):
        self._plan, self._hall = plan, hall
        self._messages: list[Message] = []
        self._fresh: set[int] = set()
        self.graded: set[int] = set()
        """Turns of the messages that are to be graded."""

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._messages)

    async def say_all(self, asks: Sequence[Ask]) -> tuple[Message, ...]:
        first = len(self._messages)
        said: dict[int, Message] = {}
        requests: dict[int, Request] = {}
        for turn, ask in enumerate(asks, start=first):
            heard = tuple(range(first)) if ask.heard is None else ask.heard
            old = self._taken_over(turn, ask, heard)
            if old is not None:
                said[turn] = old
            else:
                requests[turn] = self._request(turn, ask)
        if requests:
            completions = await Asked(list(requests.values()))
            for (turn, request), completion in zip(requests.items(), completions, strict=True):
                ask = asks[turn - first]
                heard = tuple(range(first)) if ask.heard is None else ask.heard
                said[turn] = self._message(turn, ask, heard, request, completion)
                self._fresh.add(turn)
        messages = tuple(said[turn] for turn in range(first, first + len(asks)))
        self._messages += messages
        self.graded.update(turn for turn, ask in enumerate(asks, start=first) if ask.final or ask.graded)
        return messages

    def _taken_over(self, turn: int, ask: Ask, heard: Iterable[int]) -> Message | None:
        """The old episode's message of this turn, when this is a replay and nothing that it was made from has changed."""
        replay = self._plan.replay
        if replay is None or turn >= len(replay.episode.messages):
            return None
        old = replay.episode.messages[turn]
        changed = self._fresh if ask.seat == replay.episode.messages[replay.turn].seat else self._fresh | {replay.turn}
        if old.seat != ask.seat or not changed.isdisjoint(heard):
            return None
        return replace(old, hidden=True) if turn == replay.turn else old

    def _request(self, turn: int, ask: Ask) -> Request:
        hall, plan = self._hall, self._plan
        noise = stream(hall.seed, "noise", *plan.noise, plan.task.id, plan.index, turn, ask.seat)
        prompt = hall.tokenizer.encode(ask.view)
        return Request(prompt, ask.max_tokens, plan.cast[ask.seat], hall.sampler, noise.random(ask.max_tokens).tolist(), ask.view)

    def _message(self, turn: int, ask: Ask, heard: tuple[int, ...], request: Request, completion: Completion) -> Message:
        spoken = completion.ids[:-1] if completion.stop == "eos" else completion.ids
        return Message(
            seat=ask.seat,
            player=request.player,
            turn=turn,
            final=ask.final,
            prompt_ids=request.prompt_ids,
            ids=completion.ids,
            logprobs=completion.logprobs,
            stop=completion.stop,
            text=self._hall.tokenizer.decode(spoken).strip(),
            temperature=self._hall.sampler.temperature,
            policy_version=self._hall.engine.policy_version,
            heard=heard,
        )


class LongTable(_Saying):
    """A table at which every message is as long as its cap allows, to see how long prompts can grow. Nothing is sampled."""

    def __init__(self, tokenizer: ChatTokenizer):
        self.messages: tuple[Message, ...] = ()
        self.longest: tuple[int, int] = (0, 0)
        self.ungraded: Message | None = None
        """The first message that is to have no grade; final ones always have one."""
        self._tokenizer = tokenizer

    async def say_all(self, asks: Sequence[Ask]) -> tuple[Message, ...]:
        said = []
        for turn, ask in enumerate(asks, start=len(self.messages)):
            prompt = self._tokenizer.encode(ask.view)
            self.longest = max(self.longest, (len(prompt), ask.max_tokens), key=sum)
            text = self._tokenizer.text_of_length(ask.max_tokens)
            said.append(Message(ask.seat, POLICY, turn, ask.final, prompt, (), (), "length", text, 1.0, 0))
            if self.ungraded is None and not (ask.final or ask.graded):
                self.ungraded = said[-1]
        self.messages = (*self.messages, *said)
        return tuple(said)
