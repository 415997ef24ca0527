"""Makes a loop of training steps a While in the graph, so that one session.run makes all of them.

The ops that the step needs are copied into the While's body. Ops with a state (variables,
iterators, queues, tables) and fed tensors stay outside. An iteration begins when the previous
iteration is complete, so n iterations give the same bits as n runs. If a copy of the step would
behave differently, `made` returns None, and the session runs the op n times.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterable, Iterator, NamedTuple, Optional

import tensorflow as tf
from absl import logging
from hccl.tensorflow import _log
from tensorflow.core.framework import graph_pb2

# With more ops, a step takes longer than the overhead of a run, and copying takes seconds.
_MOST_OPS = 2000
# Ops that cannot be copied: v1's control flow, whose outputs may be dead tensors, and temporary
# variables, because these are found by the name of their op.
_KEPT = frozenset(
    "Enter RefEnter Exit RefExit NextIteration RefNextIteration Switch RefSwitch Merge RefMerge "
    "TemporaryVariable DestroyTemporaryVariable".split()
)


class Loop(NamedTuple):
    operation: Any  # makes the steps
    steps: Any  # the tensor to which the number of steps is fed


@contextlib.contextmanager
def logged(graph: Any) -> Iterator[None]:
    """Logs the ops that the block adds to the graph. Ascend's documents tell users to look for
    exactly this text."""
    before = len(graph.get_operations())
    yield
    for op in graph.get_operations()[before:]:
        _log.log(logging.INFO, "Insert op success, name:%s, type:%s.", op.name, op.type)


def made(graph: Any, step: Any, fed: Iterable[Any]) -> Optional[Loop]:
    """Returns the loop for the step's op, for runs in which the program feeds exactly the tensors
    `fed`, or None if a loop would behave differently."""
    if tf.compat.v1.control_flow_v2_enabled():
        return None
    body = _body(step, {tensor.name for tensor in fed})
    if body is None:
        return None
    definition, outside = body
    finished = graph.finalized
    graph._unsafe_unfinalize()
    try:
        with graph.as_default(), tf.control_dependencies(None), tf.device(None), logged(graph):
            return _loop(definition, outside, step.name)
    finally:
        if finished:
            graph.finalize()


def _loop(definition: Any, outside: dict[str, Any], step: str) -> Loop:
    v1 = tf.compat.v1

    def body(number: Any) -> Any:
        (done,) = tf.import_graph_def(definition, outside, [step], name="step")
        with tf.control_dependencies([done]):
            return number + 1

    with v1.name_scope("npu_loop/"):
        steps = v1.placeholder(tf.int32, [], name="steps")
        loop = v1.while_loop(
            lambda number: number < steps, body, [0], parallel_iterations=1, back_prop=False
        )
    return Loop(loop.op, steps)


def _body(step: Any, fed: set[str]) -> Optional[tuple[Any, dict[str, Any]]]:
    """Returns the ops that a run of the step needs, and the outside tensors that these ops use.
    Returns None if a copy of one of the ops would behave differently."""
    definition = graph_pb2.GraphDef()
    outside: dict[str, Any] = {}
    found, left = {step}, [step]

    def need(op: Any) -> None:
        if op not in found:
            found.add(op)
            left.append(op)

    while left:
        op = left.pop()
        if len(found) > _MOST_OPS or not _same_when_copied(op):
            return None
        for tensor in op.inputs:
            if tensor.name in fed or _owns_state(tensor.op):
                outside[tensor.name] = tensor
            else:
                need(tensor.op)
        before = [each for each in op.control_inputs if not _is_outside(each, fed)]
        for each in before:
            need(each)
        node = definition.node.add()
        node.CopyFrom(op.node_def)
        del node.input[len(op.inputs) :]
        node.input.extend(f"^{each.name}" for each in before)
        node.attr.pop("_class", None)  # colocation with ops outside
    return definition, outside


def _owns_state(op: Any) -> bool:
    """Returns whether the op is a variable, iterator, queue or table without inputs."""
    return not op.inputs and not op.control_inputs and any(
        tensor.dtype._is_ref_dtype or tensor.dtype in (tf.resource, tf.variant) for tensor in op.outputs
    )


def _is_outside(op: Any, fed: set[str]) -> bool:
    return _owns_state(op) or any(tensor.name in fed for tensor in op.outputs)


def _same_when_copied(op: Any) -> bool:
    attributes = op.node_def.attr
    if op.type in _KEPT or "shared_name" in attributes:
        return False
    # A seeded random op continues its own sequence; a copy would begin the sequence anew.
    return not any(attributes[name].i for name in ("seed", "seed2") if name in attributes)
