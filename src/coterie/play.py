"""Plays episodes: protocols as coroutines, each at its own pace, their requests batched into one engine.

There is no event loop and no thread. A coroutine that asks for a message is parked until the engine returns that message; the
engine always holds the open requests of all episodes, so a slow episode never holds up a fast one.
"""

from collections.abc import Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass

from coterie.engines.base import Completion, Engine, Request, Sampler
from coterie.grading.base import Grader, GradingError
from coterie.protocols.base import Protocol
from coterie.seeding import stream
from coterie.tokens import ChatTokenizer
from coterie.types import POLICY, CoterieError, Episode, Message, Player, Seat, Task, View


@dataclass(frozen=True, slots=True)
class Plan:
    """One episode to be played: `index` within its group, who sits where, and the names of its stream of sampling noise."""

    task: Task
    index: int
    cast: Mapping[Seat, Player]
    noise: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Hall:
    """All that episodes share: protocol, engine, tokenizer, grader, sampler and the run's seed."""

    protocol: Protocol
    engine: Engine
    tokenizer: ChatTokenizer
    grader: Grader
    sampler: Sampler
    seed: int


class _Ask:
    """What a coroutine awaits: yields its request to the driver and receives the completion."""

    def __init__(self, request: Request):
        self.request = request

    def __await__(self) -> Generator[Request, Completion, Completion]:
        return (yield self.request)


class _Table:
    """One episode's table (see `protocols.base.Table`)."""

    def __init__(self, plan: Plan, hall: Hall):
        self._plan, self._hall = plan, hall
        self._messages: list[Message] = []

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._messages)

    async def say(self, seat: Seat, view: View, *, max_tokens: int, final: bool = False) -> Message:
        hall, plan, turn = self._hall, self._plan, len(self._messages)
        prompt_ids = hall.tokenizer.encode(view)
        noise = stream(hall.seed, "noise", *plan.noise, plan.task.id, plan.index, turn, seat)
        request = Request(prompt_ids, max_tokens, plan.cast[seat], hall.sampler, noise.random(max_tokens).tolist())
        completion: Completion = await _Ask(request)
        spoken = completion.ids[:-1] if completion.stop == "eos" else completion.ids
        message = Message(
            seat=seat,
            player=plan.cast[seat],
            turn=turn,
            final=final,
            prompt_ids=prompt_ids,
            ids=completion.ids,
            logprobs=completion.logprobs,
            stop=completion.stop,
            text=hall.tokenizer.decode(spoken).strip(),
            temperature=hall.sampler.temperature,
            policy_version=hall.engine.policy_version,
        )
        self._messages.append(message)
        return message


def play(plans: Sequence[Plan], hall: Hall) -> list[Episode]:
    """Play all plans and grade them; episodes are returned in the order of the plans."""
    tables = [_Table(plan, hall) for plan in plans]
    waiting: dict[int, tuple[int, Coroutine]] = {}
    failed: dict[int, str] = {}

    def advance(episode: int, coroutine: Coroutine, completion: Completion | None) -> None:
        try:
            request = coroutine.send(completion)
            ticket = hall.engine.submit(request)
        except StopIteration:
            return
        except CoterieError as error:  # the prompt has outgrown the context: this episode ends as an error, the run goes on
            failed[episode] = str(error)
            coroutine.close()
            return
        waiting[ticket] = (episode, coroutine)

    for episode, (plan, table) in enumerate(zip(plans, tables, strict=True)):
        advance(episode, hall.protocol.play(plan.task, table), None)
    while waiting:
        for ticket, completion in hall.engine.step():
            episode, coroutine = waiting.pop(ticket)
            advance(episode, coroutine, completion)
    return _grade(plans, [table.messages for table in tables], failed, hall.grader)


class _LongTable:
    """A table at which every message is as long as its cap allows, to see how long prompts can grow. Nothing is sampled."""

    def __init__(self, tokenizer: ChatTokenizer):
        self.messages: tuple[Message, ...] = ()
        self.longest: tuple[int, int] = (0, 0)
        self._tokenizer = tokenizer

    async def say(self, seat: Seat, view: View, *, max_tokens: int, final: bool = False) -> Message:
        prompt = self._tokenizer.encode(view)
        self.longest = max(self.longest, (len(prompt), max_tokens), key=sum)
        text = self._tokenizer.text_of_length(max_tokens)
        message = Message(seat, POLICY, len(self.messages), final, prompt, (), (), "length", text, 1.0, 0)
        self.messages = (*self.messages, message)
        return message


def longest_request(task: Task, protocol: Protocol, tokenizer: ChatTokenizer) -> tuple[int, int]:
    """The prompt length and cap, in tokens, of the largest request that an episode on `task` can make: every message at its cap."""
    table = _LongTable(tokenizer)
    coroutine = protocol.play(task, table)
    try:
        coroutine.send(None)
    except StopIteration:
        pass
    else:
        raise TypeError(f"the protocol {type(protocol).__name__} awaits something other than its table")
    if table.longest == (0, 0):
        raise CoterieError(f"the protocol {type(protocol).__name__} asked for no message on task {task.id}")
    return table.longest


def _grade(
    plans: Sequence[Plan], spoken: Sequence[tuple[Message, ...]], failed: Mapping[int, str], grader: Grader
) -> list[Episode]:
    """Score every final message in one batch. A seat's last final message counts. An episode in `failed` has no reward."""
    finals = [{m.seat: m for m in messages if m.final} for messages in spoken]
    answers = [(m.text, plan.task.answer) for plan, by_seat in zip(plans, finals, strict=True) for m in by_seat.values()]
    results = iter(grader.grade(answers))
    episodes = []
    for index, (plan, messages, by_seat) in enumerate(zip(plans, spoken, finals, strict=True)):
        graded = {seat: next(results) for seat in by_seat}
        errors = {seat: score.reason for seat, score in graded.items() if isinstance(score, GradingError)}
        scores = {seat: score for seat, score in graded.items() if not isinstance(score, GradingError)}
        if index in failed or not graded:
            errors = {**errors, "": failed.get(index, "no seat gave a final message")}
        reward = None if errors else sum(scores.values()) / len(scores)
        episodes.append(Episode(plan.task.id, plan.index, plan.cast, messages, scores, reward, errors))
    return episodes
