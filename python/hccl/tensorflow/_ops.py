"""The ops on TensorFlow's tensors, which hccl.tensorflow, npu_device and npu_bridge use.

In a tf.function, ops run one after another in the order of the program, which must be the same on
all ranks. In a graph of TensorFlow 1, ops have numbers. The graph optimizer "NpuOptimizer"
(src/chain.cc) chains the ops of a run by these numbers; _sessions enables it in sessions.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import hashlib
import itertools
import os
import threading
import weakref
from typing import Any, Callable, Iterator, Sequence

import hccl
import tensorflow as tf
from hccl.manage import api as _manage

from hccl import _build, _world
from hccl.tensorflow import _interrupts, _names
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import control_flow_util, handle_data_util
from tensorflow.python.ops.control_flow_v2_func_graphs import ControlFlowFuncGraph

FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


@functools.lru_cache(maxsize=None)
def library() -> Any:
    """Returns the compiled ops for the TensorFlow of this process, and builds them if they are
    missing."""
    import hccl._hccl  # noqa: F401  its libhccl.so is the one that the ops use
    from hccl.tensorflow.build import MODULE

    path = str(MODULE.build())
    loaded = tf.load_op_library(path)
    loaded.hccl_functions = functions = ctypes.CDLL(path)
    _build.remove_temporary(MODULE.folder)
    functions.hccl_tf_write_traces.restype = ctypes.c_char_p
    functions.hccl_tf_waits.restype = ctypes.c_uint64
    functions.hccl_tf_abort_waits.restype = None
    _interrupts.watch(functions.hccl_tf_waits, functions.hccl_tf_abort_waits)
    return loaded


_orders: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by graph: the name of its resource
_eager_order: list[Any] = []


_UNSAVEABLE = (
    "hccl: a function with collectives needs the other ranks, so no SavedModel can contain it. "
    "Keep it out of the object that is saved: make it a function that takes the object, or save an "
    "object that has only the functions to be served"
)


def _refuse_in_xla(graph: Any) -> None:
    """Raises ValueError if the graph is, or is inside, a function with jit_compile."""
    if graph is None or not control_flow_util.GraphOrParentsInXlaContext(graph):
        return
    while isinstance(graph, FuncGraph) and not control_flow_util.InXlaContext(graph.outer_graph):
        graph = graph.outer_graph
    raise ValueError(
        f'hccl: "{getattr(graph, "name", "the graph")}" is compiled by XLA, which does not support '
        "collectives of hccl: omit jit_compile=True of its tf.function or of Model.compile, or call "
        "the collective outside"
    )


def _order() -> Any:
    """Returns the resource that all collectives use. By this resource, TensorFlow keeps collectives
    in order in functions, and knows which conditionals, loops and functions contain collectives.
    Its value has no meaning."""
    _world.refuse_in_fork()
    inner = tf.compat.v1.get_default_graph() if not tf.executing_eagerly() else None
    _refuse_in_xla(inner)
    with tf.init_scope():
        if tf.executing_eagerly():
            function = inner
            while isinstance(function, FuncGraph):  # also those around a conditional or a loop
                function.mark_as_unsaveable(_UNSAVEABLE)
                function = function.outer_graph
            if not _eager_order:
                _eager_order.append(_made_variable())
            return _captured(_eager_order[0], inner)
        graph = tf.compat.v1.get_default_graph()
        if graph not in _orders:
            with tf.device(None):
                _orders[graph] = _made_order().name
        return _captured(graph.get_tensor_by_name(_orders[graph]), inner)


def _captured(order: Any, inner: Any) -> Any:
    """Returns the resource for ops in the graph `inner`. Each conditional and loop gets it from the
    graph around it, and so does the gradient of a function in a conditional or loop. The gradient
    of a conditional or loop would not find a resource that comes from farther outside."""
    parts = []
    while isinstance(inner, FuncGraph):
        parts.append(inner)
        own = isinstance(inner, ControlFlowFuncGraph)
        # The gradient of a function has the function as its outer graph.
        if inner.name.startswith("__backward_"):
            own = _is_in_control_flow(inner.outer_graph)
        inner = inner.outer_graph if own else None
    for part in reversed(parts):
        order = part.capture(order)
    return order


def _is_in_control_flow(graph: Any) -> bool:
    while isinstance(graph, FuncGraph):
        if isinstance(graph, ControlFlowFuncGraph):
            return True
        graph = graph.outer_graph
    return False


def _made_order() -> Any:
    return tf.raw_ops.VarHandleOp(dtype=tf.int32, shape=[], shared_name="hccl_order")


def _made_variable() -> Any:
    """Returns the resource for eager code and functions. It is a variable, because the second
    gradient of a loop asks for the type and shape of each resource in the loop."""
    order = _made_order()
    data = handle_data_util.create_handle_data(tf.TensorShape([]), tf.int32)
    handle_data_util.set_handle_data(order, data)
    tf.raw_ops.AssignVariableOp(resource=order, value=0)
    return order


_numbers = itertools.count(1)
# For each graph: the number of calls so far, by group. The kernels compare the calls' numbers if no
# optimizer chained them.
_counts: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _program() -> Any:
    """Returns the current graph, or the one around it if it is a branch or a part of a loop."""
    graph = tf.compat.v1.get_default_graph()
    while isinstance(graph, ControlFlowFuncGraph):
        graph = graph.outer_graph
    return graph


_sequence = threading.local()  # .last: the last op of the list that this thread reduces


@contextlib.contextmanager
def in_sequence() -> Iterator[None]:
    """In a graph, each op made in this context waits for the previous op. So the ops of a list have
    an order where no optimizer chains them, too. A nested context continues the outer
    context."""
    if hasattr(_sequence, "last"):
        yield
        return
    _sequence.last = []
    try:
        yield
    finally:
        del _sequence.last


def _called(name: str, **inputs: Any) -> Any:
    """Calls the op hccl_<name>. In a graph, numbers it in the order of the program."""
    call = functools.partial(getattr(library(), f"hccl_{name}"), order=_order(), **inputs)
    if tf.executing_eagerly():
        return call()
    graph, last = tf.compat.v1.get_default_graph(), getattr(_sequence, "last", ())
    with tf.control_dependencies([op for op in last if op.graph is graph]):
        result = call()
    one = result[0] if isinstance(result, (list, tuple)) else result
    op = one if isinstance(one, tf.Operation) else one.op
    op._set_attr("_hccl_order", tf.compat.v1.AttrValue(i=next(_numbers)))
    if _names.COMPARED and not graph._add_control_dependencies:
        counts, group = _counts.setdefault(_program(), collections.Counter()), op.get_attr("group")
        counts[group] += 1
        op._set_attr("_hccl_call", tf.compat.v1.AttrValue(i=counts[group]))
    if hasattr(_sequence, "last"):
        _sequence.last = [op]
    return result


def by_type(values: Sequence[Any], reduce: Callable[[list[int]], Sequence[Any]]) -> list[Any]:
    """Reduces a list with one op for each type. `reduce` gets the indices of the values of one
    type, and returns their results."""
    results: list[Any] = [None] * len(values)
    with in_sequence():
        for dtype in dict.fromkeys(value.dtype for value in values):
            own = [i for i, value in enumerate(values) if value.dtype == dtype]
            for i, result in zip(own, reduce(own)):
                results[i] = result
    return results


def all_reduce(
    tensor: Any, reduction: str = "sum", group: str = hccl.WORLD, divisor: int = 1,
    names: Sequence[str] = (),
) -> tf.Tensor:
    """divisor divides the result, and is only for sums of floats. names: the tensor's name."""
    return _called(
        "all_reduce", tensor=tensor, reduction=reduction, divisor=divisor, group=group,
        **_names.attributes(names),
    )


