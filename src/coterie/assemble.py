"""From a resolved config to the objects that play and learn."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coterie import builtin as _  # noqa: F401 (registers the kinds)
from coterie.casts.base import Cast
from coterie.config import RunConfig
from coterie.credit.base import CreditRule
from coterie.draws.base import Draw
from coterie.engines import vllm
from coterie.engines.base import Engine, Sampler, check_fit
from coterie.engines.hf import HFEngine
from coterie.engines.local import LocalEngine
from coterie.engines.players import Players
from coterie.hall import Hall
from coterie.kinds import About, make
from coterie.loading import Reader, dtype_of, load_model, load_reader, source_of
from coterie.partners import Partners, find_partners, load_partners, refuse_snapshots
from coterie.play import longest_request, rehearse
from coterie.protocols.base import Protocol
from coterie.tasks.base import TaskSet
from coterie.tasks.overlap import check_overlap
from coterie.types import CoterieError, Task

ENGINES = {"local": LocalEngine, "hf": HFEngine, "vllm": vllm.VLLMEngine}


@dataclass(frozen=True, slots=True)
class Also:
    """Another protocol that the same model is scored with, on the same held-out tasks as far as it can play them."""

    protocol: Protocol
    held_out: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything one run needs, ready to play. `hall` samples as in training, `evaluation_hall` as in evaluation."""

    config: RunConfig
    tasks: TaskSet
    model: Any
    engine: Engine
    hall: Hall
    evaluation_hall: Hall
    credit: CreditRule
    draw: Draw
    cast: Cast
    also: Mapping[str, Also] = field(default_factory=dict)


def make_tasks(config: RunConfig, protocol: Protocol) -> TaskSet:
    """Loads both sets and refuses a task that the protocol cannot play and a question that stands in both."""
    tasks = make("tasks", config.tasks, About(config, protocol.fact_seats))
    for task in (*tasks.train, *tasks.held_out):
        reason = protocol.check(task)
        if reason:
            raise CoterieError(f"tasks: task {task.id} {reason}, which protocol.kind = {config.protocol.kind} needs")
    check_overlap(tasks)
    return tasks


@dataclass(frozen=True, slots=True)
class Script:
    """What can be known of a run before its weights are loaded; making one refuses all that can be refused by then."""

    protocol: Protocol
    tasks: TaskSet
    reader: Reader
    cast: Cast
    partners: Partners
    also: Mapping[str, Also]


_CHECKED = 200
"""How many tasks, the longest in characters, are checked against the model's context. Tokens follow characters closely enough; what
slips through ends its episode as a counted error."""


def _size(task: Task) -> int:
    return len(task.question) + sum(len(fact) for facts in task.private.values() for fact in facts)


def write_script(config: RunConfig) -> Script:
    """Load tasks and tokenizer and check that they fit each other: facts for every seat, no question in both sets, and the longest
    tasks within the model's context even when every message is as long as its cap. And find the partners."""
    if config.engine.kind == "vllm":
        vllm.refuse(config.model.adapter)
    protocol = make("protocol", config.protocol, About(config))
    cast = make("cast", config.cast, About(config))
    cast.players(protocol.seats, 0, ("check",))  # refuses seats that do not exist
    refuse_snapshots(config)
    partners = find_partners(config, partners_of(config, cast, protocol))
    reader = load_reader(config.model)
    tasks = make_tasks(config, protocol)
    also = {name: make_also(config, name, tasks, protocol) for name in config.evaluate.also}
    check_fits("", protocol, (*tasks.held_out, *tasks.train), reader)
    check_grades(config, protocol, (*tasks.train, *tasks.held_out)[0], reader)
    for name, other in also.items():
        check_fits(f"evaluate.also.{name}: ", other.protocol, other.held_out, reader)
    return Script(protocol, tasks, reader, cast, partners, also)


def partners_of(config: RunConfig, cast: Cast, protocol: Protocol) -> list[str]:
    """Whom the run meets, in training and in cross-play. An untrained evaluation meets nobody."""
    if not config.train.steps:
        return []
    met = config.evaluate.partners if config.evaluate.cross_play and len(protocol.seats) > 1 else ()
    return [*cast.partners, *met]


