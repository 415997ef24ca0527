"""Gradient fusion: gradients are reduced in segments, while backward still runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence, Union

from hccl import _hccl
from hccl._arguments import check_number, check_op, check_path
from hccl._checks import check_group

if TYPE_CHECKING:
    from hccl.communicator import Communicator


class Fusion:
    """Reduces the gradients in each iteration of a training run.

        fusion = hccl.Fusion(comm, [("fc2.bias", array), ...])   # in the order of backward
        fusion.ready(i)     # when gradient i is complete
        fusion.wait()       # now every gradient is reduced, in place

    With hcom_parallel=True segments are reduced in the background, otherwise in wait(). Either
    split_by_size (percentages of the bytes) or split_by_index (the last gradient of each segment)
    cuts the gradients into segments. If both are None, the strategy that hccl.split.api set for
    `group` applies; without a strategy, two segments have 96.54 % and 3.46 % of the bytes. The
    arrays must have one type and be contiguous and writable. Fusion keeps the arrays alive until
    close(). Do not touch the memory of gradient i between ready(i) and wait(). Close a Fusion
    before its communicator, or use a `with` statement.
    """

    def __init__(
        self,
        comm: Communicator,
        gradients: Iterable[tuple[str, Any]],
        hcom_parallel: bool = False,
        split_by_size: Optional[Sequence[float]] = None,
        split_by_index: Optional[Sequence[int]] = None,
        op: str = "sum",
        group: str = _hccl.WORLD,
    ) -> None:
        if not hasattr(comm, "_native"):
            raise TypeError(f"comm: expected a Communicator, not {type(comm).__name__}")
        check_group(group)
        pairs: list[tuple[str, Any]] = []
        for i, item in enumerate(gradients):
            if (
                not isinstance(item, (tuple, list))
                or len(item) != 2
                or not isinstance(item[0], str)
            ):
                raise TypeError(f"gradients[{i}]: expected a pair of a name and an array")
            pairs.append((item[0], item[1]))
        sizes = None if split_by_size is None else [float(size) for size in split_by_size]
        indices = None
        if split_by_index is not None:
            indices = [check_number("split_by_index", index) for index in split_by_index]
        self._native = _hccl.Fusion(
            comm._native, pairs, bool(hcom_parallel), sizes, indices, check_op(op), group
        )
        self._count = len(pairs)

    def rebind(self, comm: Communicator) -> None:
        """Continues in another communicator, such as the result of Communicator.shrink(). The
        iteration begins again: no gradient is ready, and the arrays must be filled anew. Destroy
        the old communicator after this call."""
        self._native.rebind(comm._native)

    def ready(self, index: int) -> None:
        """Marks gradient `index` as complete."""
        index = check_number("index", index)
        if index >= self._count:
            raise ValueError(f"index: is {index}, there are {self._count} gradients")
        self._native.ready(index)

    def mark(self, point: str) -> None:
        """Records the time of a point of the iteration: "fp_start", "bp_end" or "iteration_end"."""
        value = _POINTS.get(point)
        if value is None:
            raise ValueError(f"point: expected one of {', '.join(_POINTS)}, not {point!r}")
        self._native.mark(value)

    def wait(self) -> None:
        """Returns when all gradients are reduced. If some were not marked ready, HcclError names
        them, and the iteration can continue."""
        self._native.wait()

    @property
    def segments(self) -> list[int]:
        """The index of the last gradient of each segment."""
        return self._native.segments

    def trace_text(self) -> str:
        """The time line of the last iteration: `<microseconds> <point>` on each line."""
        return self._native.trace_text()

    def write_trace(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the trace of the last iterations: .json (opens in Perfetto), .csv, or Protobuf."""
        self._native.write_trace(check_path(path))

    def close(self) -> None:
        """Waits for segments under way and releases the arrays. A second call does nothing."""
        self._native.close()

    def __enter__(self) -> Fusion:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hccl.Fusion of {self._count} gradients>"


_POINTS = {
    "fp_start": _hccl.FusionPoint.fp_start,
    "bp_end": _hccl.FusionPoint.bp_end,
    "iteration_end": _hccl.FusionPoint.iteration_end,
}
