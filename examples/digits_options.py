"""The options of train_digits.py, the same as in options.cc."""

import argparse
import math
import os
import pathlib
import sys

MAX_SEGMENTS = 8


def usage_error(text):
    """Prints one line about a bad option or file on stderr. Returns the exit status, 2."""
    print(f"train_digits: {text}", file=sys.stderr)
    return 2


class Parser(argparse.ArgumentParser):
    def error(self, message):
        sys.exit(usage_error(message))


def require(condition, text):
    if not condition:
        raise ValueError(text)


def parse_list(option, text, number):
    """Returns the numbers of a list such as "80,20", or None if the option was not given."""
    if text is None:
        return None
    try:
        numbers = [number(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    require(numbers, f"{option}: expected numbers with commas between them, not '{text}'")
    require(len(numbers) <= MAX_SEGMENTS, f"{option}: at most {MAX_SEGMENTS} segments")
    return numbers


def check_output(option, path):
    """Checks a path before the training, because the file is written only after it."""
    if path is None:
        return
    require(path, f"{option}: the file name is empty")
    parent = pathlib.Path(path).parent
    require(parent.is_dir(), f"{option}: no directory {parent}")
    require(not os.path.isdir(path), f"{option}: {path} is a directory")


def check(options, tensors):
    """Raises ValueError for a bad option. `tensors` is the number of gradients."""
    require(options.epochs >= 1, "--epochs: at least 1")
    require(options.batch >= 1, "--batch: at least 1")
    require(math.isfinite(options.lr) and options.lr > 0, "--lr: a number above 0")
    require(0 <= options.seed < 1 << 63, "--seed: at least 0 and below 2^63")
    check_output("--weights", options.weights)
    check_output("--trace", options.trace)
    require(
        options.split_by_size is None or options.split_by_idx is None,
        "--split-by-size and --split-by-idx: give only one of them",
    )
    sizes = options.split_by_size = parse_list("--split-by-size", options.split_by_size, float)
    if sizes is not None:
        require(
            all(0 < size <= 100 for size in sizes),
            "--split-by-size: a percentage is above 0 and at most 100",
        )
        off = abs(sum(sizes) - 100)
        require(off <= 1e-3, "--split-by-size: the percentages must add up to 100")
    indices = options.split_by_idx = parse_list("--split-by-idx", options.split_by_idx, int)
    if indices is not None:
        require(
            indices[0] >= 0 and all(a < b for a, b in zip(indices, indices[1:])),
            "--split-by-idx: the indices must ascend",
        )
        require(
            indices[-1] == tensors - 1,
            f"--split-by-idx: the last index must be that of the last gradient, {tensors - 1}",
        )


def parse_options():
    parser = Parser(
        prog="train_digits",
        description="Trains a network on handwritten digits, on as many ranks as mpirun starts.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--epochs", type=int, default=12, help="how often to go through the training images")
    add("--batch", type=int, default=96, help="images in a batch, over all ranks together")
    add("--lr", type=float, default=0.05, help="learning rate; falls evenly to 0 at the end")
    add("--seed", type=int, default=1, help="seed of the first weights and of the order of the images")
    add("--hcom-parallel", action="store_true", help="reduce segments while backward goes on")
    add("--split-by-size", help="cut the gradients at these percentages of their bytes: 80,20")
    add("--split-by-idx", help="cut the gradients after these indices: 0,7")
    add("--scattered", action="store_true", help="allocate every gradient separately")
    data = pathlib.Path(__file__).resolve().parent / "data" / "digits.csv"
    add("--data", default=str(data), help="the digits: a CSV file")
    add("--weights", help="write the final weights: raw float32")
    add("--trace", help="write the trace of rank 0: .json, .csv or Protobuf")
    return parser.parse_args()
