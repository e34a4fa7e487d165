"""Makes the pocket model from nothing but the generator: `python -m coterie.pocket.pretrain --out DIR`.

Writes the model, the tokenizer, `pretrain.jsonl` (one line per measurement: step, loss in nats per trained token, tokens seen,
solo accuracy) and `pretrain.json` (every setting, versions, device, time) to DIR. The shipped weights were made in two
stages (the model card says how); the defaults are those of the first, 200 s on one H200. On a CPU the same command takes hours.
"""

import argparse
import json
import math
import platform
import random
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from coterie.pocket.batches import IGNORE, Batch, Stream
from coterie.pocket.corpus import document
from coterie.pocket.rates import measure
from coterie.pocket.tokenizer import build
from coterie.tasks.pocket import pocket_tasks

VOCABULARY_TEXTS = 30_000
"""Documents from which the tokenizer's words are taken: enough to see every word many times."""


def make_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    rng = random.Random(f"coterie pocket vocabulary {seed}")
    documents = [document(rng) for _ in range(VOCABULARY_TEXTS)]
    return build([text for d in documents for text in (d.view.messages[0][1], d.reply)])


def make_model(tokenizer: Any, width: int, layers: int, hidden: int) -> LlamaForCausalLM:
    """Llama with heads of 32, half as many key-value heads, and the embedding tied to the output.

    Not Qwen2: for that type transformers 5 replaces the tokenizer that a folder declares by its own.
    """
    heads = width // 32
    config = LlamaConfig(
        vocab_size=math.ceil(len(tokenizer) / 32) * 32,
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2 if heads % 2 == 0 else 1,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.generation_config.update(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None)
    return model


def loss_of(model: Any, batch: Batch) -> torch.Tensor:
    """Mean negative log-likelihood (nats) of the trained tokens."""
    hidden_BTD = model.model(
        input_ids=batch.ids_BT, attention_mask=batch.mask_B1TT(), position_ids=batch.position_BT, use_cache=False
    ).last_hidden_state
    trained = batch.labels_BT != IGNORE
    return F.cross_entropy(model.lm_head(hidden_BTD[trained]).float(), batch.labels_BT[trained])


def rate_at(progress: float, warm: float = 0.02) -> float:
    """Learning rate over its peak: linear warm-up, then a cosine to 0."""
    return progress / warm if progress < warm else 0.5 * (1 + math.cos(math.pi * min(1.0, (progress - warm) / (1 - warm))))


def pretrain(args: argparse.Namespace) -> None:
    started = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device(args.device)
    if args.start:
        tokenizer = AutoTokenizer.from_pretrained(args.start)
        model: Any = AutoModelForCausalLM.from_pretrained(args.start, dtype=torch.float32).to(device).train()  # pyright: ignore[reportArgumentType]
    else:
        tokenizer = make_tokenizer(args.seed)
        model = make_model(tokenizer, args.width, args.layers, args.hidden).to(device)  # pyright: ignore[reportArgumentType]
    tokenizer.save_pretrained(args.out)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": args.decay}, {"params": others, "weight_decay": 0.0}],
        lr=args.lr,
        betas=(0.9, 0.98),
        fused=device.type == "cuda",
    )
    stream = Stream(tokenizer, args.seed, args.documents, args.steps)
    loader = DataLoader(stream, batch_size=None, num_workers=args.workers, prefetch_factor=8 if args.workers else None)
    checks = pocket_tasks("held_out", 180, args.seed + 1)
    log = (args.out / "pretrain.jsonl").open("w")
    tokens, trained, losses = 0, 0, []
    for step, parts in enumerate(loader):
        spent = (time.monotonic() - started) / 60
        progress = max(step / args.steps, spent / args.minutes if args.minutes else 0.0)
        if progress >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = args.lr * rate_at(progress)
        batch = Batch(*parts)
        tokens += int((batch.doc_BT >= 0).sum())
        trained += int((batch.labels_BT != IGNORE).sum())
        loss = loss_of(model, batch.to(device))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.detach())
        if (step + 1) % args.every == 0 or step + 1 == args.steps:
            model.eval()
            solo = measure(model, tokenizer, checks, "solo", greedy=True).mean
            model.train()
            line = {"step": step + 1, "loss": round(float(torch.stack(losses).mean()), 4), "tokens": tokens,
                    "solo_greedy": round(solo, 3), "seconds": round(time.monotonic() - started, 1)}  # fmt: skip
            losses.clear()
            print(json.dumps(line), file=log, flush=True)
            print(json.dumps(line), flush=True)
    log.close()
    model.eval()
    model.save_pretrained(args.out)
    tasks = pocket_tasks("held_out", args.rates, args.seed + 2)
    measured = {}
    for form in ("solo", "on", "off"):
        for decoding in ("T=1", "greedy"):
            rate = measure(model, tokenizer, tasks, form, greedy=decoding == "greedy")
            measured[f"{form} {decoding}"] = {"mean": round(rate.mean, 4), "error": round(rate.error, 4), "tasks": len(tasks)}
            if form == "solo":
                measured[f"{form} {decoding}"]["by_family"] = {k: round(v, 3) for k, v in rate.by_family.items()}
    summary = {
        "settings": {key: value for key, value in vars(args).items() if key not in ("out", "start")},
        "started_from": "a fresh model" if args.start is None else "an earlier stage",
        "steps_done": min(step + 1, args.steps) if progress < 1 else step,
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": len(tokenizer),
        "tokens": tokens,
        "trained_tokens": trained,
        "seconds": round(time.monotonic() - started, 1),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "rates": measured,
    }
    (args.out / "pretrain.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--start", type=Path, default=None, help="go on from this model folder instead of a fresh one")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=8400)
    parser.add_argument(
        "--minutes", type=float, default=None, help="end after this time; the schedule follows whichever ends first"
    )
    parser.add_argument("--documents", type=int, default=384, help="documents per step")
    parser.add_argument("--workers", type=int, default=4, help="processes that make text (0: in the training process)")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--every", type=int, default=500, help="steps between measurements")
    parser.add_argument("--rates", type=int, default=900, help="held-out tasks for the base rates at the end")
    pretrain(parser.parse_args())


if __name__ == "__main__":
    main()
