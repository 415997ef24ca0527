"""DynamicRNN (an LSTM), DynamicGRUV2 and DynamicAUGRU: layers over inputs [time, batch, features].

A call returns the same tensors as the NPU's operators, each [time, batch, hidden_size]: outputs,
states and gates. After the end of a sequence, the state does not change and the outputs are 0."""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import tensorflow as tf

DYNAMIC_RNN_UNIDIRECTION = "UNIDIRECTIONAL"
DYNAMIC_RNN_BIDIRECTION = "BIDIRECTIONAL"
DYNAMIC_RNN_REDIRECTIONAL = "REDIRECTIONAL"


class _Layer:
    """A layer whose first call makes the variables."""

    def __init__(
        self,
        hidden_size: int,
        dtype: Any,
        direction: str = DYNAMIC_RNN_UNIDIRECTION,
        cell_depth: int = 1,
        keep_prob: float = 1.0,
        cell_clip: float = -1.0,
        num_proj: int = 0,
        time_major: bool = True,
        activation: str = "tanh",
        is_training: bool = True,
    ) -> None:
        if direction not in (DYNAMIC_RNN_UNIDIRECTION, DYNAMIC_RNN_BIDIRECTION):
            raise ValueError(
                f"Invalid direction: {direction}, expecting {DYNAMIC_RNN_UNIDIRECTION} or "
                f"{DYNAMIC_RNN_BIDIRECTION}"
            )
        for name, value, only in (
            ("cell_depth", cell_depth, 1),
            ("keep_prob", keep_prob, 1.0),
            ("num_proj", num_proj, 0),
            ("activation", activation, "tanh"),
            ("time_major", time_major, True),
        ):
            if value != only:
                raise ValueError(f"{type(self).__name__}: {name} may be {only!r} only")
        self.hidden_size, self.dtype, self.direction = hidden_size, tf.as_dtype(dtype), direction
        self.cell_clip, self.is_training = cell_clip, is_training
        self.cell_depth, self.keep_prob, self.num_proj = cell_depth, keep_prob, num_proj
        self.time_major, self.activation = time_major, activation
        self.variables: list[Any] = []

    trainable_variables = property(lambda self: self.variables)

    def _build(self, features: int) -> None:
        raise NotImplementedError

    def _variable(self, name: str, shape: Sequence[int], initializer: Any) -> Any:
        made = tf.compat.v1.get_variable(
            name, shape=shape, dtype=self.dtype, initializer=initializer
        )
        self.variables.append(made)
        return made

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        x = tf.cast(x, self.dtype)
        if not self.variables:
            features = tf.compat.dimension_value(x.shape[2])
            if features is None:
                raise ValueError("Expected input_shape[2] to be known, saw shape: input_size.")
            with tf.compat.v1.variable_scope(None, default_name=type(self).__name__.lower()):
                self._build(features)
        return self.call(x, *args, **kwargs)

    def call(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def _scan(
    step: Callable, elements: Any, state: tuple, others: int, seq_length: Any, reverse: bool = False
) -> list:
    """Calls step(state, element) for each time, and returns all results over time. step returns
    (output, the new state..., `others` more tensors). `state` has tensors [batch, hidden_size]."""
    time, like = tf.shape(elements[0])[0], tf.zeros_like(state[0])
    lasts = time if seq_length is None else seq_length
    steps = tf.range(time)

    def one(before: tuple, given: tuple) -> tuple:
        number, element = given[0], given[1:]
        old = before[1 : 1 + len(state)]
        output, *rest = step(old, element)
        if seq_length is None:
            return (output, *rest)
        inside = (number < lasts)[:, tf.newaxis]
        new = [tf.compat.v2.where(inside, n, o) for n, o in zip(rest[: len(state)], old)]
        return (tf.compat.v2.where(inside, output, tf.zeros_like(output)), *new, *rest[len(state) :])

    start = (like, *state, *[like] * others)
    return list(tf.scan(one, (steps, *elements), initializer=start, reverse=reverse))


class DynamicRNN(_Layer):
    """An LSTM with the gates i, j, f, o in the columns of w [features + hidden_size, 4 *
    hidden_size]. Returns y, h, c, i, j, f, o, tanh(c). With "BIDIRECTIONAL" each result has one
    more dimension, the first, of length two: forward, backward."""

    def __init__(
        self,
        hidden_size: int,
        dtype: Any,
        cell_type: str = "LSTM",
        direction: str = DYNAMIC_RNN_UNIDIRECTION,
        cell_depth: int = 1,
        use_peephole: bool = False,
        keep_prob: float = 1.0,
        cell_clip: float = -1.0,
        num_proj: int = 0,
        time_major: bool = True,
        activation: str = "tanh",
        forget_bias: float = 0.0,
        is_training: bool = True,
    ) -> None:
        super().__init__(
            *(hidden_size, dtype, direction, cell_depth, keep_prob, cell_clip, num_proj),
            *(time_major, activation, is_training),
        )
        if cell_type != "LSTM" or use_peephole:
            raise ValueError('DynamicRNN: cell_type may be "LSTM" only, use_peephole False only')
        self.cell_type, self.use_peephole, self.forget_bias = cell_type, use_peephole, forget_bias

    def _build(self, features: int) -> None:
        both = [2] if self.direction == DYNAMIC_RNN_BIDIRECTION else []
        size = self.hidden_size
        glorot = tf.compat.v1.glorot_uniform_initializer(seed=10)
        self._w = self._variable("dynamicrnn/w", [*both, features + size, 4 * size], glorot)
        self._b = self._variable(
            "dynamicrnn/b", [*both, 4 * size], tf.compat.v1.zeros_initializer()
        )

    def call(
        self,
        x: Any,
        seq_length: Any = None,
        init_h: Any = None,
        init_c: Any = None,
        weight: Any = None,
        bias: Any = None,
    ) -> list:
        """init_h and init_c: [1 (or 2, with both directions), batch, hidden_size]; zeros by
        default."""
        weight = self._w if weight is None else weight
        bias = self._b if bias is None else bias
        ways = 2 if self.direction == DYNAMIC_RNN_BIDIRECTION else 1
        zeros = tf.zeros([ways, tf.shape(x)[1], self.hidden_size], self.dtype)
        init_h = zeros if init_h is None else init_h
        init_c = zeros if init_c is None else init_c
        if ways == 1:
            return self._run(x, init_h[0], init_c[0], weight, bias, seq_length, False)
        directions = [
            self._run(x, init_h[i], init_c[i], weight[i], bias[i], seq_length, i == 1)
            for i in range(2)
        ]
        return [tf.stack(pair) for pair in zip(*directions)]

    def _run(self, x: Any, h: Any, c: Any, w: Any, b: Any, seq_length: Any, back: bool) -> list:
        def step(state: tuple, element: tuple) -> tuple:
            h, c = state
            i, j, f, o = tf.split(tf.matmul(tf.concat([element[0], h], 1), w) + b, 4, axis=1)
            i, f, o = tf.sigmoid(i), tf.sigmoid(f + self.forget_bias), tf.sigmoid(o)
            j = tf.tanh(j)
            c = f * c + i * j
            if self.cell_clip > 0:
                c = tf.clip_by_value(c, -self.cell_clip, self.cell_clip)
            tanh = tf.tanh(c)
            h = o * tanh
            return h, h, c, i, j, f, o, tanh

        return _scan(step, (x,), (h, c), 5, seq_length, back)


class DynamicGRUV2(_Layer):
    """A GRU with the gates in the order of gate_order ("zrh" or "rzh"; z is the share of the old
    state in the new state). Returns y, h, update, reset, new, hidden_new."""

    scope = "dynamicgruv2"

    def __init__(
        self,
        hidden_size: int,
        dtype: Any,
        direction: str = DYNAMIC_RNN_UNIDIRECTION,
        cell_depth: int = 1,
        keep_prob: float = 1.0,
        cell_clip: float = -1.0,
        num_proj: int = 0,
        time_major: bool = True,
        activation: str = "tanh",
        gate_order: str = "zrh",
        reset_after: bool = True,
        is_training: bool = True,
    ) -> None:
        super().__init__(
            *(hidden_size, dtype, direction, cell_depth, keep_prob, cell_clip, num_proj),
            *(time_major, activation, is_training),
        )
        name = type(self).__name__
        if direction != DYNAMIC_RNN_UNIDIRECTION:
            raise ValueError(f"{name}: direction may be {DYNAMIC_RNN_UNIDIRECTION} only")
        if gate_order not in ("zrh", "rzh"):
            raise ValueError(f'{name}: gate_order may be "zrh" or "rzh", not "{gate_order}"')
        if not reset_after:
            raise ValueError(f"{name}: reset_after may be True only")
        self.gate_order, self.reset_after = gate_order, reset_after

    def _build(self, features: int) -> None:
        size = self.hidden_size
        bound = 1 / math.sqrt(size)
        uniform = tf.compat.v1.random_uniform_initializer(-bound, bound)
        shapes = {
            "weight_input": [features, 3 * size],
            "weight_hidden": [size, 3 * size],
            "bias_input": [3 * size],
            "bias_hidden": [3 * size],
        }
        self._weights = [
            self._variable(f"{self.scope}/{name}", shape, uniform) for name, shape in shapes.items()
        ]

    def call(self, x: Any, seq_length: Any = None, init_h: Any = None) -> list:
        """init_h: [batch, hidden_size]; zeros by default."""
        return self._run((x,), seq_length, init_h, 4)

    def _gates(self, x: Any, h: Any) -> tuple:
        weight_input, weight_hidden, bias_input, bias_hidden = self._weights
        inputs = tf.split(tf.matmul(x, weight_input) + bias_input, 3, axis=1)
        hidden = tf.split(tf.matmul(h, weight_hidden) + bias_hidden, 3, axis=1)
        at = self.gate_order.index
        update = tf.sigmoid(inputs[at("z")] + hidden[at("z")])
        reset = tf.sigmoid(inputs[at("r")] + hidden[at("r")])
        hidden_new = hidden[at("h")]
        return update, reset, tf.tanh(inputs[at("h")] + reset * hidden_new), hidden_new

    def _step(self, state: tuple, element: tuple) -> tuple:
        (h,) = state
        update, reset, new, hidden_new = self._gates(element[0], h)
        h = update * h + (1 - update) * new
        return h, h, update, reset, new, hidden_new

    def _run(self, elements: tuple, seq_length: Any, init_h: Any, others: int) -> list:
        if init_h is None:
            init_h = tf.zeros([tf.shape(elements[0])[1], self.hidden_size], self.dtype)
        return _scan(self._step, elements, (init_h,), others, seq_length)


class DynamicAUGRU(DynamicGRUV2):
    """A GRU. (1 - attention) multiplies the update gate. Returns y, h, update, update_att, reset,
    new, hidden_new."""

    scope = "dynamicaugru"

    def call(  # type: ignore[override]
        self, x: Any, weight_att: Any, seq_length: Any = None, init_h: Any = None
    ) -> list:
        """weight_att: [time, batch]."""
        return self._run((x, tf.cast(weight_att, self.dtype)), seq_length, init_h, 5)

    def _step(self, state: tuple, element: tuple) -> tuple:
        (h,) = state
        update, reset, new, hidden_new = self._gates(element[0], h)
        attended = (1 - element[1][:, tf.newaxis]) * update
        h = attended * h + (1 - attended) * new
        return h, h, update, attended, reset, new, hidden_new
