"""Runs the script or the module that the command line names, for `python -m hccl.torch` and others."""

import os
import pathlib
import runpy
import sys


def run() -> None:
    """Runs sys.argv[1:], `script.py [arguments]` or `-m module [arguments]`, as Python would."""
    if sys.argv[1] == "-m":
        if len(sys.argv) < 3:
            print("hccl: -m needs the name of a module", file=sys.stderr)
            sys.exit(2)
        del sys.argv[:2]
        sys.path[0] = os.getcwd()
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    sys.argv = sys.argv[1:]
    if not os.path.exists(sys.argv[0]):
        sys.exit(f"hccl: there is no file {sys.argv[0]}")
    sys.path[0] = str(pathlib.Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
