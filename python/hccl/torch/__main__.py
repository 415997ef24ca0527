"""python -m hccl.torch [--as-gloo] script.py [arguments], or [--as-gloo] -m module [arguments]: runs
a script that was written for another backend.

Without --as-gloo the script can import torch_npu and apex, and "npu" means the CPU. With it, "gloo"
means hccl, as HCCL_AS_GLOO=1 does."""

import sys

from hccl import _script
from hccl.torch import as_gloo, as_npu


def main() -> None:
    ours = as_gloo if sys.argv[1:2] == ["--as-gloo"] else as_npu
    if ours is as_gloo:
        del sys.argv[1]
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    ours()
    _script.run()


if __name__ == "__main__":
    main()
