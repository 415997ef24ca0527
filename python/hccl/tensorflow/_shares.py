"""Divides variables over the ranks. Each rank updates its share and sends it to all ranks."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

from hccl.tensorflow import _names, _ops


def owners(variables: Sequence[Any], ranks: int) -> list[int]:
    """Returns the owner of each variable. Assigns the variables from the largest to the smallest,
    each to the rank with the fewest elements so far. ValueError: fewer variables than ranks."""
    if len(variables) < ranks:
        raise ValueError(f"{len(variables)} variables cannot be divided over {ranks} ranks")
    sizes = [tf.TensorShape(variable.shape).num_elements() for variable in variables]
    found, load = [0] * len(variables), [0] * ranks
    for i in sorted(range(len(variables)), key=lambda i: (-sizes[i], i)):
        found[i] = load.index(min(load))
        load[found[i]] += sizes[i]
    return found


def give(variables: Sequence[Any], owned: Sequence[int]) -> list[Any]:
    """Sets every variable to its owner's value. Returns the assignments, which a graph must run."""
    assigned = []
    for owner in sorted(set(owned)):
        own = [variable for variable, of in zip(variables, owned) if of == owner]
        values = [_value(variable) for variable in own]
        for variable, value in zip(own, _ops.broadcast(values, owner, names=_names.of(own))):
            assigned.append(variable.assign(value))
    return assigned


def _value(variable: Any) -> tf.Tensor:
    """Returns the variable's value at the time when the graph runs. For Keras 3's variables, which
    graphs of TensorFlow 1 do not contain, the graph must read the value at each run."""
    read = getattr(variable, "read_value", None)
    return tf.identity(read() if read is not None else tf.convert_to_tensor(variable))
