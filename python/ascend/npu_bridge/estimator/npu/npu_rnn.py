"""A recurrent network of one cell, for inputs with time as the first dimension."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def npu_dynamic_rnn(
    cell: Any,
    inputs: Any,
    initial_state: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple:
    """inputs: [time, batch, features]. Returns the outputs [time, batch, units] and the last
    state."""
    return tf.compat.v1.nn.dynamic_rnn(
        cell,
        tf.convert_to_tensor(inputs),
        sequence_length=sequence_length,
        initial_state=initial_state,
        dtype=dtype,
        time_major=True,
        scope=scope,
    )
