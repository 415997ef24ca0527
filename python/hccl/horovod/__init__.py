"""Horovod's names on hccl, for scripts that import horovod.

    python -m hccl.horovod script.py        or        hccl.horovod.install()

makes horovod.torch, horovod.tensorflow, horovod.tensorflow.keras and horovod.keras importable in
this process and in processes that multiprocessing starts. The modules lie in a folder at the end of
Python's path, so an installed horovod takes precedence. Importing one of these modules imports its
framework.
"""

import importlib.util
import logging
import pathlib
import sys
from types import ModuleType
from typing import Any

__all__ = ["alias", "install", "run"]

_FOLDER = str(pathlib.Path(__file__).resolve().parent / "names")
_told = False


def install() -> None:
    """Makes horovod importable. If a horovod is already installed, only logs a warning, once. A
    second call does nothing."""
    global _told
    if _FOLDER in sys.path:
        return
    found = importlib.util.find_spec("horovod")
    if found is None or found.origin is None:  # a folder without __init__.py is no Horovod
        sys.path.append(_FOLDER)
    elif not _told:
        _told = True
        text = "hccl: the horovod that is installed is used: %s"
        logging.getLogger("hccl").warning(text, found.origin)


def alias(package: str, *names: str, **modules: ModuleType) -> None:
    """Makes submodules of `package` importable. Each of `names` becomes another name of the package
    itself; `modules` are modules of hccl by name."""
    parent = sys.modules[package]
    for name, module in {**dict.fromkeys(names, parent), **modules}.items():
        sys.modules[f"{package}.{name}"] = module
        if "." not in name:
            setattr(parent, name, module)


def run(*args: Any, **kwargs: Any) -> Any:
    """Raises NotImplementedError, because a launcher starts the processes."""
    raise NotImplementedError(
        "hccl: horovod.run() does not start processes: call the training function in the script, "
        "and start the script with mpirun -np 4 python -m hccl.horovod script.py, "
        "torchrun --nproc-per-node 4 -m hccl.horovod script.py, or srun"
    )
