"""Makes ratios and their table from raw results. Reads neither the machine nor files."""

import statistics
from dataclasses import dataclass

import cases as c
from runner import FACTOR
from settings import LIBRARIES

TIE = 0.97  # above this ratio, a faster rival counts as equal


@dataclass(frozen=True)
class Figure:
    us: float  # the median over rounds
    spread: float  # slowest round / fastest round
    library: str
    setting: str
    lines: tuple = ()  # nanoseconds of a cache line from core to core, in each round


@dataclass(frozen=True)
class Row:
    case: c.Case
    ours: Figure = None
    by_library: dict = None  # {library: its best Figure}
    best: Figure = None

    @property
    def ratio(self):
        return None if self.missing else self.best.us / self.ours.us

    @property
    def lost(self):
        return self.ratio is not None and self.ratio < TIE

    @property
    def state(self):
        """The times of a cache line in the two compared figures, as text. If they differ much, the
        machine was in different states."""
        lines = [ns for figure in (self.ours, self.best) if figure for ns in figure.lines]
        if not lines:
            return "-"
        low, high = f"{min(lines):.0f}", f"{max(lines):.0f}"
        return low if low == high else f"{low} to {high}"

    @property
    def missing(self):
        if not self.ours:
            return "ours was not timed"
        if not self.best:
            return "no rival was timed"
        lines = self.ours.lines + self.best.lines
        return "" if not lines or near(min(lines), max(lines)) else "timed in other states"


def collect(results):
    """Returns {(ranks, transport, op, type, bytes): [Figure, ...]}, with one figure for each
    setting. Wrong results never count."""
    samples = {}
    for run in results["runs"]:
        if run["outcome"] == "wrong results":
            continue
        for f in run["figures"]:
            key = (run["ranks"], run["transport"], f["op"], f["type"], f["bytes"])
            by_setting = samples.setdefault(key, {})
            by_setting.setdefault((run["library"], run["setting"]), []).append(f)
    return {
        key: [_figure(names, figures) for names, figures in _one_state(by_setting).items()]
        for key, by_setting in samples.items()
    }


def _one_state(by_setting):
    """Returns for each setting the figures of one state of the machine: the state in which most settings were timed.
    For a setting without figures of that state, returns all its figures."""
    lines = {line_of(f) for figures in by_setting.values() for f in figures} - {0.0}

    def picked(figures, line):
        return [f for f in figures if near(line_of(f), line)]

    best = max(lines, key=lambda x: sum(bool(picked(f, x)) for f in by_setting.values()), default=0)
    return {names: picked(figures, best) or figures for names, figures in by_setting.items()}


def line_of(figure):
    return statistics.fmean(figure.get("line_ns", [0]))


def near(a, b):
    return max(a, b) <= FACTOR * min(a, b)


def _figure(names, figures):
    times = [f["us"] for f in figures]
    lines = tuple(line_of(f) for f in figures if "line_ns" in f)
    return Figure(statistics.median(times), max(times) / min(times), *names, lines)


def fastest(figures):
    return min(figures, key=lambda figure: figure.us, default=None)


def rows(results, cases):
    figures = collect(results)
    return [_row(k, figures.get((k.ranks, k.transport, k.op, k.type, k.bytes), [])) for k in cases]


def _row(case, figures):
    by_library = {
        library: fastest([f for f in figures if f.library == library]) for library in LIBRARIES
    }
    by_library = {library: figure for library, figure in by_library.items() if figure}
    ours = [f for f in figures if (f.library, f.setting) == ("hccl", case.memory)]
    return Row(case, ours[0] if ours else None, by_library, fastest(by_library.values()))


# ---- Markdown ----


def time_text(us):
    return f"{us:.3f}" if us < 1 else f"{us:.2f}" if us < 100 else f"{us:.0f}"


