"""python -m hccl.torch [--as-gloo] script.py [arguments], or [--as-gloo] -m module [arguments]: runs
a script that was written for another backend.

Without --as-gloo the script can import torch_npu and apex, and "npu" means the CPU. With it, "gloo"
means hccl, as HCCL_AS_GLOO=1 does."""

import os
import pathlib
import runpy
import sys

from hccl.torch import as_gloo, as_npu


def main() -> None:
    ours = as_gloo if sys.argv[1:2] == ["--as-gloo"] else as_npu
    if ours is as_gloo:
        del sys.argv[1]
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    ours()
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
