"""The handwritten digits that the examples train with."""

import json
import pathlib
import sys

import numpy as np

DIGITS = pathlib.Path(__file__).resolve().parent.parent / "data" / "digits.csv"
TEST_IMAGES = 297


def load() -> tuple:
    """Returns ((images, labels) for training, (images, labels) for the test). Images are [N, 64],
    with values from -1 to 1, in the same order on all ranks."""
    table = np.loadtxt(DIGITS, delimiter=",", dtype="int64")
    table = table[np.random.RandomState(1).permutation(len(table))]
    images, labels = table[:, :64].astype("float32") / 8 - 1, table[:, 64]
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (
        images[:TEST_IMAGES],
        labels[:TEST_IMAGES],
    )


def profiling_options() -> str:
    """Returns Ascend's profiling options, for traces in the directory that the command line names;
    "" if it names none."""
    if len(sys.argv) < 2:
        return ""
    return json.dumps({"output": sys.argv[1], "training_trace": "on"})
