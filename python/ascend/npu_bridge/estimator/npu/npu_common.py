"""NPUBasics: the rank of this process, and the number of ranks."""

from __future__ import annotations

from typing import Any

from npu_bridge import _ranks


class NPUBasics:
    def __init__(self, file_name: Any = None) -> None:
        pass

    def size(self) -> int:
        return _ranks.size()

    def rank(self) -> int:
        return _ranks.rank()
