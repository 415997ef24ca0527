"""Makes torch.compile(backend="npu") and torchair use torch's own compiler for CPUs."""

import functools
import os
import shutil
from typing import Any

import torch


class CompilerConfig:
    """Options that may be set to anything, also nested ones: config.debug.graph_dump.type."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        part = CompilerConfig()
        setattr(self, name, part)
        return part


def compiler() -> str:
    """Returns the name of torch's default compiler, or "eager" on a host without a C++ compiler,
    which the default compiler needs."""
    found = shutil.which(os.environ.get("CXX") or "g++") or shutil.which("clang++")
    return "inductor" if found else "eager"


def get_npu_backend(*, compiler_config: Any = None, **_: Any) -> str:
    return compiler()


def install() -> None:
    """Makes torch.compile accept the backend "npu"."""
    of_torch = torch.compile

    @functools.wraps(of_torch)
    def compile_(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("backend") == "npu":
            kwargs["backend"] = compiler()
        return of_torch(*args, **kwargs)

    torch.compile = compile_


def contents() -> dict:
    """Returns the names of each module of torchair."""
    config = {"CompilerConfig": CompilerConfig}
    return {
        "torchair": {**config, "get_npu_backend": get_npu_backend},
        "torchair.configs": {},
        "torchair.configs.compiler_config": config,
    }