def grouped_all_reduce(
    tensors: Sequence[Any], reduction: str = "sum", group: str = hccl.WORLD,
    divisor: int = 1, names: Sequence[str] = (),
) -> list[tf.Tensor]:
    """Reduces tensors of any types at once, with one op for each type. names: for errors."""
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    names = names or [str(i) for i in range(len(tensors))]

    def reduce(own: list[int]) -> Any:
        floats = tensors[own[0]].dtype in FLOATS
        return _called(
            "grouped_all_reduce", tensors=[tensors[i] for i in own], reduction=reduction,
            divisor=divisor if floats else 1, group=group,
            **_names.attributes([names[i] for i in own]),
        )

    return by_type(tensors, reduce)


def fused_all_reduce(
    gradients: Sequence[Any], average: bool, names: Sequence[str], hcom_parallel: bool = True
) -> list[tf.Tensor]:
    """Only in graphs: returns the sums, or the means, of gradients of one type over all ranks. The
    gradients are fused into segments; each segment is reduced when its gradients are ready. The
    first segment has the last gradients of the list, which backward computes first."""
    count = len(gradients)
    key = _list_key(gradients, average, names)
    handed_over = [
        library().hccl_fused_push(gradient=gradient, list_key=key, index=count - 1 - i)
        for i, gradient in enumerate(gradients)
    ]
    return _called(
        "fused_all_reduce", gradients=gradients, handed_over=handed_over, list_key=key,
        average=average, hcom_parallel=hcom_parallel, **_names.attributes(names),
    )


