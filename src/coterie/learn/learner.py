"""The learner: rows in, one optimiser step, figures out."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from coterie import seeding
from coterie.config import OptimizerConfig, TrainConfig
from coterie.learn.loss import check_head, completion_logprobs, policy_loss, token_weights
from coterie.learn.packed import packed_logprobs, why_not_packed
from coterie.learn.rows import UNSAMPLED, Batch, collate, micro_batches, pack, packed_batches, packed_shares, row_length
from coterie.types import CoterieError, Row

RATIO_BAND = (0.95, 1.05)
"""Ratios outside of it are counted: on policy, sampler and learner should agree far better than that."""


def learning_rate(config: OptimizerConfig, step: int, total: int) -> float:
    """Learning rate of step `step` (from 0) of `total`.

    Warm-up rises linearly and reaches `lr` at step `warmup_steps - 1`; "linear" then falls towards `lr * final_fraction`, which
    would be reached one step after the last, so that no step is made with a rate of 0 (as transformers' linear schedule does).
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    done = min(1.0, (step - config.warmup_steps) / max(1, total - config.warmup_steps))
    return config.lr * (1.0 - done * (1.0 - config.final_fraction))


def shard(lengths: Sequence[int], rank: int, world: int) -> list[int]:
    """Indices of the rows that process `rank` of `world` handles: dealt out by falling length, so that shares are alike."""
    return sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))[rank::world]


