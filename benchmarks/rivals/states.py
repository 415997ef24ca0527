"""The states of the machine. Virtual processors move, and a cache line then needs 60 ns from one
to the other, or 260, for seconds or minutes. Figures of different states cannot be compared. A
state is a group of probe values in which none is more than FACTOR times another."""

FACTOR = 1.5
UNKNOWN = 0.0


def groups(values):
    """The states that occur in these probe values, each by its least value."""
    starts = []
    for value in sorted(values):
        if value > 0 and (not starts or value > FACTOR * starts[-1]):
            starts.append(value)
    return starts


def state_of(value, starts):
    """Which of them a value belongs to; UNKNOWN for none."""
    return next((start for start in starts if start <= value <= FACTOR * start), UNKNOWN)


def states_of_runs(runs):
    """{index of run: state}; runs whose probes before and after differ are left out."""
    starts = groups(value for run in runs for value in run["probe_ns"])
    found = {}
    for i, run in enumerate(runs):
        states = {state_of(value, starts) for value in run["probe_ns"]}
        if len(states) == 1:
            found[i] = states.pop()
    return found


def changed(values):
    values = [value for value in values if value > 0]
    return bool(values) and max(values) > FACTOR * min(values)
