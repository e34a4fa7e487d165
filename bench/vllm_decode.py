"""vLLM with a rank-32 adapter and log-probs on the same work, in a process of its own (it takes the card's memory at start).

`python bench/vllm_decode.py 1.5b 32 128` prints `READY seconds` and a line `RATE batch tokens_per_second` for each batch size.
"""

import os
import sys
import tempfile
import time

os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="WARNING", VLLM_ENABLE_V1_MULTIPROCESSING="0")
# without the package flashinfer, which is not among vLLM's own wheels, its sampler cannot be imported
os.environ.update(VLLM_USE_FLASHINFER_SAMPLER="0", VLLM_ATTENTION_BACKEND="FLASH_ATTN")

PROMPT, NEW = 300, 160


def main(size: str, batches: list[int]) -> None:
    import torch
    from common import make_model
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    with tempfile.TemporaryDirectory() as folder:
        model = make_model(size, "cpu")
        model.save_pretrained(f"{folder}/adapter")
        config = model.get_base_model().config
        config.architectures = ["Qwen2ForCausalLM"]
        config.save_pretrained(f"{folder}/model")
        del model
        start = time.perf_counter()
        llm = LLM(
            model=f"{folder}/model",
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=1024,
            gpu_memory_utilization=0.5,
            enable_prefix_caching=False,
            max_num_seqs=512,
            enable_lora=True,
            max_lora_rank=32,
        )
        print("READY", time.perf_counter() - start, flush=True)
        adapter = LoRARequest("adapter", 1, f"{folder}/adapter")
        sampling = SamplingParams(temperature=1.0, max_tokens=NEW, ignore_eos=True, detokenize=False, logprobs=0)
        for count in batches:
            prompts = [{"prompt_token_ids": torch.randint(config.vocab_size, (PROMPT,)).tolist()} for _ in range(count)]
            times = []
            for _ in range(3):
                start = time.perf_counter()
                llm.generate(prompts, sampling, use_tqdm=False, lora_request=adapter)
                times.append(time.perf_counter() - start)
            print("RATE", count, count * NEW / sorted(times[1:])[0], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [int(b) for b in sys.argv[2:]])
