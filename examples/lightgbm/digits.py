"""Data-parallel LightGBM over hccl: each rank has a part of the rows, and all ranks grow the same trees.

    mpirun -np 2 python examples/lightgbm/digits.py [MODEL]

LightGBM calls two functions of the program, by which its ranks communicate. Sizes are in bytes, and
block r belongs to rank r. `fold` is a function of LightGBM that reduces histograms or splits."""

import ctypes
import functools
import os
import pathlib
import sys
import traceback

import hccl
import lightgbm
import numpy as np

Sizes = ctypes.POINTER(ctypes.c_int32)
Fold = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int32)
BUFFER = [ctypes.c_void_p, ctypes.c_int32]
BLOCKS = [Sizes, Sizes, ctypes.c_int]
ReduceScatter = ctypes.CFUNCTYPE(None, *BUFFER, ctypes.c_int, *BLOCKS, *BUFFER, ctypes.POINTER(Fold))
AllGather = ctypes.CFUNCTYPE(None, *BUFFER, *BLOCKS, *BUFFER)


def memory(address, size):
    """Returns the bytes at an address, without a copy."""
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


def or_end(function):
    """Makes an error in the function end the process: LightGBM would not notice the error, and
    would continue with wrong data."""

    @functools.wraps(function)
    def call(*arguments):
        try:
            function(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    return call


def connect(comm):
    """Makes LightGBM communicate through `comm`. The program must keep the result while it
    trains."""

    @ReduceScatter
    @or_end
    def reduce_scatter(
        input, input_size, type_size, starts, lengths, blocks, output, output_size, fold
    ):
        mine = lengths[comm.rank]
        parts = comm.alltoallv(memory(input, input_size), lengths[:blocks], [mine] * comm.size)
        memory(output, mine)[:] = parts[:mine]
        for rank in range(1, comm.size):
            fold[0](parts[rank * mine :].ctypes.data, output, type_size, mine)

    @AllGather
    @or_end
    def allgather(input, input_size, starts, lengths, blocks, output, output_size):
        own = memory(input, lengths[comm.rank])
        whole = memory(output, output_size)
        comm.alltoallv(np.tile(own, comm.size), [own.size] * comm.size, lengths[:blocks], out=whole)

    functions = reduce_scatter, allgather
    code = lightgbm.basic._LIB.LGBM_NetworkInitWithFunctions(
        comm.size, comm.rank, *(ctypes.cast(each, ctypes.c_void_p) for each in functions)
    )
    assert code == 0, "LightGBM refuses the functions"
    return functions


def train(rank, size, **network):
    """Trains with this rank's rows. Returns the booster, and the pixels and labels of rows that no rank
    trains with."""
    digits = np.loadtxt(pathlib.Path(__file__).parents[1] / "data" / "digits.csv", delimiter=",")
    pixels, labels = digits[:, :-1], digits[:, -1]
    train, test = slice(rank, 1400, size), slice(1400, None)
    parameters = {
        "objective": "multiclass",
        "num_class": 10,
        "num_leaves": 15,
        "tree_learner": "data",
        "num_machines": size,
        "pre_partition": True,
        "num_threads": 1,
        "verbose": -1,
        **network,
    }
    rows = lightgbm.Dataset(pixels[train], labels[train])
    return lightgbm.train(parameters, rows, num_boost_round=20), pixels[test], labels[test]


if __name__ == "__main__":
    with hccl.init() as comm:
        functions = connect(comm) if comm.size > 1 else None
        booster, pixels, labels = train(comm.rank, comm.size)
        right = (booster.predict(pixels).argmax(axis=1) == labels).mean()
        if comm.rank == 0:
            print(f"ranks: {comm.size}; right: {right:.1%} of the unseen digits")
            if sys.argv[1:]:
                booster.save_model(sys.argv[1])
        if functions:
            lightgbm.basic._LIB.LGBM_NetworkFree()
