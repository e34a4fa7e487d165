# ruff: noqa: E402
"""One talk-to-solve training step, played and learned: `python bench/step.py --out bench/results/step-NAME.json`.

8 tasks x 4 episodes x 4 turns at the published caps, messages as long as the untrained model writes them (`talk`), every row with
an advantage. Times are of the host from first request to last weight, with the device idle at both ends: play, learn, both. The
learner's share is its products' FLOPs (`talk.learner_flops`, attention left out) over its time and the rate of a large bf16 product
measured in the same run. Also the evaluation of 600 chats (`evaluate.py`), and with `--trl` TRL's GRPOTrainer on messages of
the same lengths, where trl is installed (`peer_trl.py`).
"""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "src")]

import torch
from common import SHAPES, facts, make_model, seconds, write
from evaluate import evaluate
from talk import learner_flops, made_up_rows, make_chats, matrix_rate, play

from coterie.config import TrainConfig
from coterie.engines.local import LocalEngine
from coterie.engines.players import Players
from coterie.learn.learner import Learner
from coterie.learn.rows import pack, packed_batches, packed_shares
from coterie.types import Row

RECORDED_TRL = 70.0
"""Seconds of the same step through TRL 1.16 with transformers' generate, reckoned from its measured 10.7 to 11.5 s for 160
sequential tokens (one H200, 29 November 2026). Shown beside a ratio, never in its place."""


def packed_tokens(rows: list[Row], budget: int) -> int:
    """Tokens that the learner computes: what several rows of a micro-batch begin with counts once."""
    ordered = [rows[i] for i in packed_shares(rows, 1)[0]]
    parts = packed_batches(ordered, budget)
    return sum(pack([ordered[i] for i in part], [1.0] * len(part)).ids_BT.shape[1] for part in parts)


def agreement(metrics: dict[str, Any]) -> dict[str, Any]:
    """How far sampler and learner are apart on rows that were just sampled: ratios of probabilities."""
    return {key: metrics[key] for key in ("ratio_mean", "ratio_sd", "ratio_outside", "logprob_gap_max")}


def coterie_step(model: Any, size: str, device: str, tasks: int, repeats: int) -> dict[str, Any]:
    vocabulary, config = SHAPES[size]["vocab_size"], TrainConfig()
    engine = LocalEngine(Players(model), stop_ids=(), context_length=SHAPES[size]["max_position_embeddings"], slots=4 * tasks)
    learner = Learner(model, config, seed=0)
    times, metrics, rows = [], {}, []
    for step in range(repeats + 1):  # the first compiles
        chats = make_chats(tasks, 4, vocabulary, seed=step)
        played: list[Row] = []
        play_time = seconds(lambda: played.extend(play(engine, chats, step)), device, 1)  # noqa: B023
        rows = played
        learn_time = seconds(lambda: metrics.update(learner.step(rows)), device, 1)  # noqa: B023
        first = agreement(metrics) if step == 0 else first  # noqa: F821
        engine.refresh(step + 1)
        times.append((play_time + learn_time, play_time, learn_time))
    total, play_time, learn_time = sorted(times[1:])[len(times[1:]) // 2]
    prompt, completion = (sum(len(getattr(r, key)) for r in rows) for key in ("prompt_ids", "completion_ids"))
    return {
        "seconds_first_step": times[0][0],
        "seconds_per_step": total,
        "seconds_play": play_time,
        "seconds_learn": learn_time,
        "rows": len(rows),
        "tokens_prompt": prompt,
        "tokens_sampled": completion,
        "packed": metrics["packed"],
        "agreement_first_step": first,
        "agreement_last_step": agreement(metrics),
    }


def learner_alone(model: Any, size: str, device: str, tasks: int, repeats: int) -> dict[str, Any]:
    """The learner on made-up rows, with what it does in FLOPs, at three sizes of micro-batch; and the model's own padded pass."""
    rows = made_up_rows(make_chats(tasks, 4, SHAPES[size]["vocab_size"], seed=1), SHAPES[size]["vocab_size"])
    rate = matrix_rate(device)
    result: dict[str, Any] = {"matmul_tflops": rate / 1e12}
    for budget in (8192, 16384, 32768) if device == "cuda" else (16384,):
        learner = Learner(model, TrainConfig(tokens_per_micro_batch=budget), seed=0)
        learner.step(rows)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        time = seconds(lambda: learner.step(rows), device, repeats)  # noqa: B023
        tokens = packed_tokens(rows, budget) if learner.packed else sum(len(r.prompt_ids) + len(r.completion_ids) for r in rows)
        flops = learner_flops(model, rows, tokens)
        done = flops["base"] + flops["adapter"] + flops["head"]
        peak = torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None
        result[f"micro_batch_{budget}"] = {
            "seconds": time,
            "tokens_of_rows": sum(len(r.prompt_ids) + len(r.completion_ids) for r in rows),
            "tokens_computed": tokens,
            "tflop": flops,
            "tflops": done / time,
            "share_of_matmul": done / time * 1e12 / rate,
            "peak_gb": peak,
        }
    padded = Learner(model, TrainConfig(), seed=0, packed=False)
    padded.step(rows)
    result["seconds_padded"] = seconds(lambda: padded.step(rows), device, 1)
    return result


def trl_step(args: argparse.Namespace, tasks: int) -> dict[str, Any]:
    if not args.trl:
        return {"seconds": None, "why_not": "not asked for; give --trl", "recorded_seconds": RECORDED_TRL}
    try:
        import peer_trl

        chats = make_chats(tasks, 4, SHAPES[args.size]["vocab_size"], seed=1)
        return peer_trl.step(args.size, args.device, chats)
    except (ImportError, RuntimeError) as error:  # not installed, or not with these versions of its libraries
        return {"seconds": None, "why_not": f"{error}", "recorded_seconds": RECORDED_TRL}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--size", default=None, choices=tuple(SHAPES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--trl", action="store_true", help="also through TRL's GRPOTrainer, which takes minutes")
    parser.add_argument("--skip-evaluation", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.size = args.size or ("1.5b" if args.device == "cuda" else "pocket")
    tasks = 8 if args.device == "cuda" else 2
    model = make_model(args.size, args.device)
    result: dict[str, Any] = {**facts(args.device), "size": args.size, "tasks": tasks, "episodes": 4, "turns": 4}
    result["learner"] = learner_alone(model, args.size, args.device, tasks, args.repeats)
    middle = result["learner"]["micro_batch_16384"]
    result |= {"learner_tflops": middle["tflops"], "learner_share_of_matmul": middle["share_of_matmul"]}
    result |= coterie_step(model, args.size, args.device, tasks, args.repeats)
    if not args.skip_evaluation:
        result |= evaluate(model, args.size, args.device, 300 if args.device == "cuda" else 4)
    del model
    if args.out:
        write(args.out, result)  # what follows takes longest and may be cut short
    trl = trl_step(args, tasks)
    result["trl"] = trl
    result["ratio"] = {"trl": trl["seconds"] / result["seconds_per_step"] if trl["seconds"] else None}
    result["ratio"]["trl_recorded"] = RECORDED_TRL / result["seconds_per_step"] if args.size == "1.5b" else None
    if args.out:
        write(args.out, result)
    for key, value in result.items():
        print(f"{key:28} {value}")


if __name__ == "__main__":
    main()
