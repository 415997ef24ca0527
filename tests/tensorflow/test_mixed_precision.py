"""Loss scaling on several ranks: either all ranks make a step, or none does."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import HERE, on_ranks, said


def test_an_overflow_on_one_rank_is_one_on_all(tmp_path):
    """In fit and in a loop, with the scaling inside the reducing optimizer or around it."""
    for size in (1, 2):
        on_ranks(size, HERE / "ranks" / "mixed.py", tmp_path / str(size))
    alone, first, second = (np.load(tmp_path / f"{name}.npz") for name in ("1-0", "2-0", "2-1"))
    assert len(alone.files) > 12 and np.isfinite(alone["hvd"]).all()
    for name in alone.files:
        assert np.array_equal(first[name], second[name]), name
        if name.endswith("scale"):
            assert np.array_equal(first[name], alone[name]), name
            assert first[name][0] == 2**14, name  # halved once
        else:
            np.testing.assert_allclose(first[name], alone[name], rtol=0, atol=5e-4, err_msg=name)
            assert name == "start" or np.abs(alone[name] - alone["start"]).max() > 0.1, name


@pytest.mark.skipif(not tf.__version__.startswith("2.15"), reason="Keras 3 has no sessions")
def test_an_overflow_on_one_rank_is_one_on_all_with_npu_bridge():
    (first,), (second,) = map(said, on_ranks(2, HERE / "ranks" / "bridge_mixed.py"))
    assert first == second
