"""From raw results to ratios and their table. Pure: no machine, no files."""

import collections
import statistics
from dataclasses import dataclass, replace

import cases as c
from settings import LIBRARIES
from states import State, figures_in_states


@dataclass(frozen=True)
class Figure:
    us: float  # the median over rounds
    spread: float  # slowest round / fastest round
    library: str
    setting: str
    rounds: int = 1


@dataclass(frozen=True)
class Row:
    case: c.Case
    ours: Figure = None
    by_library: dict = None  # library: its best Figure
    best: Figure = None
    state: State = State()  # all figures of a row are of one
    other: dict = None  # {other state: ratio there}
    missing: str = ""  # why there is no ratio

    @property
    def ratio(self):
        return self.best.us / self.ours.us if self.ours and self.best else None

    @property
    def met(self):
        return None if self.ratio is None else self.ratio >= self.case.required


@dataclass(frozen=True)
class Bound:
    """Against a limit of the machine, or of one type against another."""

    what: str
    ours_us: float
    limit_us: float
    value: float
    required: str
    met: bool


def collect(results):
    """{(ranks, transport, op, type, bytes): {state: [Figure, ...]}}, one figure a setting. Wrong
    results never count, nor does what was timed while the machine's state changed."""
    samples = {}
    for run, f, state in figures_in_states(results["runs"]):
        if run["outcome"] == "wrong results":
            continue
        key = (run["ranks"], run["transport"], f["op"], f["type"], f["bytes"])
        by_setting = samples.setdefault(key, {}).setdefault(state, {})
        by_setting.setdefault((run["library"], run["setting"]), []).append(f["us"])
    return {
        key: {
            state: [
                Figure(statistics.median(times), max(times) / min(times), *names, len(times))
                for names, times in by_setting.items()
            ]
            for state, by_setting in by_state.items()
        }
        for key, by_state in samples.items()
    }


def fastest(figures):
    return min(figures, key=lambda figure: figure.us, default=None)


def rows(results, cases):
    figures = collect(results)
    return [
        _row(case, figures.get((case.ranks, case.transport, case.op, case.type, case.bytes), {}))
        for case in cases
    ]


def _row(case, by_state):
    found = sorted(
        ((_row_in(case, state, figures), figures) for state, figures in by_state.items()),
        # The state that tells most: with a ratio, undisturbed, with most settings and rounds.
        key=lambda pair: (
            pair[0].ratio is not None,
            not pair[0].state.disturbed,
            len(pair[1]),
            sum(figure.rounds for figure in pair[1]),
        ),
        reverse=True,
    )
    if not found:
        return Row(case, by_library={}, missing="not timed")
    best = found[0][0]
    return replace(
        best, other={row.state: row.ratio for row, _ in found[1:] if row.ratio is not None}
    )


def _row_in(case, state, figures):
    ours = [f for f in figures if f.library == "hccl" and f.setting in case.memories]
    by_library = {}
    for library in LIBRARIES:
        best = fastest([f for f in figures if f.library == library])
        if best:
            by_library[library] = best
    missing = [
        f"ours in {memory} memory was not timed"
        for memory in case.memories
        if not any(f.setting == memory for f in ours)
    ]
    if not by_library:
        missing.append("no rival was timed")
    # Any memory: both must have been timed, and the slower counts.
    whole = len(ours) == len(case.memories)
    return Row(
        case,
        max(ours, key=lambda f: f.us) if whole else None,
        by_library,
        fastest(by_library.values()),
        state,
        {},
        "; ".join(missing),
    )


def bounds(results):
    figures = collect(results)
    found = []

    def at(library, size, kind="fp32", setting=None):
        """{state: the library's fastest figure}"""
        by_state = figures.get((2, "shm", "allreduce", kind, size), {})
        picked = {
            state: fastest(
                [f for f in all_figures if f.library == library and setting in (None, f.setting)]
            )
            for state, all_figures in by_state.items()
        }
        return {state: figure for state, figure in picked.items() if figure}

    def both(left, right):
        """The pair of the state in which most rounds were run; None if no state has both."""
        shared = [(left[state], right[state]) for state in left if state in right]
        return max(shared, key=lambda pair: pair[0].rounds + pair[1].rounds, default=None)

    sizes = sorted(
        size
        for ranks, transport, op, kind, size in figures
        if (ranks, transport, op, kind) == (2, "shm", "allreduce", "fp32")
    )
    for size in sizes:
        pair = both(at("hccl", size, setting="private"), at("limit", size))
        if pair and size >= c.STAGED_FROM:
            found.append(
                _limit(
                    f"2 ranks, private, {c.size_text(size)}: staged limit ({pair[1].setting})",
                    pair[0],
                    pair[1].us,
                )
            )
    add = results.get("add_GBps")
    for size in sizes:
        mine = fastest(at("hccl", size, setting="heap").values())
        if mine and add and size >= c.ADD_FROM:
            # Two ranks, each reads and writes 2 n bytes.
            found.append(
                _limit(
                    f"2 ranks, heap, {c.size_text(size)}: add bandwidth limit",
                    mine,
                    2 * 2 * size / add / 1e3,
                )
            )
    for memory in ("private", "heap"):
        for kind in c.TYPES:
            pair = both(
                at("hccl", c.TYPE_BYTES, setting=memory), at("hccl", c.TYPE_BYTES, kind, memory)
            )
            if pair:
                # The same bytes hold twice the elements.
                value = 2 * pair[0].us / pair[1].us
                found.append(
                    Bound(
                        f"2 ranks, {memory}, {c.size_text(c.TYPE_BYTES)}: {kind} elements a second "
                        "/ fp32's",
                        pair[1].us,
                        pair[0].us,
                        value,
                        f">= {c.TYPE_FACTOR}",
                        value >= c.TYPE_FACTOR,
                    )
                )
    return found


