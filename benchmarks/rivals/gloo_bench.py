#!/usr/bin/env python3
"""Times Gloo through PyTorch (torch.distributed), by the method of method.h. The loop is the same C
code as for all other libraries; it is in the shared library that the variable BENCH_METHOD names.
Only the operation is a callback into Python.

BENCH_RANK and BENCH_SIZE give rank and size. BENCH_STORE names a file that does not exist yet."""

import ctypes
import os
import sys
import traceback

import torch
import torch.distributed as dist

ALLREDUCE, BROADCAST, ALLGATHER, REDUCE_SCATTER, ALLTOALL = range(5)
TEXT = 128

Open = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_int),
    ctypes.POINTER(ctypes.c_int),
    ctypes.c_void_p,
)
Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
Prepare = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)
Run = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
)
Close = ctypes.CFUNCTYPE(None)


class Library(ctypes.Structure):
    _fields_ = [
        ("open", Open),
        ("allocate", Allocate),
        ("prepare", Prepare),
        ("run", Run),
        ("close", Close),
    ]


def reported(function):
    """Turns an exception into a message and a failure, because no exception may pass through C
    code."""

    def call(*arguments):
        try:
            function(*arguments)
            return 0
        except BaseException:
            traceback.print_exc()
            return 1

    return call


rank, size = int(os.environ["BENCH_RANK"]), int(os.environ["BENCH_SIZE"])
sent = received = None  # the tensors of the current size
parts = []  # the received blocks, one for each rank


@reported
def open_gloo(_options, rank_out, size_out, version):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="file://" + os.environ["BENCH_STORE"], rank=rank, world_size=size
    )
    rank_out[0], size_out[0] = rank, size
    text = f"Gloo in PyTorch {torch.__version__}".encode()[: TEXT - 1]
    ctypes.memmove(version, text + b"\0", len(text) + 1)


def tensor_at(kind, address, count):
    dtype = (torch.float32, torch.float16, torch.bfloat16)[kind]
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype)


@reported
def prepare(op, kind, send, recv, count):
    global sent, received, parts
    sent = tensor_at(kind, send, count // size if op == ALLGATHER else count)
    received = tensor_at(kind, recv, count // size if op == REDUCE_SCATTER else count)
    parts = list(received.chunk(size)) if op == ALLGATHER else []


@reported
def run(op, _kind, _send, _recv, _count, root):
    if op == ALLREDUCE:
        dist.all_reduce(sent)
    elif op == BROADCAST:
        dist.broadcast(sent, root)
    elif op == ALLGATHER:
        dist.all_gather(parts, sent)
    elif op == REDUCE_SCATTER:
        dist.reduce_scatter_tensor(received, sent)
    else:
        dist.all_to_all_single(received, sent)


def main():
    method = ctypes.CDLL(os.environ["BENCH_METHOD"])
    library = Library(
        Open(open_gloo),
        Allocate(),
        Prepare(prepare),
        Run(run),
        Close(lambda: dist.destroy_process_group()),
    )
    words = [word.encode() for word in sys.argv]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    return method.bench_main(len(words), argv, ctypes.byref(library))


if __name__ == "__main__":
    sys.exit(main())
