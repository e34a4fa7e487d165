"""A talk-to-solve step's messages through TRL's GRPOTrainer with transformers' `generate`, no vLLM: the plain recipe of a TRL user.

TRL has no turns that depend on each other, so the four turns are four of its steps, each with the prompts of that turn (one a task,
as GRPO has it) and 4 completions of each; all run to the turn's longest message, as a batch in `generate` does until its last
message ends. A first step of 16 tokens warms up and is not counted.
"""

import importlib.metadata
import tempfile
import time
from typing import Any

import torch
from common import SHAPES, make_model
from datasets import Dataset  # pyright: ignore[reportMissingImports]
from datasets.table import InMemoryTable  # pyright: ignore[reportMissingImports]
from talk import Chat
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]


def word_tokenizer(vocabulary: int) -> Any:
    """One word an id ("t17" is 17), so that prompts have exactly the ids that are wanted."""
    tokenizer = Tokenizer(models.WordLevel({f"t{i}": i for i in range(vocabulary)}, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    last = f"t{vocabulary - 1}"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=last, pad_token=last)


def prompts_by_turn(chats: list[Chat]) -> list[list[str]]:
    """The prompts of each turn, for the first episode of each task; messages are made up."""
    turns: list[list[str]] = []
    for turn in range(len(chats[0].lengths)):
        turns.append([" ".join(f"t{i}" for i in chat.prompt()) for chat in chats[::4]])
        for chat in chats:
            chat.hear(tuple(range(chat.lengths[turn])))
    return turns


class _Clock(TrainerCallback):
    """Sets how many tokens each step generates, and times the steps."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths, self.times, self.trainer = lengths, [], None
        self._start = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        assert self.trainer is not None
        length = self.lengths[state.global_step]
        self.trainer.max_completion_length = self.trainer.generation_config.max_new_tokens = length
        self.trainer.generation_kwargs["max_new_tokens"] = length
        self._start = self._now()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.times.append(self._now() - self._start)
        print(f"TRL: {self.times[-1]:.1f} s for {self.lengths[len(self.times) - 1]} tokens in a row", flush=True)

    @staticmethod
    def _now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()


def step(size: str, device: str, chats: list[Chat]) -> dict[str, Any]:
    longest = [max(chat.lengths[turn] for chat in chats) for turn in range(len(chats[0].lengths))]
    turns = prompts_by_turn(chats)
    texts = [text for prompts in (turns[0], *turns) for text in prompts]
    clock = _Clock([16, *longest])
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=len(chats),
            num_generations=4,
            max_completion_length=max(longest),
            max_steps=1 + len(turns),
            temperature=1.0,
            beta=0.0,
            learning_rate=1e-4,
            shuffle_dataset=False,
            use_vllm=False,
            bf16=device == "cuda",
            use_cpu=device == "cpu",
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
        )
        trainer = GRPOTrainer(
            model=make_model(size, device),
            reward_funcs=lambda completions, **_: [float(i % 2) for i in range(len(completions))],
            args=config,
            # a fingerprint given saves pickling the table, which some versions of its libraries cannot do together
            train_dataset=Dataset(InMemoryTable.from_pydict({"prompt": texts}), fingerprint="talk"),
            processing_class=word_tokenizer(SHAPES[size]["vocab_size"]),
            callbacks=[clock],
        )
        clock.trainer = trainer
        trainer.train()
    times, version = clock.times, importlib.metadata.version("trl")
    return {"seconds": sum(times[1:]), "turns": times[1:], "longest": longest, "warm_up": times[0], "trl": version}
