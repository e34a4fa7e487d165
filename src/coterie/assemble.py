"""From a resolved config to the objects that play and learn."""

from dataclasses import dataclass, replace
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
from coterie.play import longest_request
from coterie.protocols.base import Protocol
from coterie.tasks.base import TaskSet
from coterie.tasks.overlap import check_overlap
from coterie.types import CoterieError, Task

ENGINES = {"local": LocalEngine, "hf": HFEngine, "vllm": vllm.VLLMEngine}


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


_CHECKED = 200
"""How many tasks, the longest in characters, are checked against the model's context. Tokens follow characters closely enough; what
slips through ends its episode as a counted error."""


def _size(task: Task) -> int:
    return len(task.question) + sum(len(fact) for facts in task.private.values() for fact in facts)


def write_script(config: RunConfig) -> Script:
    """Load tasks and tokenizer and check that they fit each other: facts for every seat, no question in both sets, and the longest
    tasks within the model's context even when every message is as long as its cap."""
    if config.engine.kind == "vllm":
        vllm.refuse(config.model.adapter)
    protocol = make("protocol", config.protocol, About(config))
    reader = load_reader(config.model)
    for key, cap in protocol.caps().items():
        if cap >= reader.context_length:
            raise CoterieError(f"{key} = {cap} is not smaller than the model's context of {reader.context_length} tokens; lower it")
    tasks = make_tasks(config, protocol)
    for task in sorted((*tasks.held_out, *tasks.train), key=_size)[-_CHECKED:]:
        prompt, cap = longest_request(task, protocol, reader.tokenizer)
        reason = check_fit(prompt, cap, reader.context_length)
        if reason:
            raise CoterieError(f"tasks: with every message at its cap, task {task.id} needs {reason}")
    return Script(protocol, tasks, reader)


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
    engine = make_engine(config, model, reader)
    about = About(config)
    grader = make("grading", config.grading, about)
    hall = Hall(script.protocol, engine, reader.tokenizer, grader, Sampler(config.sampling.temperature), config.seed)
    sampling = config.evaluation_sampling
    evaluation_hall = replace(hall, sampler=Sampler(sampling.temperature, sampling.top_p, sampling.top_k))
    rule, draw, cast = (make(table, getattr(config, table), about) for table in ("credit", "draw", "cast"))
    return Stage(config, script.tasks, model, engine, hall, evaluation_hall, rule, draw, cast)
