"""The names by which ranks compare their collectives. Names make it an error if a rank swaps two
collectives of equal size.

A name must be the same on all ranks. TensorFlow and Keras number layers, scopes and variables in
each process (dense_7/kernel_1:0), and a rank may have made more of them than other ranks. So names
are compared without such numbers, or only by the order of the numbers within a list.
"""

from __future__ import annotations

import contextlib
import re
import threading
import zlib
from typing import Any, Iterator, Sequence

from hccl import _variables

# HCCL_COMPARE_NAMES=0 ends the comparison, for programs whose ranks name one collective differently. All ranks must
# have the same value of the variable.
COMPARED = _variables.switch("HCCL_COMPARE_NAMES", default=True)


class Name(str):
    """A name that ranks compare, by its digest. Names that are plain strings are not compared."""

    digest = 0


def of(variables: Sequence[Any]) -> list[str]:
    """Returns the names of variables, with their layers' names, or an empty list if some tensor is
    not a variable. Of the numbers in names, only their order is compared: [fc_7, fc_9] equals
    [fc_1, fc_2]."""
    if not all(hasattr(variable, "assign") for variable in variables):
        return []
    # In Keras 3 only the path contains the layer.
    names = [str(getattr(variable, "path", None) or variable.name) for variable in variables]
    paths = [_parts(name) for name in names]
    seen: dict[str, set] = {}
    for place, numbers in (part for path in paths for part in path):
        seen.setdefault(place, set()).add(numbers)
    order = {place: sorted(numbers) for place, numbers in seen.items()}
    return [
        _named(name, "/".join(f"{place}#{order[place].index(numbers)}" for place, numbers in path))
        for name, path in zip(names, paths)
    ]


def _parts(name: str) -> list[tuple[str, tuple[int, ...]]]:
    """Returns, for each part of a name, the path to the part without numbers, and its numbers."""
    place, found = "", []
    for part in re.sub(r":\d+$", "", name).split("/"):
        place += "/" + re.sub(r"_?\d+", "", part)
        found.append((place, tuple(map(int, re.findall(r"\d+", part)))))
    return found


def of_program(name: str | None) -> list[str]:
    """Returns a list with the name that the program gives, if any. It may be a variable's name."""
    if name is None:
        return []
    path = "/" in name or ":" in name
    return [_named(name, re.sub(r"_\d+(?=/|:|$)", "", name) if path else name)]


def of_gradient(op: Any) -> list[str]:
    """Returns the names for the collective of an op's gradient, if ranks compare the op's names."""
    digests = op.get_attr("name_digests")
    return [_backward(name.decode(), own) for name, own in zip(op.get_attr("names"), digests)]


def of_gradients(names: Sequence[str]) -> list[str]:
    """Returns the names for the collective of the gradient of tensors with these names."""
    return [_backward(name, name.digest) for name in names if isinstance(name, Name)]


def _backward(name: str, digest: int) -> str:
    return _named(f"gradient of {name}", f"gradient {digest}")


_context = threading.local()  # .text: what comparing() adds


@contextlib.contextmanager
def comparing(text: str) -> Iterator[None]:
    """In this context, ranks also compare `text` in each op that is made."""
    outer = getattr(_context, "text", "")
    _context.text = f"{outer}, {text}" if outer and text else outer or text
    try:
        yield
    finally:
        _context.text = outer


def attributes(names: Sequence[str]) -> dict[str, Any]:
    """Returns the attributes of an op for these names."""
    digests = [name.digest for name in names if isinstance(name, Name)]
    also = getattr(_context, "text", "")
    return {"names": list(names), "name_digests": digests, "also": also}


def _named(name: str, compared: str) -> str:
    named = Name(name)
    named.digest = zlib.crc32(compared.encode())
    return named if COMPARED else name
