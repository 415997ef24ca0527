"""python -m npu_bridge SCRIPT, python -m npu_device SCRIPT: runs the script like Python, but
imports the module first. So scripts may use names that the import adds, even if they do not import
it."""

from __future__ import annotations

import os
import runpy
import sys


def run(package: str) -> None:
    if len(sys.argv) < 2:
        sys.exit(f"usage: python -m {package} SCRIPT [ARGUMENT...]")
    script = sys.argv[1]
    if not os.path.isfile(script):
        sys.exit(f"{package}: there is no file {script}")
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.realpath(script))  # for the script's own modules
    runpy.run_path(script, run_name="__main__")
