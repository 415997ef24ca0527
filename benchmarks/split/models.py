#!/usr/bin/env python3
"""models.py [--check]: writes models/*.json, the gradients of real networks, from their architectures.

Each file lists the gradients in the order in which backward completes them, with the times of
completion. Before a file is written, the parameter counts are compared with the published counts;
if they differ, nothing is written. --check compares with the existing files.

The multiply-adds give the time at which each gradient is ready. A layer's backward costs twice its
forward (gradient of the weights and of the inputs; the first layer has no input to differentiate).
Forward and backward together take the step time. `source` tells where the step time is published,
or that it is an estimate from the multiply-adds at the rate of the published ResNet-50 time. The
step time is that of an accelerator; only its ratio to the time of communication matters here."""

import argparse
import json
import math
import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
PUBLISHED = ("published: tensorflow.org guide \"Benchmarks\", training synthetic data on one NVIDIA Tesla P100 (fp32): "
             "{} images/s at batch 64")
ESTIMATED = "estimated: multiply-adds at the rate of the published ResNet-50 figure (219 images/s, Tesla P100, fp32)"


class Network:
    """A network: its layers in the order of forward, with the multiply-adds of one sample's
    forward."""

    def __init__(self):
        self.layers = []  # (multiply-adds, [(tensor, elements)])

    def layer(self, name, macs, **tensors):
        self.layers.append((macs, [(f"{name}.{tensor}", elements) for tensor, elements in tensors.items()]))

    def conv(self, name, inputs, outputs, kernel, size, groups=1, bias=False):
        """size: height and width of the output."""
        weight = inputs // groups * outputs * kernel * kernel
        self.layer(name, weight * size * size, weight=weight, **({"bias": outputs} if bias else {}))

    def norm(self, name, width, positions):
        self.layer(name, 2 * width * positions, weight=width, bias=width)

    def linear(self, name, inputs, outputs, positions=1):
        self.layer(name, inputs * outputs * positions, weight=inputs * outputs, bias=outputs)

    def work(self, macs):
        """Adds work without parameters."""
        self.layers.append((macs, []))

    def parameters(self):
        return sum(elements for _, tensors in self.layers for _, elements in tensors)

    def forward_macs(self):
        return sum(macs for macs, _ in self.layers)

    def step_macs(self):
        first = next(macs for macs, _ in self.layers)
        return 3 * self.forward_macs() - first

    def gradients(self, step_ms):
        ms_per_mac = step_ms / self.step_macs()
        done = self.forward_macs()
        for number in range(len(self.layers) - 1, -1, -1):
            macs, tensors = self.layers[number]
            done += macs if number == 0 else 2 * macs
            for name, elements in reversed(tensors):
                yield {"name": name, "elements": elements, "ready_ms": round(done * ms_per_mac, 3)}


def resnet50():
    net = Network()
    net.conv("conv1", 3, 64, 7, 112)
    net.norm("bn1", 64, 112 * 112)
    inputs, size = 64, 112
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
        before, size = (56, 56) if stage == 1 else (size, size // 2)
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            here = before if block == 0 else size
            net.conv(name + ".conv1", inputs, width, 1, here)
            net.norm(name + ".bn1", width, here * here)
            net.conv(name + ".conv2", width, width, 3, size)
            net.norm(name + ".bn2", width, size * size)
            net.conv(name + ".conv3", width, 4 * width, 1, size)
            net.norm(name + ".bn3", 4 * width, size * size)
            if block == 0:
                net.conv(name + ".downsample.0", inputs, 4 * width, 1, size)
                net.norm(name + ".downsample.1", 4 * width, size * size)
            inputs = 4 * width
    net.linear("fc", 2048, 1000)
    return net


def vgg16():
    net = Network()
    inputs, index = 3, 0
    for size, width, convs in ((224, 64, 2), (112, 128, 2), (56, 256, 3), (28, 512, 3), (14, 512, 3)):
        for _ in range(convs):
            net.conv(f"features.{index}", inputs, width, 3, size, bias=True)
            inputs, index = width, index + 2
        index += 1
    for index, (wide, out) in zip((0, 3, 6), ((512 * 7 * 7, 4096), (4096, 4096), (4096, 1000))):
        net.linear(f"classifier.{index}", wide, out)
    return net


def mobilenet_v1():
    net = Network()
    net.conv("conv1", 3, 32, 3, 112)
    net.norm("conv1_bn", 32, 112 * 112)
    inputs, size = 32, 112
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)] + 5 * [(512, 1)] + [(1024, 2), (1024, 1)]
    for block, (width, stride) in enumerate(plan, 1):
        size //= stride
        net.conv(f"conv_dw_{block}", inputs, inputs, 3, size, groups=inputs)
        net.norm(f"conv_dw_{block}_bn", inputs, size * size)
        net.conv(f"conv_pw_{block}", inputs, width, 1, size)
        net.norm(f"conv_pw_{block}_bn", width, size * size)
        inputs = width
    net.linear("predictions", 1024, 1000)
    return net


