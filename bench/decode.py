"""Prefill and decode, coterie beside its peers on the same work: `python bench/decode.py --out bench/results/decode-NAME.json`.

Each sequence is a prompt of 300 random tokens (no two equal) and 160 sampled ones, temperature 1, with log-probabilities, under a
rank-32 adapter on all seven projections. The time is from the first request to the last completion on the host. A decode step is
the time of 160 tokens less that of one, over 159. Its floor is reading the weights and the mean key-value cache once at the
measured copy bandwidth.
"""

import argparse
import copy
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import SHAPES, copy_bandwidth, facts, make_model, seconds, wait, write

from coterie.engines.base import Completion, Request, Sampler
from coterie.engines.local import LocalEngine
from coterie.engines.players import Players
from coterie.types import POLICY

PROMPT, NEW = 300, 160
RECORDED = {
    "hf_generate_32": 686,
    "vllm_lora_logprobs_32": 6171,
    "vllm_lora_logprobs_128": 12799,
}
"""Tokens a second of the peers in an earlier run on one H200 (29 November 2026; torch 2.11, transformers 5.17, peft 0.21, vLLM
0.23). The ratio to them stands beside the ratio to the peers of the same run, never in its place."""


def work(count: int, new: int, vocabulary: int, players: tuple[str, ...] = (POLICY,), seed: int = 0) -> list[Request]:
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    return [
        Request(
            tuple(rng.randrange(vocabulary) for _ in range(PROMPT)),
            new,
            players[i % len(players)],
            Sampler(),
            noise.random(new).tolist(),
        )
        for i in range(count)
    ]


def run(engine: LocalEngine, requests: list[Request]) -> list[Completion]:
    tickets = [engine.submit(request) for request in requests]
    done: dict[int, Completion] = {}
    while len(done) < len(tickets):
        done.update(engine.step())
    return [done[t] for t in tickets]


def coterie(model: Any, size: str, device: str, batches: list[int], bandwidth: float, players: tuple[str, ...] = (POLICY,)) -> dict:
    """Merged weights; with several `players`, one batch of adapters unmerged."""
    vocabulary, together = SHAPES[size]["vocab_size"], len(players) > 1
    wait(device)
    start = time.perf_counter()
    options = {"stop_ids": (), "context_length": 1024, "slots": max(batches), "together": together}
    engine = LocalEngine(Players(model), **options)
    run(engine, work(batches[0], 8, vocabulary, players))
    wait(device)
    result: dict[str, Any] = {"seconds_to_ready": time.perf_counter() - start}
    config = model.config
    itemsize = next(model.get_base_model().parameters()).element_size()
    read = (
        sum(p.numel() for k, p in model.named_parameters() if "lora_" not in k and "norm" not in k and "bias" not in k) * itemsize
    )
    kv = 2 * config.num_hidden_layers * config.num_key_value_heads * (config.hidden_size // config.num_attention_heads) * itemsize
    for count in batches:
        full, first = work(count, NEW, vocabulary, players), work(count, 1, vocabulary, players)
        run(engine, full)
        whole = seconds(lambda: run(engine, full), device)  # noqa: B023
        prefill = seconds(lambda: run(engine, first), device)  # noqa: B023
        step = (whole - prefill) / (NEW - 1)
        floor = (read + count * (PROMPT + NEW / 2) * kv) / bandwidth
        result[str(count)] = {
            "tokens_per_second": count * NEW / whole,
            "prefill_tokens_per_second": count * PROMPT / prefill,
            "ms_per_step": 1e3 * step,
            "decode_tokens_per_second": count / step,
            "floor_ms": 1e3 * floor,
            "share_of_floor": floor / step,
        }
        print(f"coterie {'per-sequence adapters' if together else 'merged'} {count}: {result[str(count)]}", flush=True)
    if not together:
        engine.refresh(1)
        result["merge_seconds"] = seconds(lambda: (engine.refresh(1), engine._lane(POLICY)), device)
    return result


@torch.no_grad()
def agreement(model: Any, size: str, device: str) -> dict:
    """How far log-probabilities of sampled ids lie apart: the sampler's, transformers' forward pass with the adapter unmerged (as a
    learner computes them, logits in fp32 from its hidden states), and the same in fp32 throughout, which is the truth that both
    round. Ratios of probabilities: mean, sd, share outside [0.95, 1.05]."""
    engine = LocalEngine(Players(model), stop_ids=(), context_length=1024, slots=32)
    requests = work(32, NEW, SHAPES[size]["vocab_size"], seed=1)
    completions = run(engine, requests)
    ids = torch.tensor([[*r.prompt_ids, *c.ids] for r, c in zip(requests, completions, strict=True)], device=device)
    own = torch.tensor([c.logprobs for c in completions], device=device)

    def scores(inner: Any) -> torch.Tensor:
        rows = []
        for row in ids.split(4):
            hidden = inner.model(row).last_hidden_state[:, PROMPT - 1 : -1]
            logits = hidden.float() @ inner.lm_head.weight.float().t()
            rows.append(torch.log_softmax(logits, -1).gather(-1, row[:, PROMPT:, None])[..., 0])
        return torch.cat(rows)

    learner = scores(model.get_base_model())
    exact = scores(copy.deepcopy(model).float().get_base_model())

    def compare(a: torch.Tensor, b: torch.Tensor) -> dict:
        ratio = (a - b).exp()
        outside = ((ratio < 0.95) | (ratio > 1.05)).float().mean().item()
        return {"mean": ratio.mean().item(), "sd": ratio.std().item(), "share_outside_0.95_1.05": outside}

    return {
        "learner over sampler": compare(learner, own),
        "sampler over fp32": compare(own, exact),
        "learner over fp32": compare(learner, exact),
    }


def turnover(model: Any, size: str, device: str) -> dict:
    """Continuous batching: 128 requests of 16 to 384 tokens over 32 slots. Tokens a second."""
    engine = LocalEngine(Players(model), stop_ids=(), context_length=1024, slots=32)
    rng = random.Random(0)
    asked = [replace(r, max_tokens=rng.randint(16, 384)) for r in work(128, 384, SHAPES[size]["vocab_size"], seed=2)]
    run(engine, asked)
    return {"tokens_per_second": sum(r.max_tokens for r in asked) / seconds(lambda: run(engine, asked), device, 2)}


def generate(size: str, device: str, count: int) -> float:
    """Tokens a second of transformers' generate with one adapter, unmerged, which is what a recipe without an engine does."""
    model = make_model(size, device)
    ids = torch.randint(SHAPES[size]["vocab_size"], (count, PROMPT), device=device)

    def once(new: int) -> None:
        options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": True, "top_k": 0, "pad_token_id": 0}
        with torch.no_grad():
            model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)

    once(8)
    once(NEW)
    return count * NEW / seconds(lambda: once(NEW), device, 2)


