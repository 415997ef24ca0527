"""hccl.split.api in a world of one or more ranks: the segments that Fusion makes of the settings."""

import hccl
import numpy as np
import pytest
from hccl.split import api

comm = hccl.init()


def segments(gradients, **options):
    pairs = [(f"g{i}", np.zeros(size, np.float32)) for i, size in enumerate(gradients)]
    with hccl.Fusion(comm, pairs, **options) as fusion:
        return fusion.segments


assert segments([1] * 160) == [153, 159]  # HCCL's default
api.set_split_strategy_by_idx([20, 100, 159])
assert segments([1] * 160) == [20, 100, 159]
api.set_split_strategy_by_idx([0, True + 1, 159])  # replaces the first setting; a bool is an int
assert segments([1] * 160) == [0, 2, 159]
api.set_split_strategy_by_size([60, 20, 20.0])  # takes precedence over the setting by index
assert segments([1] * 160) == [95, 127, 159]
api.set_split_strategy_by_size([80, 20])
assert segments([1] * 160) == [127, 159]
assert segments([10, 20, 30, 40], split_by_size=[50, 50]) == [2, 3]
assert segments([10, 20, 30, 40], split_by_index=[1, 3]) == [1, 3]
api.set_split_strategy_by_size([14.2] + 6 * [14.3])
assert segments([1] * 160)[-1] == 159 and len(segments([1] * 160)) == 7

with pytest.raises(ValueError):
    api.set_split_strategy_by_idx([0], "é" * 100)
api.set_split_strategy_by_idx([1, 2], "another")
assert segments([1] * 3, group="another") == [1, 2]
with pytest.raises(hccl.HcclError, match="2"):
    segments([1] * 5, group="another")  # the list does not end with the last gradient

api.set_split_strategy_auto("automatic")  # HCCL's default, until something is measured
assert segments([1] * 160, group="automatic") == [153, 159]
api.set_split_strategy_auto("another")
assert segments([1] * 3, group="another") == [1, 2]  # the program's setting takes precedence
with pytest.raises(ValueError):
    api.set_split_strategy_auto("é" * 100)

comm.destroy()  # forgets the settings
with hccl.init() as comm:
    assert segments([1] * 160) == [153, 159]
print("all right")
