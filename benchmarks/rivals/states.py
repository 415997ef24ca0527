"""The states of the machine. Virtual processors move, and a cache line then needs 60 ns from one
to the other, or 260, for seconds or minutes; and for as long another's thread may run on the other
half of a core. Figures of different states cannot be compared.

What lines need is told apart by groups of probe values in which none is more than FACTOR times
another; within one, some machines' values are 104 to 175 ns from one second to the next. A core is
disturbed that needs BUSY times as long as the fastest."""

from typing import NamedTuple

FACTOR = 1.7
BUSY = 1.3
UNKNOWN = 0.0


class State(NamedTuple):
    line: float = UNKNOWN  # least ns of the group
    disturbed: bool = False

    def __str__(self):
        return f"{self.line:.0f}" + (" disturbed" if self.disturbed else "")


def groups(values):
    """The states that occur in these probe values, {least value: greatest}. First the one that most
    values belong to, so that a few low ones do not cut it in two; then the next of the rest."""
    rest = sorted(value for value in values if value > 0)
    found = {}
    while rest:
        group = max(
            ([v for v in rest if least <= v <= FACTOR * least] for least in dict.fromkeys(rest)),
            key=len,
        )
        found[group[0]] = group[-1]
        rest = [value for value in rest if not group[0] <= value <= group[-1]]
    return dict(sorted(found.items()))


def group_of(value, known):
    """Which of them a value belongs to; UNKNOWN for none."""
    return next((least for least, most in known.items() if least <= value <= most), UNKNOWN)


def lines(run, figure):
    """What lines needed around a figure, as its ranks found; or, where they were all on one
    processor, as the driver found around their run."""
    return figure.get("line_ns") or run["probe_ns"]


def lines_seen(runs):
    """The groups of all figures' lines."""
    return groups(value for run in runs for f in run["figures"] for value in lines(run, f))


def least_core(runs):
    """The fastest core; UNKNOWN if no figure tells."""
    return min(
        (ns for run in runs for f in run["figures"] for ns in f.get("core_ns", [])), default=UNKNOWN
    )


def figures_in_states(runs):
    """[(run, figure, State)]; figures around which two states were seen are left out."""
    known, least = lines_seen(runs), least_core(runs)
    found = []
    for run in runs:
        for figure in run["figures"]:
            near = {group_of(value, known) for value in lines(run, figure)}
            busy = {ns > BUSY * least for ns in figure.get("core_ns", [])} or {False}
            if len(near) == len(busy) == 1:
                found.append((run, figure, State(near.pop(), busy.pop())))
    return found


def changed(values):
    values = [value for value in values if value > 0]
    return bool(values) and max(values) > FACTOR * min(values)
