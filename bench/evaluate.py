# ruff: noqa: E402
"""One evaluation, 300 held-out tasks x 2 chats of 4 messages, played: `python bench/evaluate.py --out bench/results/NAME.json`."""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "src")]

from common import SHAPES, facts, make_model, seconds, write
from talk import make_chats, play

from coterie.engines.local import LocalEngine
from coterie.engines.players import Players


def evaluate(model: Any, size: str, device: str, tasks: int, slots: int = 256, episodes: int = 2) -> dict[str, Any]:
    """Seconds for all chats through one engine, after one small warm-up that compiles; prompts and lengths as in `talk`."""
    shape = SHAPES[size]
    engine = LocalEngine(Players(model), stop_ids=(), context_length=shape["max_position_embeddings"], slots=slots)
    play(engine, make_chats(8, episodes, shape["vocab_size"], seed=5))
    chats = make_chats(tasks, episodes, shape["vocab_size"], seed=6)
    time = seconds(lambda: play(engine, chats), device, 1)
    sampled = sum(sum(chat.lengths) for chat in chats)
    return {
        "seconds_per_evaluation": time,
        "evaluation_chats": len(chats),
        "evaluation_tokens_sampled": sampled,
        "evaluation_tokens_per_second": sampled / time,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--size", default=None, choices=tuple(SHAPES))
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--out")
    args = parser.parse_args()
    size = args.size or ("1.5b" if args.device == "cuda" else "pocket")
    model = make_model(size, args.device)
    result = {**facts(args.device), "size": size, "slots": args.slots}
    result |= evaluate(model, size, args.device, 300 if args.device == "cuda" else 4, args.slots)
    for key, value in result.items():
        print(f"{key:28} {value}")
    if args.out:
        write(args.out, result)


if __name__ == "__main__":
    main()
