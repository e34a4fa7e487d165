"""Base rates of a pocket model: how often one copy with all the facts, two copies with the channel on, and two copies with the
channel off give the right answer, without any training by reinforcement. Plain transformers `generate`, so that the numbers in
the model card do not depend on the library's own engine.

`python -m coterie.pocket.rates [MODEL_DIR] [--tasks N]` prints the table of the model card.
"""

import argparse
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from coterie.pocket import MODEL_DIR
from coterie.pocket.corpus import ALONE, CAP, CUT, TALK, message
from coterie.protocols.chat import Chat
from coterie.tasks.pocket import alone, pocket_tasks
from coterie.types import Message, Task, View

FORMS: dict[str, Chat] = {"solo": ALONE, "on": TALK, "off": CUT}


@dataclass(frozen=True, slots=True)
class Rate:
    """Mean score over tasks (each the mean over its seats), and the standard error over tasks."""

    mean: float
    error: float
    by_family: dict[str, float]
    talks: list[list[str]]
    scores: list[float]


def prompt_ids(tokenizer: Any, view: View) -> list[int]:
    """Token ids of a view, ready for the assistant to speak. Text that looks like a control token is encoded as plain text."""
    ids: list[int] = []
    for role, content in view.messages:
        body = tokenizer.encode(content, add_special_tokens=False, split_special_tokens=True)
        ids += [tokenizer.convert_tokens_to_ids(f"<|{role}|>"), *body, tokenizer.eos_token_id]
    return [*ids, tokenizer.convert_tokens_to_ids("<|assistant|>")]


@torch.no_grad()
def say(model: Any, tokenizer: Any, views: list[View], greedy: bool) -> list[str]:
    """One message for each view: temperature 1 without truncation of the distribution, or greedy; at most CAP tokens."""
    prompts = [prompt_ids(tokenizer, view) for view in views]
    width = max(map(len, prompts))
    ids_BT = torch.full((len(prompts), width), tokenizer.pad_token_id)
    for row, ids in zip(ids_BT, prompts, strict=True):
        row[width - len(ids) :] = torch.tensor(ids)
    ids_BT = ids_BT.to(model.device)
    choice = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    out_BT = model.generate(
        input_ids=ids_BT,
        attention_mask=(ids_BT != tokenizer.pad_token_id).long(),
        max_new_tokens=CAP,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **choice,
    )
    return tokenizer.batch_decode(out_BT[:, width:], skip_special_tokens=True)


def right(text: str, answer: str) -> bool:
    boxed = re.findall(r"\\boxed\{(\d+)\}", text)
    return bool(boxed) and boxed[-1] == answer


def measure(model: Any, tokenizer: Any, tasks: list[Task], form: str, greedy: bool = False, seed: int = 0) -> Rate:
    """Play every task once in the given form ("solo", "on" or "off")."""
    torch.manual_seed(seed)
    chat = FORMS[form]
    played = [alone(task) for task in tasks] if form == "solo" else tasks
    said: list[tuple[Message, ...]] = [() for _ in tasks]
    scores = [0.0 for _ in tasks]
    for turn, seat in enumerate(chat.order):
        final = seat not in chat.order[turn + 1 :]
        texts = say(model, tokenizer, [chat.view(task, seat, talk, final) for task, talk in zip(played, said, strict=True)], greedy)
        said = [(*talk, message(turn, text)) for talk, text in zip(said, texts, strict=True)]
        if final:
            scores = [s + right(x, t.answer) / len(chat.seats) for s, x, t in zip(scores, texts, tasks, strict=True)]
    families: dict[str, list[float]] = {}
    for task, score in zip(tasks, scores, strict=True):
        families.setdefault(task.meta["family"], []).append(score)
    mean = sum(scores) / len(scores)
    error = math.sqrt(sum((s - mean) ** 2 for s in scores) / max(1, len(scores) - 1) / len(scores))
    by_family = {name: sum(values) / len(values) for name, values in families.items()}
    return Rate(mean, error, by_family, [[m.text for m in talk] for talk in said], scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=MODEL_DIR)
    parser.add_argument("--tasks", type=int, default=900)
    parser.add_argument("--seed", type=int, default=1000)
    args = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(args.model).eval()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tasks = pocket_tasks("held_out", args.tasks, args.seed)
    print("| form | decoding | right | standard error | tasks |\n|---|---|---|---|---|")
    for form in FORMS:
        for greedy in (False, True):
            rate = measure(model, tokenizer, tasks, form, greedy)
            print(f"| {form} | {'greedy' if greedy else 'T=1'} | {rate.mean:.3f} | {rate.error:.3f} | {len(tasks)} |", flush=True)
            if form == "solo" and not greedy:
                families = rate.by_family
    print("solo by family, T=1:", ", ".join(f"{name} {value:.2f}" for name, value in families.items()))


if __name__ == "__main__":
    main()
