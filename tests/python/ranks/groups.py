"""hccl.manage.api on four ranks."""

import os

import hccl
import numpy as np
import pytest
from hccl.manage import api

ODD, LATE = "odd ranks", "late"

# Groups that are requested before the world exists are made when it does.
if int(os.environ["OMPI_COMM_WORLD_RANK"]) != 2:
    api.create_group(LATE, 3, [3, 0, 1])
with pytest.raises(ValueError, match=r"get rank size error\. ret\[\d+\]"):
    api.get_rank_size()

comm = hccl.init()
me = comm.rank
assert comm.size == 4
assert api.get_rank_size() == api.get_rank_size(hccl.WORLD) == 4
assert api.get_rank_id() == me
assert api.get_local_rank_size() == 4
assert api.get_local_rank_id() == me
assert api.get_world_rank_from_group_rank(hccl.WORLD, 2) == 2
assert api.get_group_rank_from_world_rank(3, hccl.WORLD) == 3

# The ids are sorted, so the group rank is the index in [0, 1, 3].
if me in (0, 1, 3):
    assert api.get_rank_size(LATE) == 3
    assert api.get_rank_id(LATE) == {0: 0, 1: 1, 3: 2}[me]
    assert api.get_world_rank_from_group_rank(LATE, 2) == 3
    assert api.get_group_rank_from_world_rank(3, LATE) == 2
    with pytest.raises(ValueError):
        api.get_group_rank_from_world_rank(2, LATE)  # rank 2 is not a member
    with pytest.raises(ValueError):
        api.get_world_rank_from_group_rank(LATE, 3)  # out of range
else:
    with pytest.raises(ValueError):
        api.get_rank_id(LATE)

if me % 2 == 1:
    api.create_group(ODD, 2, [3, 1])
    group = hccl.Communicator.from_group(ODD)
    assert (
        (group.size, group.rank) == (2, me // 2) == (api.get_rank_size(ODD), api.get_rank_id(ODD))
    )
    assert api.get_local_rank_size(ODD) == 2
    assert api.get_local_rank_id(ODD) == me // 2
    array = np.array([me], np.int64)
    group.allreduce(array)
    assert array[0] == 4
    with pytest.raises(ValueError, match="create group error:odd ranks"):
        api.create_group(ODD, 2, [1, 3])  # the group exists already
    group.destroy()  # only destroys this object: the group stays
    assert api.get_rank_size(ODD) == 2
    api.destroy_group(ODD)
    with pytest.raises(ValueError, match="destroy group error :odd ranks"):
        api.destroy_group(ODD)
else:
    with pytest.raises(ValueError, match="create group error:odd ranks"):
        api.create_group(ODD, 2, [1, 3])  # the caller is not a member

for ranks in [[me, me], [me, 4]]:
    with pytest.raises(ValueError, match="create group error:wrong"):
        api.create_group("wrong", len(ranks), ranks)
with pytest.raises(ValueError):
    api.create_group(hccl.WORLD, 4, [0, 1, 2, 3])
with pytest.raises(ValueError):
    api.destroy_group(hccl.WORLD)
with pytest.raises(ValueError):
    api.create_group("é" * 100, 1, [me])  # 100 characters, but 200 bytes

with pytest.raises(hccl.HcclError):
    hccl.init()  # once only
comm.destroy()
comm.destroy()
with pytest.raises(hccl.HcclError, match="was destroyed"):
    comm.barrier()
with pytest.raises(ValueError):
    api.get_rank_size()
print("all right")
