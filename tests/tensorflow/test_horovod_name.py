"""Scripts that import horovod.tensorflow, in the form of Horovod's examples, without Horovod."""

import re

import numpy as np
import pytest
import tensorflow as tf
from conftest import HERE, on_ranks, said

RANKS = HERE / "ranks"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home folder with a data set where Keras looks for MNIST. An image's label is its brightest column."""
    folder = tmp_path_factory.mktemp("home")
    random = np.random.default_rng(0)
    y = random.integers(0, 10, 640).astype("uint8")
    x = random.integers(0, 60, (640, 28, 28)).astype("uint8")
    for image, kind in zip(x, y):
        image[:, 2 * kind + 3] = 255
    (folder / ".keras" / "datasets").mkdir(parents=True)
    parts = {"x_train": x[:512], "y_train": y[:512], "x_test": x[512:], "y_test": y[512:]}
    np.savez(folder / ".keras" / "datasets" / "mnist.npz", **parts)
    return folder


@pytest.mark.parametrize("program", ["custom_loop", "keras_fit", "session"])
def test_programs_of_horovods_form_learn_and_agree(program, home, tmp_path):
    command = ["-m", "hccl.horovod", RANKS / "horovod_name.py", program, tmp_path]
    outputs = on_ranks(2, *command, HOME=str(home))
    accuracies, digests = zip(*(re.split(" ", said(output)[-1]) for output in outputs))
    assert min(map(float, accuracies)) > 0.9, outputs
    assert len(set(digests)) == 1, digests  # the ranks have the same weights
    assert len(list(tmp_path.iterdir())) > 0  # rank 0's checkpoint


def test_arguments_in_horovods_order():
    assert all("all well" in output for output in on_ranks(2, "-m", "hccl.horovod", RANKS / "horovod_name.py", "order"))


@pytest.mark.parametrize("program", ["keras", "session"])
def test_ranks_agree_in_graphs_of_tensorflow_1(program):
    if program == "keras" and not tf.__version__.startswith("2.15"):
        pytest.skip("Keras 3 has no sessions")
    outputs = on_ranks(2, "-m", "hccl.horovod", RANKS / "graph.py", program)
    (first,), (second,) = map(said, outputs)
    assert first == second