def check_fits(where: str, protocol: Protocol, tasks: tuple[Task, ...], reader: Reader) -> None:
    """Raises CoterieError where a message at its cap would not fit the model's context."""
    for key, cap in protocol.caps().items():
        if cap >= reader.context_length:
            raise CoterieError(
                f"{where}{key} = {cap} is not smaller than the model's context of {reader.context_length} tokens; lower it"
            )
    for task in sorted(tasks, key=_size)[-_CHECKED:]:
        prompt, cap = longest_request(task, protocol, reader.tokenizer)
        reason = check_fit(prompt, cap, reader.context_length)
        if reason:
            raise CoterieError(f"{where or 'tasks: '}with every message at its cap, task {task.id} needs {reason}")


def check_grades(config: RunConfig, protocol: Protocol, task: Task, reader: Reader) -> None:
    """Raises CoterieError where the credit rule pays notes by their own scores and the protocol has one that is not graded."""
    if not getattr(config.credit, "needs_graded_notes", False):
        return
    note = rehearse(task, protocol, reader.tokenizer).ungraded
    if note is not None:
        raise CoterieError(
            f'credit.kind = "{config.credit.kind}" pays a note for its own answer, and protocol.kind = "{config.protocol.kind}" '
            f'does not grade the message of seat {note.seat} (turn {note.turn}); use protocol.kind = "board" or "debate", or '
            'credit.kind = "readers_mean"'
        )


def make_also(config: RunConfig, name: str, main: TaskSet, protocol: Protocol) -> Also:
    """Another protocol, and the run's held-out tasks as it needs them: facts dealt to its own seats, or to none.

    They are loaded anew, since how a task is dealt depends on the protocol, and then matched by question, so that the problems are
    the same ones and none of them was trained on. Where a loader picks other problems for another way of dealing (only some can be
    split), the whole problem is taken from the run's own task; one that cannot be dealt is left out.
    """
    of_name = config.model_copy(update={"protocol": config.evaluate.also[name]})
    other = make("protocol", of_name.protocol, About(of_name))
    if other.fact_seats == protocol.fact_seats:
        return Also(other, main.held_out)
    loaded = {task.question: task for task in make_tasks(of_name, other).held_out}
    whole = {task.question: replace(task, ask=task.question, private={}) for task in main.held_out if not other.fact_seats}
    held_out = tuple(found for task in main.held_out if (found := loaded.get(task.question) or whole.get(task.question)))
    if not held_out:
        raise CoterieError(f"evaluate.also.{name}: it can play none of the held-out tasks, whose facts it deals otherwise")
    return Also(other, held_out)


def make_engine(config: RunConfig, model: Any, reader: Reader) -> Engine:
    about = config.engine
    options: dict[str, Any] = {}
    if about.kind == "vllm":  # it loads the weights itself
        options = about.model_dump(include={"gpu_memory_utilization", "tensor_parallel"}, exclude_none=True)
        options |= {"source": source_of(config.model.path), "dtype": dtype_of(config.model)}
    return ENGINES[about.kind](
        Players(model), stop_ids=reader.tokenizer.stop_ids, context_length=reader.context_length, slots=about.slots, **options
    )


def assemble(config: RunConfig) -> Stage:
    """Load the model and everything around it, ready for the first step."""
    from coterie.learn.adapter import attach_adapter

    script = write_script(config)
    reader = script.reader
    model = attach_adapter(load_model(config.model), config.model.adapter, config.seed)
    load_partners(model, script.partners.adapters)
    engine = make_engine(config, model, reader)
    if script.partners.addresses:
        from coterie.engines.remote import RemoteEngine
        from coterie.engines.switchboard import Switchboard

        remote = RemoteEngine(script.partners.addresses, reader.tokenizer, context_length=reader.context_length)
        engine = Switchboard(engine, remote)
    about = About(config)
    grader = make("grading", config.grading, about)
    hall = Hall(script.protocol, engine, reader.tokenizer, grader, Sampler(config.sampling.temperature), config.seed)
    sampling = config.evaluation_sampling
    evaluation_hall = replace(hall, sampler=Sampler(sampling.temperature, sampling.top_p, sampling.top_k))
    rule, draw = (make(table, getattr(config, table), about) for table in ("credit", "draw"))
    return Stage(config, script.tasks, model, engine, hall, evaluation_hall, rule, draw, script.cast, script.also)
