"""Starts hccl_perf and hccl-plan, the library's programs, which wheels contain."""

from __future__ import annotations

import os
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "bin"


def _become(name: str) -> None:
    program = FOLDER / name
    if not program.exists():
        sys.exit(f"{name}: this installation has no programs; wheels of scripts/wheels.sh and cmake --install have them")
    os.execv(program, [name, *sys.argv[1:]])


def perf() -> None:
    _become("hccl_perf")


def plan() -> None:
    _become("hccl-plan")
