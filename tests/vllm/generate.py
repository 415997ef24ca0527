"""Generates tokens with vLLM from a Llama whose weights are made up, and prints them and the time as JSON:
generate.py small|llama-1b --tensor-parallel-size N [--tokens T] [--prompts P]. VLLM_PLUGINS=hccl for hccl.

The weights of the small one are random enough that each token depends on all layers. Those of llama-1b are vLLM's
dummies, which load at once.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

LLAMA = {
    **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"},
    **{"max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0},
    **{"initializer_range": 0.1, "tie_word_embeddings": False, "torch_dtype": "bfloat16"},
    **{"bos_token_id": 1, "eos_token_id": 2},
}
SIZES = {
    "small": {
        **{"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2},
        **{"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1024},
    },
    "llama-1b": {
        **{"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16},
        **{"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000},
    },
}


def make_weights(folder: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    model.to(torch.bfloat16).save_pretrained(folder)


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("size", choices=SIZES)
    p.add_argument("--tensor-parallel-size", type=int, default=2)
    p.add_argument("--prompts", type=int, default=4)
    p.add_argument("--tokens", type=int, default=16)
    a = p.parse_args()
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    # vLLM refuses more ranks than the host has NUMA nodes unless each rank's cores are named.
    cores = sorted(os.sched_getaffinity(0))
    ranks = range(a.tensor_parallel_size)
    bind = "|".join(str(cores[rank % len(cores)]) for rank in ranks)
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", bind)
    from vllm import LLM, SamplingParams

    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.json"
        config.write_text(json.dumps(LLAMA | SIZES[a.size]))
        if a.size == "small":
            make_weights(folder)
        llm = LLM(
            model=folder,
            load_format="auto" if a.size == "small" else "dummy",
            skip_tokenizer_init=True,
            dtype="bfloat16",
            tensor_parallel_size=a.tensor_parallel_size,
            max_model_len=256,
            enforce_eager=True,
            seed=7,
        )
        vocabulary = SIZES[a.size]["vocab_size"]
        prompts = [
            {"prompt_token_ids": [(17 * i + 5 * j + 3) % vocabulary for j in range(12 + i)]}
            for i in range(a.prompts)
        ]
        how = SamplingParams(temperature=0, max_tokens=a.tokens, ignore_eos=True, detokenize=False)
        llm.generate(prompts, how, use_tqdm=False)  # warm
        begin = time.perf_counter()
        outputs = llm.generate(prompts, how, use_tqdm=False)
        seconds = time.perf_counter() - begin
    tokens = [list(each.outputs[0].token_ids) for each in outputs]
    print("said:", json.dumps({"tokens": tokens, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
