"""Gradient fusion: gradients are reduced in segments, while backward still runs."""

import os

from hccl import _hccl


class Fusion:
    """Reduces the gradients of one training iteration after the other.

        fusion = hccl.Fusion(comm, [("fc2.bias", array), ...])   # in the order of backward
        fusion.ready(i)     # as gradient i is complete
        fusion.wait()       # now every gradient is reduced, in place

    hcom_parallel=True reduces segments in the background; otherwise wait() does. split_by_size
    (percentages of the bytes) or split_by_index (the last gradient of each segment) cut the
    gradients; by default the strategy set for `group` in hccl.split.api, else 96.54 % and 3.46 %.
    The arrays are of one type, contiguous and writable; Fusion holds them until it is closed.
    Between ready(i) and wait() the memory of gradient i must be left alone. Close it before the
    communicator, or use it in a `with` statement.
    """

    def __init__(
        self,
        comm,
        gradients,
        hcom_parallel=False,
        split_by_size=None,
        split_by_index=None,
        op="sum",
        group=_hccl.WORLD,
    ):
        pairs = []
        for i, item in enumerate(gradients):
            if (
                not isinstance(item, (tuple, list))
                or len(item) != 2
                or not isinstance(item[0], str)
            ):
                raise TypeError(f"gradients[{i}]: expected a pair of a name and an array")
            pairs.append(tuple(item))
        sizes = None if split_by_size is None else [float(size) for size in split_by_size]
        indices = None if split_by_index is None else [int(index) for index in split_by_index]
        if indices is not None and not all(0 <= index < 1 << 32 for index in indices):
            raise ValueError(f"split_by_index: {indices} has an index that is not 0 to 4294967295")
        self._native = _hccl.Fusion(
            comm._native, pairs, bool(hcom_parallel), sizes, indices, op, group
        )
        self._count = len(pairs)

    def ready(self, index):
        """Gradient `index` is complete."""
        index = index.__index__()
        if not 0 <= index < self._count:
            raise ValueError(f"index: is {index}, there are {self._count} gradients")
        self._native.ready(index)

    def mark(self, point):
        """Notes the time of a point of the iteration: "fp_start", "bp_end" or "iteration_end"."""
        value = _POINTS.get(point)
        if value is None:
            raise ValueError(f"point: expected one of {', '.join(_POINTS)}, not {point!r}")
        self._native.mark(value)

    def wait(self):
        """Returns when all gradients are reduced. If some were never ready, HcclError names them,
        and the iteration can continue."""
        self._native.wait()

    @property
    def segments(self):
        """The index of the last gradient of each segment."""
        return self._native.segments

    def trace_text(self):
        """The time line of the last iteration: "<microseconds> <point>" on each line."""
        return self._native.trace_text()

    def write_trace(self, path):
        """Writes the last iterations: .json (opens in Perfetto), .csv, or Protobuf."""
        self._native.write_trace(os.fspath(path))

    def close(self):
        """Waits for segments under way and releases the arrays. A second call does nothing."""
        self._native.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


_POINTS = {
    "fp_start": _hccl.FusionPoint.fp_start,
    "bp_end": _hccl.FusionPoint.bp_end,
    "iteration_end": _hccl.FusionPoint.iteration_end,
}
