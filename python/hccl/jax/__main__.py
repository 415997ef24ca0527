"""python -m hccl.jax program.py [arguments], or -m module [arguments]: runs a program of JAX whose
collectives on CPUs hccl runs. Each rank that a launcher starts is a process of JAX; the program
needs no jax.distributed.initialize."""

import os
import sys
import time
from typing import NoReturn

from hccl import _script
from hccl.errors import HcclError
from hccl.jax import abort, initialize


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    try:
        rank, size = initialize()
    except HcclError as error:
        sys.exit(f"hccl.jax: {error}")
    try:
        _script.run()
    except BaseException as error:
        if size == 1 or (isinstance(error, SystemExit) and not error.code):
            raise
        _end(rank, error)


def _end(rank: int, error: BaseException) -> NoReturn:
    """Ends the collectives of all ranks, and then this process at once. A normal end of the process
    would take minutes, because JAX waits for processes that are gone."""
    code = 1
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
    elif isinstance(error.code, int):
        code = error.code
    else:
        print(error.code, file=sys.stderr)
    abort(f"the program of rank {rank} ended with {type(error).__name__}: {error}"[:300])
    sys.stdout.flush()
    sys.stderr.flush()
    if rank == 0:  # without JAX's coordinator the other ranks end: let their errors appear first
        time.sleep(1)
    os._exit(code)


if __name__ == "__main__":
    main()
