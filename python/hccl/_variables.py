"""Environment variables that Python reads. The library reads the others."""

import os


def value(name: str, default: str = "") -> str:
    """Returns the value of a variable, or `default` if the variable is not set, is empty, or has
    HCCL's word for "not set"."""
    given = os.environ.get(name, "")
    return default if given in ("", "EmptyString") else given


def switch(name: str, default: bool) -> bool:
    """Returns whether a variable is 1. ValueError: the variable is neither 0 nor 1."""
    given = value(name, str(int(default)))
    if given not in ("0", "1"):
        raise ValueError(f'{name} is "{given}"; it may be 0 or 1')
    return given == "1"


def is_set(name: str) -> bool:
    return value(name) != ""