def _limit(what, mine, limit_us):
    value = mine.us / limit_us
    return Bound(what, mine.us, limit_us, value, f"<= {c.LIMIT_FACTOR}", value <= c.LIMIT_FACTOR)


# ---- Markdown ----


def time_text(us):
    return f"{us:.3f}" if us < 1 else f"{us:.2f}" if us < 100 else f"{us:.0f}"


def mark(met):
    return "-" if met is None else "yes" if met else "**no**"


def markdown(results, cases, only=None):
    """only: the rivals that count; None: all."""
    if only:
        results = {
            **results,
            "runs": [
                run
                for run in results["runs"]
                if run["library"] not in LIBRARIES or run["library"] in only
            ],
        }
    all_rows = rows(results, cases)
    shown = [library for library in LIBRARIES if any(library in row.by_library for row in all_rows)]
    versions = {run["library"]: run["version"] for run in results["runs"] if run["version"]}
    machine = results["machine"]
    states = collections.Counter(state for _, _, state in figures_in_states(results["runs"]))
    lines = [
        "# Ours against the rivals",
        "",
        f"{results['date']}; {machine['processor']}, {machine['processors']} processors, "
        f"{machine['memory']}, Linux {machine['kernel']}, {machine['system']}; {machine['compiler']}; "
        f"revision {machine['revision']}.",
        f"Rounds: {results['rounds']}. States of the machine seen (nanoseconds that a cache line needs from one processor to another; disturbed: with another's work on half of a core): "
        + (
            ", ".join(
                f"{state}: {number} figures"
                for state, number in sorted(states.items())
            )
            or "none"
        )
        + "."
        + (" Real-time priority." if results.get("realtime") else ""),
        "",
    ]
    done = [row for row in all_rows if row.met is not None]
    met = sum(row.met for row in done)
    lines += [
        f"**{met} of {len(done)} cases meet their minimum**; {len(all_rows) - len(done)} have no ratio.",
        "",
        "Times are microseconds, of an operation's slowest rank; each library's is that of its fastest "
        "setting. Ratio = best rival / ours, both in one state of the machine (column state, ns; ratios in "
        "other states in brackets). Spread = slowest / fastest round of ours. The method is in "
        "benchmarks/rivals/method.h.",
        "",
    ]
    for title, group in grouped(all_rows):
        lines += [
            f"## {title}",
            "",
            "| size | ours | "
            + " | ".join(LIBRARIES[l] for l in shown)
            + " | best rival | ratio | required | met | spread | state |",
            "|---:|" + "---:|" * (len(shown) + 1) + "---|---:|---:|---|---:|---:|",
        ]
        lines += [_line(row, shown) for row in group]
        lines.append("")
    found = bounds(results)
    if found:
        lines += [
            "## Against the machine",
            "",
            "| what | ours | limit | value | required | met |",
            "|---|---:|---:|---:|---:|---|",
        ]
        lines += [
            f"| {b.what} | {time_text(b.ours_us)} | {time_text(b.limit_us)} | {b.value:.2f} | {b.required} | "
            f"{mark(b.met)} |"
            for b in found
        ]
        if results.get("add_GBps"):
            lines += [
                "",
                f"Add bandwidth: {results['add_GBps']:.1f} GB/s read and written by all processors.",
            ]
        lines.append("")
    lines += ["## The rivals", "", "| rival | version | state |", "|---|---|---|"]
    for library, name in LIBRARIES.items():
        state = results["rivals"].get(library, {"present": False, "reason": "unknown"})
        lines.append(
            f"| {name} | {versions.get(library, '-')} | "
            + ("present" if state["present"] else f"absent: {state['reason']}")
            + " |"
        )
    troubles = sorted(
        {
            f"{run['library']} {run['setting']}, {run['field']}: {run['outcome']}"
            for run in results["runs"]
            if run["outcome"] != "ok"
        }
    )
    if troubles:
        lines += [
            "",
            "Runs that did not end well (sizes finished before that count, unless wrong):",
            "",
        ]
        lines += [f"- {trouble}" for trouble in troubles]
    return "\n".join(lines) + "\n"


def grouped(all_rows):
    groups = {}
    for row in all_rows:
        k = row.case
        title = f"{k.op}, {k.ranks} ranks, {k.transport}, {k.memory} memory"
        groups.setdefault(title, []).append(row)
    return groups.items()


def _line(row, shown):
    def cell(figure):
        return "-" if figure is None else time_text(figure.us)

    by = [cell(row.by_library.get(library)) for library in shown]
    best = f"{LIBRARIES[row.best.library]}: {row.best.setting}" if row.best else "-"
    ratio = f"{row.ratio:.2f}" if row.ratio else row.missing or "-"
    if row.other:
        ratio += (
            " ("
            + ", ".join(
                f"{state}: {value:.2f}" for state, value in sorted(row.other.items())
            )
            + ")"
        )
    spread = f"{row.ours.spread:.2f}" if row.ours else "-"
    return (
        f"| {c.size_text(row.case.bytes)} | {cell(row.ours)} | "
        + " | ".join(by)
        + f" | {best} | {ratio} | {row.case.required:g} | {mark(row.met)} | {spread} "
        f"| {row.state} |"
    )
