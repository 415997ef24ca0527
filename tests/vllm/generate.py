"""Generates tokens with vLLM from a Llama with made-up weights, and prints them and the time as JSON:
generate.py small|llama-1b --tensor-parallel-size N [--tokens T] [--prompts P]. VLLM_PLUGINS=hccl for hccl. With
torchrun's variables it is one rank, and each rank prints the tokens; without them it starts the ranks.

The small model's weights are so random that each token depends on all layers. Those of llama-1b are vLLM's dummies,
which load at once.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time
from typing import Any

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


def load(folder: str, size: str, ranks: int) -> Any:
    """Returns the engine; with torchrun's variables, the engine of one rank. Writes the model to the folder."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    # vLLM refuses more ranks than the host has NUMA nodes unless each rank's cores are named.
    cores = sorted(os.sched_getaffinity(0))
    bind = "|".join(str(cores[rank % len(cores)]) for rank in range(ranks))
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", bind)
    launched = {}
    if "RANK" in os.environ:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        launched["distributed_executor_backend"] = "external_launcher"
    from vllm import LLM

    (pathlib.Path(folder) / "config.json").write_text(json.dumps(LLAMA | SIZES[size]))
    if size == "small":
        make_weights(folder)
    return LLM(
        model=folder,
        load_format="auto" if size == "small" else "dummy",
        skip_tokenizer_init=True,
        dtype="bfloat16",
        tensor_parallel_size=ranks,
        max_model_len=256,
        enforce_eager=True,
        seed=7,
        **launched,
    )


def generate(llm: Any, size: str, prompts: int, tokens: int) -> tuple[list[list[int]], float]:
    """Returns the tokens of each prompt, and the seconds that they took."""
    from vllm import SamplingParams

    vocabulary = SIZES[size]["vocab_size"]
    texts = [
        {"prompt_token_ids": [(17 * i + 5 * j + 3) % vocabulary for j in range(12 + i)]}
        for i in range(prompts)
    ]
    how = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    begin = time.perf_counter()
    outputs = llm.generate(texts, how, use_tqdm=False)
    return [list(each.outputs[0].token_ids) for each in outputs], time.perf_counter() - begin


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("size", choices=SIZES)
    p.add_argument("--tensor-parallel-size", type=int, default=2)
    p.add_argument("--prompts", type=int, default=4)
    p.add_argument("--tokens", type=int, default=16)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        llm = load(folder, a.size, a.tensor_parallel_size)
        generate(llm, a.size, a.prompts, a.tokens)  # a first run to warm up
        tokens, seconds = generate(llm, a.size, a.prompts, a.tokens)
    # Python's exit would wait for the engine's process, which ends only on this request.
    llm.llm_engine.engine_core.shutdown()
    print("said:", json.dumps({"tokens": tokens, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
