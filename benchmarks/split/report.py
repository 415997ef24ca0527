"""Writes the results of run.py as a page: a table for each case, and the bars with the measured values."""

UNLIMITED = "unlimited"
AUTOMATIC = "ours, measured"
DEFAULT = "HCCL default (96.54 %)"
TIE = 0.01  # a smaller share of the iteration counts as equal
DISTURBED = 0.05  # if compute takes longer than in the model by this share, other programs use the cores


def limited(case):
    return case["network"] != UNLIMITED


def label(case):
    line = f"{case['network']} Gbit/s" if limited(case) else "one host"
    return f"{case['model']}, {case['ranks']} ranks, {line}"


def strategy(case, name):
    return next(s for s in case["strategies"] if s["strategy"] == name)


def others(case):
    return [s for s in case["strategies"] if "last_indices" in s and s["strategy"] != AUTOMATIC]


def disturbed(case):
    """Returns by what share compute took longer than the neural network's recorded step (step_ms);
    almost 0 on an idle machine."""
    return case["strategies"][0]["iteration_ms"] / case["step_ms"] - 1 if case.get("step_ms") else 0


def table(case):
    size = case["bytes"] * case["scale"] * case.get("shrink", 1) / 1e6
    shrunk = f", times and sizes divided by {case['shrink']:g}" if case.get("shrink", 1) != 1 else ""
    whole, seconds = case["probe"][-1]
    yield (f"### {label(case)}\n\n"
           f"{size:.0f} MB of gradients, scale {case['scale']:g}{shrunk}; {case['iterations']} iterations of each; one "
           f"allreduce of all takes {1e3 * seconds:.1f} ms ({whole * case['scale'] / seconds / 1e9:.3f} GB/s)\n")
    if disturbed(case) > DISTURBED:
        yield f"**The machine was not idle: compute took {disturbed(case):.0%} longer than it does alone.**\n"
    yield "| strategy | segments | iteration ms | exposed ms | predicted ms | off | over the lower bound |"
    yield "|---|---|---|---|---|---|---|"
    least = min(s["exposed_ms"] for s in case["strategies"] if "last_indices" in s)
    for s in case["strategies"]:
        end, predicted, bound = s["iteration_ms"], s.get("predicted_ms"), s.get("lower_bound_ms")
        best = "**" if s["exposed_ms"] == least and "last_indices" in s else ""
        yield (f"| {s['strategy']} | {len(s['last_indices']) if 'last_indices' in s else ''} | {end:.1f} | "
               f"{best}{s['exposed_ms']:.1f}{best} | " + (f"{predicted:.1f} | {abs(end / predicted - 1):.1%} | "
               if predicted else "| | ") + (f"{end / bound - 1:.1%} |" if bound else "|"))
    yield ""


def least_exposed(case):
    """In network-limited cases: the automatic plan exposes the least time, or almost the least."""
    if not limited(case):
        return None
    ours, best = strategy(case, AUTOMATIC), min(others(case), key=lambda s: s["exposed_ms"])
    behind = ours["exposed_ms"] - best["exposed_ms"]
    words = f"{ours['exposed_ms']:.1f} ms, the best other {best['exposed_ms']:.1f} ms ({best['strategy']})"
    return behind <= TIE * best["iteration_ms"], words + (", a tie" if 0 < behind <= TIE * best["iteration_ms"] else "")


def below_default(case):
    """ResNet-50 and BERT-base at 10 Gbit/s: at least 20 % less exposed than with HCCL's default."""
    if case["network"] != "10" or case["model"] not in ("ResNet-50", "BERT-base"):
        return None
    ours, default = strategy(case, AUTOMATIC)["exposed_ms"], strategy(case, DEFAULT)["exposed_ms"]
    return ours <= 0.8 * default, f"{ours:.1f} ms instead of {default:.1f} ms ({ours / default - 1:+.0%})"


def near_bound(case):
    """In network-limited cases: the iteration is within 5 % of the planner's lower bound."""
    ours = strategy(case, AUTOMATIC)
    if not limited(case) or not ours.get("lower_bound_ms"):
        return None
    over = ours["iteration_ms"] / ours["lower_bound_ms"] - 1
    return over <= 0.05, f"{over:+.1%}"


def as_predicted(case):
    """Prediction and measurement of the automatic plan differ by under 10 %."""
    ours = strategy(case, AUTOMATIC)
    if not ours.get("predicted_ms"):
        return None
    off = ours["iteration_ms"] / ours["predicted_ms"] - 1
    return abs(off) < 0.1, f"{off:+.1%}"


def no_worse_on_one_host(case):
    """On one host with at most one rank on each core: the automatic choice is never more than 2 % slower than the
    best."""
    if limited(case) or case["ranks"] > case.get("cores", case["ranks"]):
        return None
    ours, best = strategy(case, AUTOMATIC), min(others(case), key=lambda s: s["iteration_ms"])
    slower = ours["iteration_ms"] / best["iteration_ms"] - 1
    return slower <= 0.02, f"{slower:+.1%} ({best['strategy']})"


BARS = (least_exposed, below_default, near_bound, as_predicted, no_worse_on_one_host)


def bars(cases):
    yield "## Bars\n"
    yield "| bar | | case by case |"
    yield "|---|---|---|"
    for bar in BARS:
        found = [(label(case), *outcome) for case in cases if (outcome := bar(case)) is not None]
        if not found:
            continue
        met = sum(good for _, good, _ in found)
        verdict = "met" if met == len(found) else "**missed**"
        cells = "; ".join(f"{name}: {words}{'' if good else ' **missed**'}" for name, good, words in found)
        yield f"| {bar.__doc__.rstrip('.')} | {verdict} ({met} of {len(found)}) | {cells} |"
    yield ""


def page(results):
    yield "# Gradient fusion: strategies compared\n"
    machine = results.get("machine", {})
    if machine:
        yield (f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:.0f} GB, Linux {machine['kernel']}; "
               f"load {machine['load']:.2f} at the beginning. How it is measured: ../split/README.md. Made by "
               f"`{results['command']}`.\n")
    noisy = [label(case) for case in results["cases"] if disturbed(case) > DISTURBED]
    if noisy:
        yield f"**Not idle, so of little worth: {'; '.join(noisy)}.**\n"
    yield from bars(results["cases"])
    yield "## Cases\n"
    for case in results["cases"]:
        yield from table(case)