def attention(net, width, tokens):
    net.work(2 * tokens * tokens * width)  # the scores, and the weighted sum of the values


def bert_base(tokens=128):
    """Returns BERT with the heads of pre-training. The word embedding is also the weight of the
    last layer, so its gradient is complete only when backward reaches the embedding."""
    net = Network()
    width = 768
    net.layer("embeddings.word_embeddings", 0, weight=30522 * width)
    net.layer("embeddings.position_embeddings", 0, weight=512 * width)
    net.layer("embeddings.token_type_embeddings", 0, weight=2 * width)
    net.norm("embeddings.LayerNorm", width, tokens)
    for block in range(12):
        name = f"encoder.layer.{block}"
        for part in ("query", "key", "value"):
            net.linear(f"{name}.attention.self.{part}", width, width, tokens)
        attention(net, width, tokens)
        net.linear(name + ".attention.output.dense", width, width, tokens)
        net.norm(name + ".attention.output.LayerNorm", width, tokens)
        net.linear(name + ".intermediate.dense", width, 4 * width, tokens)
        net.linear(name + ".output.dense", 4 * width, width, tokens)
        net.norm(name + ".output.LayerNorm", width, tokens)
    net.linear("pooler.dense", width, width)
    net.linear("cls.predictions.transform.dense", width, width, tokens)
    net.norm("cls.predictions.transform.LayerNorm", width, tokens)
    net.layer("cls.predictions", 30522 * width * tokens, bias=30522)
    net.linear("cls.seq_relationship", width, 2)
    return net


def gpt2_small(tokens=1024):
    """Returns GPT-2. The token embedding is also the weight of the last layer."""
    net = Network()
    width = 768
    net.layer("wte", 0, weight=50257 * width)
    net.layer("wpe", 0, weight=1024 * width)
    for block in range(12):
        name = f"h.{block}"
        net.norm(name + ".ln_1", width, tokens)
        net.linear(name + ".attn.c_attn", width, 3 * width, tokens)
        attention(net, width, tokens)
        net.linear(name + ".attn.c_proj", width, width, tokens)
        net.norm(name + ".ln_2", width, tokens)
        net.linear(name + ".mlp.c_fc", width, 4 * width, tokens)
        net.linear(name + ".mlp.c_proj", 4 * width, width, tokens)
    net.norm("ln_f", width, tokens)
    net.work(50257 * width * tokens)
    return net


# File: (name, network, published number of parameters, number of tensors, samples in a step, published samples/s).
MODELS = {
    "resnet50": ("ResNet-50", resnet50, 25_557_032, 161, 64, 219),
    "bert_base": ("BERT-base", bert_base, 110_106_428, 206, 32, None),
    "vgg16": ("VGG-16", vgg16, 138_357_544, 32, 64, 154),
    "gpt2_small": ("GPT-2 small", gpt2_small, 124_439_808, 148, 4, None),
    "mobilenet_v1": ("MobileNetV1", mobilenet_v1, 4_231_976, 83, 64, None),
}


def describe(key):
    title, build, parameters, tensors, batch, rate = MODELS[key]
    net = build()
    if net.parameters() != parameters:
        sys.exit(f"models.py: {title} has {net.parameters():,} parameters, published are {parameters:,}")
    macs_per_ms = resnet50().step_macs() * 219 / 1000
    step_ms = batch * (1000 / rate if rate else net.step_macs() / macs_per_ms)
    gradients = list(net.gradients(step_ms))
    if len(gradients) != tensors:
        sys.exit(f"models.py: {title} has {len(gradients)} tensors, not {tensors}")
    assert math.isclose(gradients[-1]["ready_ms"], step_ms, abs_tol=0.01)
    head = {"model": title, "parameters": parameters, "batch": batch,
            "forward_ms": round(step_ms * net.forward_macs() / net.step_macs(), 3), "step_ms": round(step_ms, 3),
            "source": PUBLISHED.format(rate) if rate else ESTIMATED}
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    rows = ",\n".join("    " + json.dumps(gradient) for gradient in gradients)
    return "{\n" + "\n".join(lines) + '\n  "gradients": [\n' + rows + "\n  ]\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="only compare with the files that are there")
    check = parser.parse_args().check
    for key in MODELS:
        path = os.path.join(FOLDER, key + ".json")
        text = describe(key)
        if check:
            with open(path, encoding="utf-8") as file:
                if file.read() != text:
                    sys.exit(f"models.py: {path} is not what the architecture gives: run models.py")
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        head = json.loads(text)
        print(f"{head['model']:12} {head['parameters']:>12,} parameters  {len(head['gradients']):4} gradients  "
              f"forward {head['forward_ms']:7.1f} ms  step {head['step_ms']:7.1f} ms")


if __name__ == "__main__":
    main()