def vllm(size: str, batches: list[int]) -> tuple[dict[str, float], str | None]:
    """Tokens a second of vLLM with LoRA and log-probs, in a process of its own; or why it was not run."""
    script = Path(__file__).parent / "vllm_decode.py"
    if facts("cpu")["versions"]["vllm"] is None:
        return {}, "vllm is not installed"
    out = subprocess.run([sys.executable, str(script), size, *map(str, batches)], capture_output=True, text=True, timeout=400)
    rates = dict(line.split()[1:] for line in out.stdout.splitlines() if line.startswith("RATE "))
    return {k: float(v) for k, v in rates.items()}, None if rates else out.stderr[-500:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", default="1.5b", choices=SHAPES)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--skip", nargs="*", default=[], choices=["generate", "vllm", "adapters", "agreement"])
    parser.add_argument("--out")
    a = parser.parse_args()
    bandwidth = copy_bandwidth(a.device)
    peers, reason = ({}, "left out on the command line") if "vllm" in a.skip else vllm(a.size, a.batches)
    model = make_model(a.size, a.device, ("default", "left", "right"))
    result: dict[str, Any] = {**facts(a.device), "size": a.size, "prompt": PROMPT, "new": NEW, "copy_bytes_per_second": bandwidth}
    result["coterie"] = coterie(model, a.size, a.device, a.batches, bandwidth)
    if "agreement" not in a.skip:
        result["agreement"] = agreement(model, a.size, a.device)
        print(result["agreement"], flush=True)
    result["turnover"] = turnover(model, a.size, a.device)
    print("turnover", result["turnover"], flush=True)
    if "adapters" not in a.skip and a.device == "cuda":
        players = (POLICY, "left", "right", "base")
        result["coterie_per_sequence_adapters"] = coterie(model, a.size, a.device, a.batches, bandwidth, players)
    if "generate" not in a.skip:
        result["hf_generate"] = {"32": generate(a.size, a.device, 32)}
        print(f"transformers generate with LoRA, 32: {result['hf_generate']['32']:.0f} tokens/s", flush=True)
    result["vllm_lora_logprobs"] = peers or {"not_run": reason}
    rate = lambda count: result["coterie"].get(str(count), {}).get("tokens_per_second")  # noqa: E731
    over = lambda ours, theirs: ours / theirs if ours and theirs else None  # noqa: E731
    result["ratio"] = {
        "hf_generate_32": over(rate(32), result.get("hf_generate", {}).get("32")),
        "vllm_lora_logprobs_32": over(rate(32), peers.get("32")),
        "vllm_lora_logprobs_128": over(rate(128), peers.get("128")),
    }
    if a.size == "1.5b" and a.device == "cuda":
        result["ratio_to_recorded_peers"] = {k: over(rate(int(k.rsplit("_")[-1])), v) for k, v in RECORDED.items()}
    result["share_of_floor_32"] = result["coterie"].get("32", {}).get("share_of_floor")
    result["seconds_to_ready"] = result["coterie"]["seconds_to_ready"]
    print({k: result.get(k) for k in ("ratio", "ratio_to_recorded_peers", "share_of_floor_32", "seconds_to_ready")}, flush=True)
    if a.out:
        write(a.out, result)


if __name__ == "__main__":
    main()
