"""Plays episodes: protocols as coroutines, each at its own pace, their requests batched into one engine.

There is no event loop and no thread. A coroutine that asks for messages is parked until the engine has returned all of them; the
engine always holds the open requests of all episodes, so a slow episode never holds up a fast one.
"""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coterie.engines.base import Completion
from coterie.grading.base import GradingError
from coterie.hall import Hall, Plan, Replay
from coterie.protocols.base import Protocol
from coterie.tables import LiveTable, LongTable
from coterie.tokens import ChatTokenizer
from coterie.types import CoterieError, Episode, Group, Message, Probe, Task

__all__ = ["Hall", "Plan", "answer_probes", "longest_request", "play", "rehearse"]


@dataclass(slots=True)
class _Parked:
    """A coroutine that waits for `open` more messages."""

    episode: int
    coroutine: Coroutine
    tickets: list[int]
    heard: dict[int, Completion] = field(default_factory=dict)


def play(plans: Sequence[Plan], hall: Hall) -> list[Episode]:
    """Play all plans and grade them; episodes are returned in the order of the plans."""
    tables = [LiveTable(plan, hall) for plan in plans]
    waiting: dict[int, _Parked] = {}
    failed: dict[int, str] = {}

    def advance(episode: int, coroutine: Coroutine, completions: Sequence[Completion] | None) -> None:
        parked = _Parked(episode, coroutine, [])
        try:
            for request in coroutine.send(completions):
                parked.tickets.append(hall.engine.submit(request))
        except StopIteration:
            return
        except CoterieError as error:  # a prompt has outgrown the context: this episode ends as an error, the run goes on
            failed[episode] = str(error)
            coroutine.close()
        waiting.update(dict.fromkeys(parked.tickets, parked))

    for episode, (plan, table) in enumerate(zip(plans, tables, strict=True)):
        advance(episode, hall.protocol.play(plan.task, table), None)
    while waiting:
        for ticket, completion in hall.engine.step():
            parked = waiting.pop(ticket)
            parked.heard[ticket] = completion
            if len(parked.heard) == len(parked.tickets) and parked.episode not in failed:
                advance(parked.episode, parked.coroutine, [parked.heard[t] for t in parked.tickets])
    return _grade(plans, tables, failed, hall)


def answer_probes(
    groups: Sequence[Group], probes: Sequence[Sequence[Probe]], hall: Hall, noise: Sequence[tuple[str | int, ...]]
) -> list[dict[Probe, Episode]]:
    """Play the replays that a credit rule asks for, all groups in one batch. `noise[g]` names the stream of group `g`."""
    plans, owners = [], []
    for owner, (group, wanted) in enumerate(zip(groups, probes, strict=True)):
        for probe in wanted:
            episode = group.episodes[probe.episode]
            names = (*noise[owner], "replay", probe.turn, probe.repeat)
            plans.append(Plan(group.task, episode.index, episode.cast, names, Replay(episode, probe.turn)))
            owners.append((owner, probe))
    answers: list[dict[Probe, Episode]] = [{} for _ in groups]
    for (owner, probe), episode in zip(owners, play(plans, hall), strict=True):
        answers[owner][probe] = episode
    return answers


def longest_request(task: Task, protocol: Protocol, tokenizer: ChatTokenizer) -> tuple[int, int]:
    """The prompt length and cap, in tokens, of the largest request that an episode on `task` can make: every message at its cap."""
    return rehearse(task, protocol, tokenizer).longest


def rehearse(task: Task, protocol: Protocol, tokenizer: ChatTokenizer) -> LongTable:
    """The table after an episode on `task` in which nothing is sampled and every message is as long as its cap."""
    table = LongTable(tokenizer)
    coroutine = protocol.play(task, table)
    try:
        coroutine.send(None)
    except StopIteration:
        pass
    else:
        raise TypeError(f"the protocol {type(protocol).__name__} awaits something other than its table")
    if table.longest == (0, 0):
        raise CoterieError(f"the protocol {type(protocol).__name__} asked for no message on task {task.id}")
    return table


def _grade(plans: Sequence[Plan], tables: Sequence[LiveTable], failed: Mapping[int, str], hall: Hall) -> list[Episode]:
    """Score every message that is to be graded, in one batch. A seat's last final message counts for the seat. An episode in
    `failed`, and one with a grade that failed, has no reward. A replay's old messages keep the grades that they have."""
    open_turns = [
        [m.turn for m in table.messages if m.turn in table.graded and m.score is None] if index not in failed else []
        for index, table in enumerate(tables)
    ]
    answers = [(tables[index].messages[turn].text, plans[index].task) for index, turns in enumerate(open_turns) for turn in turns]
    results = iter(hall.grader.grade_tasks(answers))
    episodes = []
    for index, (plan, table, turns) in enumerate(zip(plans, tables, open_turns, strict=True)):
        graded = {turn: next(results) for turn in turns}
        marks = {turn: mark for turn, mark in graded.items() if not isinstance(mark, GradingError)}
        messages = tuple(replace(m, score=marks[m.turn]) if m.turn in marks else m for m in table.messages)
        finals: dict[str, Message] = {m.seat: m for m in messages if m.final}
        errors = {_blame(messages[turn], finals): mark.reason for turn, mark in graded.items() if isinstance(mark, GradingError)}
        if index in failed or not finals:
            errors = {**errors, "": failed.get(index, "no seat gave a final message")}
        scores = {seat: m.score for seat, m in finals.items() if m.score is not None}
        reward = None if errors else hall.protocol.reward(tuple(finals.values()))
        episodes.append(Episode(plan.task.id, plan.index, plan.cast, messages, scores, reward, errors))
    return episodes


def _blame(message: Message, finals: Mapping[str, Message]) -> str:
    """The key of a grading error: the seat for the answer that counts for it, so that two failures of one seat are two errors."""
    counts = finals.get(message.seat) is message
    return message.seat if counts else f"{message.seat}, message {message.turn + 1}"