class Learner:
    """Trains what requires a gradient in `model` (see `adapter.attach_adapter`).

    With torch.distributed initialised, every process calls `step` with *all* rows of the step; each handles its share, gradients
    are summed, and all processes hold equal weights afterwards. `step_index` counts steps (those skipped too, for the schedule),
    `updates` the optimiser steps made. Nothing but these two, the weights and Adam's moments is needed to resume.

    Rows are packed without padding (`packed`) on a GPU in half precision wherever the model allows it, and padded, through the
    model's own forward pass, elsewhere; every step's metrics say which. `packed` decides it by hand, for tests.
    """

    def __init__(self, model: Any, config: TrainConfig, *, seed: int = 0, packed: bool | None = None) -> None:
        check_head(model)
        self.model, self.config, self.seed = model, config, seed
        self.trainable: dict[str, nn.Parameter] = {n: p for n, p in model.named_parameters() if p.requires_grad}
        if not self.trainable:
            raise CoterieError("model.adapter: no parameter of the model is trainable; attach an adapter first")
        o = config.optimizer
        parameters = list(self.trainable.values())
        self.device = parameters[0].device
        self.optimizer = torch.optim.AdamW(
            parameters, lr=o.lr, betas=o.betas, eps=o.eps, weight_decay=o.weight_decay, fused=self.device.type == "cuda"
        )
        self.step_index = 0
        self.updates = 0
        self.micro_batch_tokens = config.tokens_per_micro_batch
        if config.gradient_checkpointing and not any(isinstance(m, GradientCheckpointingLayer) for m in model.modules()):
            raise CoterieError("train.gradient_checkpointing: this model's layers cannot be recomputed; set it to false")
        half = any(p.dtype in (torch.bfloat16, torch.float16) for p in model.parameters())
        self.packed = (self.device.type == "cuda" and half and why_not_packed(model) is None) if packed is None else packed
        model.eval()

    def step(self, rows: Sequence[Row]) -> dict[str, float | int | bool]:
        """One optimiser step on the loss of `loss.policy_loss`, normalised over `rows`; returns what is to be logged.

        Rows whose advantage is exactly 0.0 have no gradient and never reach the model. If none is left, weights and Adam's state
        stay as they are, the schedule moves on, and the metrics say `skipped`. Log-probabilities are in nats.

        Raises CoterieError, before the weights change, when loss or gradient is not finite, or one row does not fit the memory.
        """
        lr = learning_rate(self.config.optimizer, self.step_index, self.config.steps)
        weights = token_weights(rows, self.config.loss)
        live = [i for i, row in enumerate(rows) if row.advantage != 0.0]
        metrics: dict[str, float | int | bool] = {
            "skipped": not live,
            "lr": lr,
            "rows": len(rows),
            "live_rows": len(live),
            "tokens": sum(len(row.completion_ids) for row in rows),
            "packed": self.packed,
        }
        if live:
            metrics |= self._update([rows[i] for i in live], [weights[i] for i in live], lr)
            self.updates += 1
        self.step_index += 1
        return metrics

    @torch.no_grad()
    def logprobs(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        """The log-probability (nats) of each row's completion tokens under the weights of now, at the row's temperature.

        For completions that the policy did not sample itself. Computed as `step` does, an adapter's dropout aside, so that a step
        with these as `Row.logprobs` begins with ratios of 1, up to the rounding of another micro-batch. Every process computes all.
        """
        plan = (
            packed_batches(rows, self.micro_batch_tokens)
            if self.packed
            else micro_batches([row_length(row) for row in rows], self.micro_batch_tokens)
        )
        found: list[tuple[float, ...]] = [()] * len(rows)
        for part in plan:
            values = iter(self._logprobs(self._batch([rows[i] for i in part], [1.0] * len(part))).tolist())
            for i in part:
                found[i] = tuple(itertools.islice(values, len(rows[i].completion_ids)))
        return found

    def _update(self, rows: list[Row], weights: list[float], lr: float) -> dict[str, float | int | bool]:
        distributed = dist.is_available() and dist.is_initialized()
        rank, world = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
        lengths = [row_length(row) for row in rows]
        mine = packed_shares(rows, world)[rank] if self.packed else shard(lengths, rank, world)
        sums, largest_gap = self._gradients([rows[i] for i in mine], [weights[i] for i in mine], rank)
        if distributed:
            for parameter in self.trainable.values():
                dist.all_reduce(parameter.grad)
            dist.all_reduce(sums)
            dist.all_reduce(largest_gap, op=dist.ReduceOp.MAX)
        norm = nn.utils.clip_grad_norm_(self.trainable.values(), self.config.optimizer.max_grad_norm)
        metrics = _metrics(sums, largest_gap) | {"grad_norm": float(norm), "micro_batch_tokens": self.micro_batch_tokens}
        for what, value in (("loss", metrics["loss"]), ("gradient norm", metrics["grad_norm"])):
            if not abs(value) < float("inf"):
                self.optimizer.zero_grad(set_to_none=True)
                raise CoterieError(
                    f"step {self.step_index}: the {what} is {value} (largest sampler-learner log-probability gap "
                    f"{metrics['logprob_gap_max']:.3g} nats); weights are unchanged. Lower train.optimizer.lr and resume"
                )
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return metrics

    def _gradients(self, rows: list[Row], weights: list[float], rank: int) -> tuple[Tensor, Tensor]:
        """Leave the summed gradient in `.grad`; when the memory is short, start over with half the micro-batch, for good."""
        lengths = [row_length(row) for row in rows]
        while True:
            tokens = self.micro_batch_tokens
            plan = packed_batches(rows, tokens) if self.packed else micro_batches(lengths, tokens)
            try:
                # all at once, beforehand: a copy from host memory waits for the work that is queued, and the device would run dry
                batches = [self._batch([rows[i] for i in part], [weights[i] for i in part]) for part in plan]
                return self._accumulate(batches, rank)
            except torch.OutOfMemoryError as error:
                if all(len(batch) == 1 for batch in plan):
                    raise CoterieError(
                        f"step {self.step_index}: a single row of {max(lengths)} tokens does not fit the memory; "
                        "set train.gradient_checkpointing = true or lower the protocol's token caps"
                    ) from error
            # outside of the except clause, whose traceback holds on to the tensors of the failed attempt
            self.micro_batch_tokens //= 2
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _batch(self, rows: list[Row], weights: list[float]) -> Batch:
        return (pack if self.packed else collate)(rows, weights, device=self.device)

    def _logprobs(self, batch: Batch) -> Tensor:
        if self.packed:
            return packed_logprobs(self.model, batch, recompute=self.config.gradient_checkpointing)
        return completion_logprobs(self.model, batch)

    def _accumulate(self, batches: list[Batch], rank: int) -> tuple[Tensor, Tensor]:
        device = self.device
        for parameter in self.trainable.values():
            parameter.grad = torch.zeros_like(parameter)  # a process without rows still takes part in the sum
        sums = torch.zeros(9, dtype=torch.float64, device=device)
        largest_gap = torch.zeros((), dtype=torch.float64, device=device)
        clip = {"clip_low": self.config.loss.clip_low, "clip_high": self.config.loss.clip_high}
        seed = seeding.torch_seed(self.seed, "dropout", self.step_index, rank)
        with _training(self.model, self.config.gradient_checkpointing, seed):
            for batch in batches:
                logprob_N = self._logprobs(batch)
                unsampled_N = batch.sampler_logprob_N == UNSAMPLED
                old_N = torch.where(unsampled_N, logprob_N.detach(), batch.sampler_logprob_N)
                out = policy_loss(logprob_N, old_N, batch.advantage_N, batch.weight_N, **clip)
                out.loss.backward()
                ratio_N, logprob_N = out.ratio_N.double(), logprob_N.detach().double()
                outside_N = (ratio_N < RATIO_BAND[0]) | (ratio_N > RATIO_BAND[1])
                count = torch.ones_like(ratio_N)
                terms = (count, ratio_N, (ratio_N - 1) ** 2, outside_N, out.clipped_N, -logprob_N)
                terms += (unsampled_N, -logprob_N * unsampled_N)
                sums += torch.stack([out.loss.detach().double(), *(term.double().sum() for term in terms)])
                # torch.maximum keeps a NaN, as it should
                largest_gap = torch.maximum(largest_gap, (logprob_N - old_N.double()).abs().max())
        return sums, largest_gap


def _metrics(sums: Tensor, largest_gap: Tensor) -> dict[str, float]:
    loss, count, ratio, ratio_square, outside, clipped, surprise, unsampled, unsampled_surprise = sums.tolist()
    mean = ratio / count
    return {
        "loss": loss,
        "live_tokens": int(count),
        "ratio_mean": mean,
        "ratio_sd": max(0.0, ratio_square / count - (mean - 1.0) ** 2) ** 0.5,
        "ratio_outside": outside / count,
        "clip_fraction": clipped / count,
        "logprob_gap_max": float(largest_gap),
        "surprise": surprise / count,
        **({"unsampled_surprise": unsampled_surprise / unsampled} if unsampled else {}),
    }


@contextmanager
def _training(model: Any, recompute: bool, seed: int) -> Iterator[None]:
    """The mode of the learner's forward pass: eval, so that it computes what the sampler computed, but for two things.

    An adapter's own dropout is on, with torch seeded from `seed` for the while. With `recompute`, layers are computed again in the
    backward pass; transformers asks that such a layer be in training mode, its children stay in eval. Afterwards the sampler finds
    the model as it was.
    """
    model.eval()
    layers: list[Any] = [m for m in model.modules() if recompute and isinstance(m, GradientCheckpointingLayer)]
    for layer in layers:
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
        layer.gradient_checkpointing = layer.training = True
    dropouts = [m for n, m in model.named_modules() if "lora_dropout" in n and isinstance(m, nn.Dropout) and m.p > 0]
    for dropout in dropouts:
        dropout.training = True
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())) if dropouts else nullcontext():
            if dropouts:
                torch.manual_seed(seed)
            yield
    finally:
        model.eval()
        for layer in layers:
            layer.gradient_checkpointing = False
