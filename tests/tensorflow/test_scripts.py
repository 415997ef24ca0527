"""Programs with the imports and calls of public scripts for Ascend, on made-up data: each program learns, and ends with
the same weights and losses on one rank and on two, which divide its batches."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import HERE, on_ranks, said

PROGRAMS = ["dcgan", "dcn", "dien", "dualgan", "edvr", "swin", "tacotron", "yolo3"]
if tf.__version__.startswith("2.15"):  # only 2.15 has Estimator, slim and sessions of Keras
    PROGRAMS += ["albert_classifier", "bert_pretraining", "keras_bert", "ssd"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_scripts_for_ascend(program, tmp_path):
    told = {}
    for size in (1, 2):
        folder = tmp_path / str(size)
        folder.mkdir()
        outputs = on_ranks(size, HERE / "scripts" / f"{program}.py", folder, fresh=program == "dcn" and size == 2)
        told[size] = [np.array(said(output)[-1].split(), "float64") for output in outputs]
    first, last, *weights = told[1][0]
    assert last < 0.98 * first and np.abs(weights).max() > 0.01, told[1]
    for rank in told[2]:
        np.testing.assert_allclose(rank, told[1][0], rtol=1e-3, atol=1e-3)
