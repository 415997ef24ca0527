"""Ray's collective groups and Ray Train over the backend. numpy is the oracle."""

import hccl.ray
import numpy as np
import pytest
import ray
from conftest import TIMEOUT
from members import Member
from ray.util import collective
from ray.util.collective.types import ReduceOp

SIZE = 3
RANKS = range(SIZE)


def get(futures):
    return ray.get(futures, timeout=TIMEOUT)


def run(members, operation, arrays, *arguments, name, **options):
    """Returns the first argument of every rank after the operation."""
    return get(
        [
            member.run.remote(operation, array, *arguments, name=name, **options)
            for member, array in zip(members, arrays)
        ]
    )


@pytest.fixture(scope="module")
def actors():
    return [Member.remote() for _ in RANKS]


@pytest.fixture
def members(actors, group):
    get([actor.join.remote(SIZE, rank, group) for rank, actor in enumerate(actors)])
    yield actors
    assert get([actor.leave.remote(group) for actor in actors]) == [-1] * SIZE


def values(dtype, shape=(4, 5)):
    """Returns one array for each rank, of small numbers, so that sums and products are exact."""
    return [np.asarray(np.random.default_rng(rank).integers(1, 9, shape), dtype) for rank in RANKS]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "float16"])
@pytest.mark.parametrize("op", list(ReduceOp), ids=str)
def test_allreduce_and_reduce(members, group, op, dtype):
    reduction = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}
    arrays = values(dtype)
    expected = reduction[op.name].reduce(arrays, dtype=dtype)
    for result in run(members, "allreduce", arrays, name=group, op=op):
        np.testing.assert_array_equal(result, expected)
    results = run(members, "reduce", arrays, 1, name=group, op=op)
    for rank in RANKS:
        np.testing.assert_array_equal(results[rank], expected if rank == 1 else arrays[rank])


def test_sum_is_the_default(members, group):
    arrays = values("float32")
    for result in run(members, "allreduce", arrays, name=group):
        np.testing.assert_array_equal(result, sum(arrays))


@pytest.mark.parametrize("shape", [(), (7,), (4, 5)], ids=str)
def test_broadcast_allgather_reducescatter(members, group, shape):
    arrays = values("float64", shape)
    for result in run(members, "broadcast", arrays, 2, name=group):
        np.testing.assert_array_equal(result, arrays[2])

    outputs = [[np.zeros(shape) for _ in RANKS] for _ in RANKS]
    futures = [
        member.run.remote("allgather", outputs[rank], arrays[rank], name=group)
        for rank, member in enumerate(members)
    ]
    for result in get(futures):
        np.testing.assert_array_equal(result, arrays)

    inputs = [[np.asarray(arrays[rank] * (place + 1)) for place in RANKS] for rank in RANKS]
    futures = [
        member.run.remote("reducescatter", np.zeros(shape), inputs[rank], name=group)
        for rank, member in enumerate(members)
    ]
    for rank, result in enumerate(get(futures)):
        np.testing.assert_array_equal(result, sum(arrays) * (rank + 1))


def test_messages_go_from_rank_to_rank(members, group):
    array = np.arange(100_000, dtype=np.float32)
    received = members[2].run.remote("recv", np.zeros_like(array), 0, name=group)
    sent = members[0].run.remote("send", array, 2, name=group)
    np.testing.assert_array_equal(get([received, sent])[0], array)


def test_a_barrier_waits_for_all(members, group):
    early = [member.wait.remote(group) for member in members[:2]]
    assert ray.wait(early, num_returns=1, timeout=0.5)[0] == []
    get([*early, members[2].wait.remote(group)])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_of_pytorch(members, group, dtype):
    arrays = [[rank + 1.0, 2.0, 3.0 * rank] for rank in RANKS]
    futures = [m.tensors.remote(arrays[rank], dtype, SIZE, group) for rank, m in enumerate(members)]
    total = np.sum(arrays, axis=0)
    for rank, results in enumerate(get(futures)):
        expected = [total, arrays[1], *arrays, total * (rank + 1), *arrays]
        np.testing.assert_array_equal(results, expected)


def test_what_does_not_fit_is_refused_before_it_is_sent(members, group):
    with pytest.raises(ValueError, match=r"tensor_list\[1\]: has the shape \(4,\), not \(3,\)"):
        outputs = [np.zeros(3), np.zeros(4), np.zeros(3)]
        get(members[0].run.remote("allgather", outputs, np.zeros(3), name=group))
    with pytest.raises(ValueError, match="contiguous"):
        get(members[0].every_second.remote(group))
    with pytest.raises(ValueError, match="read-only"):
        get(members[0].read_only.remote(np.ones(2), group))
    for result in run(members, "allreduce", [np.ones(2)] * SIZE, name=group):
        np.testing.assert_array_equal(result, [SIZE, SIZE])


def test_a_group_that_the_driver_declares(actors, group):
    collective.create_collective_group(actors, SIZE, [2, 0, 1], "HCCL", group)
    arrays = values("float32")
    results = run(actors, "broadcast", arrays, 0, name=group)
    for result in results:
        np.testing.assert_array_equal(result, arrays[1])
    assert get([actor.place.remote(group) for actor in actors]) == [(2, 3), (0, 3), (1, 3)]
    get([actor.leave.remote(group) for actor in actors])
    get([actor.join.remote(SIZE, rank, group) for rank, actor in enumerate(actors)])  # the actors join again
    get([actor.leave.remote(group) for actor in actors])


def test_an_actor_that_dies_is_an_error_on_the_others(group):
    actors = [Member.remote() for _ in RANKS]
    get([actor.join.remote(SIZE, rank, group) for rank, actor in enumerate(actors)])
    waiting = [actors[rank].run.remote("allreduce", np.ones(9), name=group) for rank in (0, 2)]
    actors[1].die.remote()
    for future in waiting:
        with pytest.raises(hccl.HcclError, match="rank 1") as caught:
            get(future)
        assert caught.value.code == 21


def test_a_group_without_its_rank_0(group):
    member = Member.options(runtime_env={"env_vars": {"HCCL_CONNECT_TIMEOUT": "1"}}).remote()
    with pytest.raises(TimeoutError, match=f"group '{group}': rank 0 has not come within 1 "):
        get(member.join.remote(2, 1, group))


def test_registering_twice_and_beside_another():
    hccl.ray.register()
    assert collective.collective.is_backend_available("hccl")
    registry = hccl.ray.BackendRegistry()
    ours = registry._map.pop("HCCL")
    try:
        registry._map["HCCL"] = object
        with pytest.raises(ValueError, match="already registered"):
            hccl.ray.register()
    finally:
        registry._map["HCCL"] = ours


def test_ray_train(tmp_path):
    """Two workers end with the same weights as one process that uses both halves of the data."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    from training import expected, train

    trainer = TorchTrainer(
        train,
        train_loop_config={"out": str(tmp_path)},
        torch_config=TorchConfig(backend="hccl"),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path)),
    )
    trainer.fit()
    weights = [np.loadtxt(tmp_path / f"weights-{rank}") for rank in range(2)]
    np.testing.assert_array_equal(weights[0], weights[1])
    np.testing.assert_allclose(weights[0], expected(), rtol=1e-5)
