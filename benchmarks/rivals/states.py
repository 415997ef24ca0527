"""The states of the machine. Virtual processors move, and a cache line then needs 60 ns from one
to the other, or 260, for seconds or minutes. Figures of different states cannot be compared. A
state is a group of probe values in which none is more than FACTOR times another; within one, some
machines' values are 104 to 175 ns from one second to the next."""

FACTOR = 1.7
UNKNOWN = 0.0


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


def state_of(value, states):
    """Which of them a value belongs to; UNKNOWN for none."""
    return next((least for least, most in states.items() if least <= value <= most), UNKNOWN)


def states_of_runs(runs):
    """{index of run: state}; runs whose probes before and after differ are left out."""
    known = groups(value for run in runs for value in run["probe_ns"])
    found = {}
    for i, run in enumerate(runs):
        states = {state_of(value, known) for value in run["probe_ns"]}
        if len(states) == 1:
            found[i] = states.pop()
    return found


def changed(values):
    values = [value for value in values if value > 0]
    return bool(values) and max(values) > FACTOR * min(values)
