"""The cases of the comparison. A case is one operation, size, number of ranks, transport, kind of memory and element
type."""

from dataclasses import dataclass

from machine import processors

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Field:
    """The cases that one launch of a library can time."""

    ranks: int
    transport: str  # shm or tcp
    kind: str  # "allreduce", or "others" for the four other operations
    type: str = "fp32"

    @property
    def name(self):
        suffix = "" if self.type == "fp32" else f"-{self.type}"
        return f"{self.ranks}-{self.transport}-{self.kind}{suffix}"


@dataclass(frozen=True)
class Case:
    ranks: int
    transport: str
    memory: str  # private or heap
    op: str
    bytes: int
    type: str = "fp32"

    @property
    def field(self):
        kind = "allreduce" if self.op == "allreduce" else "others"
        return Field(self.ranks, self.transport, kind, self.type)

    @property
    def name(self):
        words = (self.ranks, self.transport, self.memory, self.op, size_text(self.bytes))
        return "-".join(map(str, words)) + ("" if self.type == "fp32" else f"-{self.type}")


OTHERS = ("broadcast", "allgather", "reduce_scatter", "alltoall")

SMALL = (4, 8, 64, KIB)
MIDDLE = (4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB, 256 * KIB)
LARGE = (MIB, 4 * MIB, 16 * MIB, 64 * MIB)

QUICK_SIZES = {8, KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB}


def size_text(size):
    for unit, text in ((MIB, "M"), (KIB, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{text}"
    return str(size)


def all_cases():
    cases = []

    def add(ranks, transport, memory, sizes, op="allreduce", kind="fp32"):
        cases.extend(Case(ranks, transport, memory, op, size, kind) for size in sizes)

    for memory in ("private", "heap"):
        add(2, "shm", memory, SMALL + MIDDLE + LARGE + (256 * MIB,))
        add(2, "shm", memory, MIDDLE + LARGE[:2], kind="bf16")
        for ranks in (4, 8) + ((16,) if processors() >= 16 else ()):
            add(ranks, "shm", memory, SMALL + MIDDLE + LARGE)
    for ranks in (2, 4):
        add(ranks, "tcp", "private", SMALL + (64 * KIB, 256 * KIB) + LARGE)
        for op in OTHERS:
            for memory in ("private", "heap"):
                add(ranks, "shm", memory, (KIB, MIB, 64 * MIB), op)
    return cases


def selected(only=None, quick=False):
    """only: words joined by commas. A case is selected if its name contains one of these words
    ("2-shm", "alltoall", "heap-allreduce-1M"). If words are joined by +, the name must contain all
    of them ("tcp+64K")."""
    cases = all_cases()
    if quick:
        cases = [c for c in cases if c.bytes in QUICK_SIZES and c.ranks <= max(4, processors())]
        cases = [c for c in cases if c.op == "allreduce" or (c.ranks == 2 and c.bytes == MIB)]
        cases = [c for c in cases if c.transport == "shm" or c.ranks == 2]
    if only:
        wanted = [word.split("+") for word in only.split(",") if word]
        cases = [c for c in cases if any(all(part in c.name for part in parts) for parts in wanted)]
    return cases


def sizes_of(field, cases):
    return sorted({c.bytes for c in cases if c.field == field})


def ops_of(field, cases):
    return [
        op for op in ("allreduce",) + OTHERS if any(c.field == field and c.op == op for c in cases)
    ]
