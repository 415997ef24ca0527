"""What is compared: each case is one operation, size, number of ranks, transport and kind of
memory, with the least ratio (best rival's time / ours) that is required of it."""

from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Case:
    ranks: int
    transport: str  # shm or tcp
    memory: str  # private or heap; any: both, and the slower of the two counts
    op: str
    bytes: int
    required: float
    type: str = "fp32"

    @property
    def field(self):
        return Field(
            self.ranks, self.transport, "allreduce" if self.op == "allreduce" else "others"
        )

    @property
    def name(self):
        return f"{self.ranks}-{self.transport}-{self.memory}-{self.op}-{size_text(self.bytes)}"

    @property
    def memories(self):
        return ("private", "heap") if self.memory == "any" else (self.memory,)


@dataclass(frozen=True)
class Field:
    """Cases that one launch of a library can answer."""

    ranks: int
    transport: str
    kind: str  # allreduce, or others: the four other operations

    @property
    def name(self):
        return f"{self.ranks}-{self.transport}-{self.kind}"


OTHERS = ("broadcast", "allgather", "reduce_scatter", "alltoall")

SMALL = (4, 8, 64, KIB)
MIDDLE = (8 * KIB, 64 * KIB, 256 * KIB)
LARGE = (MIB, 4 * MIB, 16 * MIB, 64 * MIB)

QUICK_SIZES = {8, KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB}


def size_text(size):
    for unit, text in ((MIB, "M"), (KIB, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{text}"
    return str(size)


def all_cases():
    cases = []

    def add(ranks, transport, memory, required, sizes, op="allreduce"):
        cases.extend(Case(ranks, transport, memory, op, size, required) for size in sizes)

    add(2, "shm", "any", 2.0, (4, 8, 64))
    add(2, "shm", "any", 1.8, (KIB,))
    add(2, "shm", "any", 1.4, (8 * KIB,))
    add(2, "shm", "heap", 2.2, (64 * KIB, 256 * KIB))
    add(2, "shm", "heap", 1.7, (MIB,))
    add(2, "shm", "heap", 2.2, (4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB))
    add(2, "shm", "private", 2.2, (64 * KIB, 256 * KIB))
    add(2, "shm", "private", 1.5, (MIB, 4 * MIB, 16 * MIB))
    add(2, "shm", "private", 2.0, (64 * MIB, 256 * MIB))
    add(4, "shm", "heap", 1.4, SMALL)
    add(4, "shm", "heap", 1.8, MIDDLE)
    add(4, "shm", "heap", 3.0, LARGE)
    add(8, "shm", "heap", 1.8, SMALL + MIDDLE)
    add(8, "shm", "heap", 3.0, LARGE)
    for ranks in (4, 8):
        add(ranks, "shm", "private", 1.5, (64 * KIB, 256 * KIB) + LARGE)
    for ranks in (2, 4):
        add(ranks, "tcp", "private", 1.2, SMALL)
        add(ranks, "tcp", "private", 1.1, (64 * KIB, 256 * KIB, MIB))
        add(ranks, "tcp", "private", 1.25, (4 * MIB, 16 * MIB, 64 * MIB))
    for ranks in (2, 4):
        for op in OTHERS:
            add(ranks, "shm", "any", 1.2, (KIB, MIB, 64 * MIB), op)
    return cases


def selected(only=None, quick=False):
    """only: words joined by commas; a case is in if its name holds one of them ("2-shm",
    "alltoall", "heap-allreduce-1M"); words joined by + must all be there ("tcp+64K")."""
    cases = all_cases()
    if quick:
        cases = [c for c in cases if c.bytes in QUICK_SIZES and c.ranks <= 4]
        cases = [c for c in cases if c.op == "allreduce" or (c.ranks == 2 and c.bytes == MIB)]
        cases = [c for c in cases if c.transport == "shm" or c.ranks == 2]
    if only:
        wanted = [word.split("+") for word in only.split(",") if word]
        cases = [c for c in cases if any(all(part in c.name for part in parts) for parts in wanted)]
    return cases


# Against the machine. Times are ratios ours / limit, at most LIMIT_FACTOR.
LIMIT_FACTOR = 1.25
STAGED_FROM = 64 * KIB  # ours in private memory against the staged limit, 2 ranks
ADD_FROM = 64 * MIB  # ours in the heap against 2 n bytes a rank at the add bandwidth, 2 ranks
TYPES = ("bf16", "fp16")  # elements a second at TYPE_BYTES, at least TYPE_FACTOR times fp32's
TYPE_BYTES = 64 * MIB
TYPE_FACTOR = 1.6


def sizes_of(field, cases):
    return sorted({c.bytes for c in cases if c.field == field})


def ops_of(field, cases):
    return [
        op for op in ("allreduce",) + OTHERS if any(c.field == field and c.op == op for c in cases)
    ]
