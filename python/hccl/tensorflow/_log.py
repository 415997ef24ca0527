"""The log, which uses absl like Ascend's packages. If HCCL_LOG is not set,
ASCEND_GLOBAL_LOG_LEVEL and ASCEND_SLOG_PRINT_TO_STDOUT control this log and the library's log."""

from __future__ import annotations

import logging as standard
import os
import sys
from typing import Any, Optional

from absl import logging

from hccl import _variables

_LEVELS = (standard.DEBUG, standard.INFO, standard.WARNING, standard.ERROR, standard.CRITICAL + 1)
_said: set[str] = set()


def _of_ascend() -> Optional[standard.Logger]:
    """Returns the logger that Ascend's variables describe, or None without these variables."""
    number = os.environ.get("ASCEND_GLOBAL_LOG_LEVEL", "")
    known = number in ("0", "1", "2", "3", "4")  # the library rejects others
    to_output = os.environ.get("ASCEND_SLOG_PRINT_TO_STDOUT") == "1"
    if _variables.is_set("HCCL_LOG") or not (known or to_output):
        return None
    logger = standard.getLogger("hccl")
    logger.setLevel(_LEVELS[int(number)] if known else standard.WARNING)
    if to_output:
        handler = standard.StreamHandler(sys.stdout)
        handler.setFormatter(
            standard.Formatter("hccl %(asctime)s.%(msecs)03d %(levelname).1s: %(message)s", "%H:%M:%S")
        )
        logger.addHandler(handler)
        logger.propagate = False
    return logger


_logger = _of_ascend()


def log(level: int, text: str, *values: Any) -> None:
    """level: a level of absl."""
    if _logger is None:
        logging.log(level, text, *values)
        return
    if not (_logger.handlers or standard.root.handlers):
        standard.basicConfig()  # as absl does
    _logger.log(logging.converter.absl_to_standard(level), text, *values)


def once(text: str, level: int = logging.INFO) -> None:
    if text not in _said:
        _said.add(text)
        log(level, "%s", text)


def without_effect(name: str) -> None:
    """Logs once that a name is accepted but has no effect on a CPU."""
    once(f"{name} is kept, and has no effect on a CPU")