def markdown(results, cases, only=None):
    """only: the rivals that count; None means all."""
    if only:
        runs = [r for r in results["runs"] if r["library"] in only or r["library"] == "hccl"]
        results = {**results, "runs": runs}
    all_rows = rows(results, cases)
    shown = [library for library in LIBRARIES if any(library in row.by_library for row in all_rows)]
    lines = _head(results, all_rows)
    for title, group in grouped(all_rows):
        lines += [
            f"## {title}",
            "",
            "| size | ours | "
            + " | ".join(LIBRARIES[name] for name in shown)
            + " | best rival | ratio | spread | line, ns |",
            "|---:|---:|" + "---:|" * len(shown) + "---|---:|---:|---:|",
        ]
        lines += [_line(row, shown) for row in group] + [""]
    return "\n".join(lines + _rivals(results)) + "\n"


def _head(results, all_rows):
    m = results["machine"]
    timed = [row for row in all_rows if row.ratio is not None]
    lost = [row for row in timed if row.lost]
    level = [row for row in timed if TIE <= row.ratio < 1 / TIE]
    *most, last = sorted({row.case.ranks for row in all_rows})
    ranks = ", ".join(map(str, most)) + (f" and {last}" if most else f"{last}")
    lines = [
        f"# Ours against the rivals, {m['processor'].replace('(R)', '')}, {ranks} ranks",
        "",
        f"{results['date']}; {m['processor']}, {m['processors']} processors, {m['memory']}, "
        f"Linux {m['kernel']}, {m['system']}; {m['compiler']}; revision {m['revision']}; "
        f"{results['rounds']} rounds" + ("; real-time priority." if results["realtime"] else "."),
        "",
        f"Of {len(timed)} cases with a ratio ours is faster in "
        f"{len(timed) - len(lost) - len(level)}, level in {len(level)}, and **a rival is faster in "
        f"{len(lost)}**. Cases without a ratio: {len(all_rows) - len(timed)}.",
        "",
        "Times are microseconds of the loop of rewriting and operation without barriers, less the "
        "rewriting alone, on the slowest rank; each library's is that of its fastest setting. Ratio "
        "= best rival / ours, bold where the rival is faster by more than 3 %. Spread = slowest / "
        "fastest round of ours. Line: what a cache line took from core to core while the two were "
        "timed. Heap memory is device memory (aclrtMalloc), private memory is any other. The method "
        "is in benchmarks/rivals/method.h.",
        "",
    ]
    if lost:
        lines += ["## Where rivals win", ""]
        lines += [
            f"- {row.case.name}: {_name(row.best)} {time_text(row.best.us)}, ours "
            f"{time_text(row.ours.us)} ({row.ratio:.2f})"
            for row in sorted(lost, key=lambda row: row.ratio)
        ] + [""]
    return lines


def _rivals(results):
    versions = {run["library"]: run["version"] for run in results["runs"] if run["version"]}
    lines = ["## The rivals", "", "| rival | version | state |", "|---|---|---|"]
    for library, name in LIBRARIES.items():
        state = results["rivals"].get(library, {"present": False, "reason": "unknown"})
        there = "present" if state["present"] else f"absent: {state['reason']}"
        lines.append(f"| {name} | {versions.get(library, '-')} | {there} |")
    troubles = {
        f"- {run['library']} {run['setting']}, {run['field']}: {run['outcome']}"
        for run in results["runs"]
        if run["outcome"] != "ok"
    }
    if troubles:
        lines += ["", "Runs that did not end well (what was timed before counts, unless wrong):", ""]
    return lines + sorted(troubles)


def _name(figure):
    return f"{LIBRARIES[figure.library]}: {figure.setting}" if figure else "-"


def grouped(all_rows):
    groups = {}
    for row in all_rows:
        k = row.case
        title = f"{k.op}, {k.ranks} ranks, {k.transport}, {k.memory} memory, {k.type}"
        groups.setdefault(title, []).append(row)
    return groups.items()


def _line(row, shown):
    times = [row.ours] + [row.by_library.get(library) for library in shown]
    mark = "**" if row.lost else ""
    cells = [c.size_text(row.case.bytes)]
    cells += ["-" if figure is None else time_text(figure.us) for figure in times]
    cells.append(_name(row.best))
    cells.append(row.missing if row.missing else f"{mark}{row.ratio:.2f}{mark}")
    cells += [f"{row.ours.spread:.2f}" if row.ours else "-", row.state]
    return "| " + " | ".join(cells) + " |"
