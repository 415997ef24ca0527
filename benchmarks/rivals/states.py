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


def probes(run, figure):
    """What was probed nearest to a figure: around its size, or, where ranks share processors and
    cannot do so themselves, around its run."""
    return figure.get("probe_ns") or run["probe_ns"]


def states_seen(runs):
    """The states that these runs' figures were timed in, as groups() gives them."""
    return groups(value for run in runs for f in run["figures"] for value in probes(run, f))


def figures_in_states(runs):
    """[(run, figure, state)]; figures around which two states were seen are left out."""
    known = states_seen(runs)
    found = []
    for run in runs:
        for figure in run["figures"]:
            states = {state_of(value, known) for value in probes(run, figure)}
            if len(states) == 1:
                found.append((run, figure, states.pop()))
    return found


def changed(values):
    values = [value for value in values if value > 0]
    return bool(values) and max(values) > FACTOR * min(values)
