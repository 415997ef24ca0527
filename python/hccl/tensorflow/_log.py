"""The log, in absl's form, as upstream."""

from absl import logging

_said: set[str] = set()


def once(text: str, level: int = logging.INFO) -> None:
    if text not in _said:
        _said.add(text)
        logging.log(level, text)


def without_effect(name: str) -> None:
    """Logs once that a name is accepted but has no effect on a CPU."""
    once(f"{name} is kept, and has no effect on a CPU")
