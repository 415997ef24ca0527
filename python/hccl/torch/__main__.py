"""python -m hccl.torch script.py [arguments], or -m module [arguments]: runs a script that was
written for Ascend's adapter.

The script can import torch_npu and apex, and "npu" means the CPU."""

import os
import pathlib
import runpy
import sys

from hccl.torch import as_npu


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    as_npu()
    if sys.argv[1] == "-m":
        del sys.argv[:2]
        sys.path[0] = os.getcwd()
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    sys.argv = sys.argv[1:]
    sys.path[0] = str(pathlib.Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