# For each graph: the number of lists with the same names, shapes and types so far.
_met: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _list_key(gradients: Sequence[Any], average: bool, names: Sequence[str]) -> str:
    """Returns a key for the list. The key stays the same if the list's function is traced again,
    because retracing must not make new communicators. Two lists in one graph have different
    keys."""
    signature = repr((average, [(n, g.shape, g.dtype) for n, g in zip(names, gradients)]))
    digest = hashlib.sha256(signature.encode()).hexdigest()[:16]
    counts = _met.setdefault(_program(), collections.Counter())
    counts[digest] += 1
    return f"{digest}.{counts[digest]}"


def forget_lists() -> None:
    """Ends the fused lists. Called before the world is left."""
    if library.cache_info().currsize:
        library().hccl_functions.hccl_tf_forget_lists()


def write_traces(prefix: str) -> None:
    text = library().hccl_functions.hccl_tf_write_traces(os.fsencode(prefix)) if library.cache_info().currsize else None
    if text is not None:
        raise OSError(text.decode())


def broadcast(
    tensors: Sequence[Any], root: int, group: str = hccl.WORLD, names: Sequence[str] = ()
) -> list[tf.Tensor]:
    """names: the names of the tensors; not needed if the tensors are variables."""
    named = _names.attributes(names or _names.of(tensors))
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    if not tensors:
        return []
    return _called("broadcast", tensors=tensors, root_rank=root, group=group, **named)


def reduce(
    tensor: Any, reduction: str, root: int, group: str = hccl.WORLD, names: Sequence[str] = ()
) -> tf.Tensor:
    """Returns the reduced tensor on the root, and the rank's own tensor on other ranks."""
    return _called(
        "reduce", tensor=tensor, reduction=reduction, root_rank=root, group=group,
        **_names.attributes(names),
    )


def all_gather(
    tensor: Any, ranks: int, group: str = hccl.WORLD, names: Sequence[str] = ()
) -> tf.Tensor:
    """Concatenates along the first dimension. Its length must be equal on all ranks."""
    named = _names.attributes(names)
    return _called("all_gather", tensor=tensor, rank_size=ranks, group=group, **named)


def reduce_scatter(
    tensor: Any, reduction: str, ranks: int, group: str = hccl.WORLD, names: Sequence[str] = ()
) -> tf.Tensor:
    """Returns this rank's part of the reduced tensor, along the first dimension."""
    return _called(
        "reduce_scatter", tensor=tensor, reduction=reduction, rank_size=ranks, group=group,
        **_names.attributes(names),
    )


def all_to_all_v(
    data: Any, send_counts: Any, send_displacements: Any, recv_counts: Any,
    recv_displacements: Any, group: str = hccl.WORLD,
) -> tf.Tensor:
    """For 1-D tensors. Counts and displacements are int64, in elements, one for each rank."""
    return _called(
        "all_to_all_v", send_data=data, send_counts=send_counts,
        send_displacements=send_displacements, recv_counts=recv_counts,
        recv_displacements=recv_displacements, group=group,
    )


def all_to_all_v_c(
    data: Any, matrix: Any, rank: int, group: str = hccl.WORLD, names: Sequence[str] = ()
) -> tf.Tensor:
    """matrix[i][j]: the number of elements from rank i to rank j; equal on all ranks."""
    return _called(
        "all_to_all_vc", send_data=data, send_count_matrix=matrix, rank=rank, group=group,
        **_names.attributes(names),
    )


def send(tensor: Any, tag: int, dest: int, group: str = hccl.WORLD) -> Any:
    return _called("send", tensor=tensor, sr_tag=tag, dest_rank=dest, group=group)


def receive(shape: Any, dtype: Any, tag: int, src: int, group: str = hccl.WORLD) -> tf.Tensor:
    return _called("receive", shape=shape, T=dtype, sr_tag=tag, src_rank=src, group=group)


@tf.RegisterGradient("HcclAllReduce")
def _all_reduce_gradient(op: Any, gradient: Any) -> Any:
    divisor, group = op.get_attr("divisor"), op.get_attr("group").decode()
    return all_reduce(gradient, "sum", group, divisor, _names.of_gradient(op)), None


@tf.RegisterGradient("HcclGroupedAllReduce")
def _grouped_all_reduce_gradient(op: Any, *gradients: Any) -> Any:
    divisor, group = op.get_attr("divisor"), op.get_attr("group").decode()
    return [*grouped_all_reduce(gradients, "sum", group, divisor, _names.of_gradient(op)), None]


@tf.RegisterGradient("HcclFusedAllReduce")
def _fused_all_reduce_gradient(op: Any, *gradients: Any) -> Any:
    divisor = _manage.get_rank_size() if op.get_attr("average") else 1
    reduced = grouped_all_reduce(gradients, "sum", hccl.WORLD, divisor, _names.of_gradient(op))
    return [*reduced, *[None] * (len(gradients) + 1)]


for _name in ("FusedPush", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllToAllV", "AllToAllVC"):
    tf.no_gradient(f"Hccl{_name}")
