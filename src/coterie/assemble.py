"""From a resolved config to the objects that play and learn. The only place where `kind` turns into a class."""

from dataclasses import dataclass, replace
from typing import Any

from coterie.casts.base import Cast
from coterie.casts.self_play import SelfPlay
from coterie.config import (
    ChatConfig,
    ExactGraderConfig,
    GSM8KTasksConfig,
    JsonlTasksConfig,
    MathVerifyGraderConfig,
    NumericGraderConfig,
    PocketTasksConfig,
    RunConfig,
)
from coterie.credit.base import CreditRule
from coterie.credit.team_mean import team_mean
from coterie.draws.base import Draw
from coterie.draws.fixed import FixedDraw
from coterie.engines import vllm
from coterie.engines.base import Engine, Sampler, check_fit
from coterie.engines.hf import HFEngine
from coterie.engines.local import LocalEngine
from coterie.engines.players import Players
from coterie.grading.base import Grader
from coterie.loading import POCKET, Reader, dtype_of, load_model, load_reader, source_of
from coterie.play import Hall, longest_request
from coterie.protocols.base import Protocol
from coterie.protocols.chat import WORDINGS, Chat
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


def make_protocol(config: RunConfig) -> Protocol:
    chat = config.protocol
    assert isinstance(chat, ChatConfig)
    wording = chat.wording if chat.wording != "auto" else ("pocket" if config.model.path == POCKET else "plain")
    return Chat(chat.order, chat.message_tokens, chat.final_tokens, chat.deliver, WORDINGS[wording])


def make_tasks(config: RunConfig, protocol: Protocol) -> TaskSet:
    """Loads both sets and refuses a task that the protocol cannot play and a question that stands in both."""
    match config.tasks:
        case PocketTasksConfig() as pocket:
            from coterie.tasks.pocket import pocket_tasks

            tasks = TaskSet(
                tuple(pocket_tasks("train", pocket.train, pocket.seed, pocket.families)),
                tuple(pocket_tasks("held_out", pocket.held_out, pocket.seed, pocket.families)),
            )
        case GSM8KTasksConfig() as gsm8k:
            from coterie.tasks.gsm8k import load_gsm8k

            tasks = load_gsm8k(gsm8k.path, gsm8k.train, gsm8k.held_out, gsm8k.seed, protocol.seats)
        case JsonlTasksConfig() as own:
            from coterie.tasks.jsonl import load_jsonl

            tasks = load_jsonl(own.path, own.held_out_path, own.train, own.held_out, own.seed, protocol.seats, own.on_reject)
    for task in (*tasks.train, *tasks.held_out):
        reason = protocol.check(task)
        if reason:
            raise CoterieError(f"tasks: task {task.id} {reason}; every seat of protocol.order needs facts")
    check_overlap(tasks)
    return tasks


def make_grader(config: RunConfig) -> Grader:
    match config.grading:
        case NumericGraderConfig() as numeric:
            from coterie.grading.numeric import Numeric

            return Numeric(boxed_only=numeric.boxed_only)
        case ExactGraderConfig() as exact:
            from coterie.grading.exact import Exact

            return Exact(boxed_only=exact.boxed_only)
        case MathVerifyGraderConfig() as verify:
            from coterie.grading.math_verify import MathVerify

            return MathVerify(timeout=verify.timeout, boxed_only=verify.boxed_only, workers=verify.workers)


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
    protocol = make_protocol(config)
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
    hall = Hall(script.protocol, engine, reader.tokenizer, make_grader(config), Sampler(config.sampling.temperature), config.seed)
    sampling = config.evaluation_sampling
    evaluation_hall = replace(hall, sampler=Sampler(sampling.temperature, sampling.top_p, sampling.top_k))
    return Stage(config, script.tasks, model, engine, hall, evaluation_hall, team_mean, FixedDraw(config.draw.episodes), SelfPlay())
