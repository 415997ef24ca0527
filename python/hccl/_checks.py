"""Checks of arguments for hccl.manage and hccl.split. As in HCCL, every error of these modules is a
ValueError. Its text names the argument and its value."""

from __future__ import annotations

MAX_NAME = 127  # characters; the library counts bytes
MAX_NUMBER = (1 << 32) - 1


def check_group(group: object) -> None:
    if not isinstance(group, str):
        raise ValueError(f"group: expected a str, not {describe(group)}")
    if len(group) == 0:
        raise ValueError("group: is empty")
    if len(group) > MAX_NAME:
        raise ValueError(f"group: has {len(group)} characters, at most {MAX_NAME}: {group!r}")
    if "\0" in group or not _encodes(group):
        raise ValueError(f"group: {group!r} has a character that no name can have")


def _encodes(text: str) -> bool:
    try:
        text.encode()
        return True
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def check_list(argument: str, value: object) -> None:
    if not isinstance(value, list):
        raise ValueError(f"{argument}: expected a list, not {describe(value)}")


def check_number(argument: str, value: object) -> None:
    if not isinstance(value, int):
        raise ValueError(f"{argument}: expected an int, not {describe(value)}")
    if value < 0:
        raise ValueError(f"{argument}: is {value}, below 0")
    if value > MAX_NUMBER:
        raise ValueError(f"{argument}: is {value}, above {MAX_NUMBER}")


def describe(value: object) -> str:
    return f"{type(value).__name__} {value!r}"
