#!/usr/bin/env python3
"""Puts measured costs (files of HCCL_TUNE_FILE, JSON) into presets/*.json.

An entry takes the place of the preset for as many ranks. With --algorithm, only the curves of that local algorithm are
replaced. The new curves are scaled to the preset, so that they keep their ratio to the curves of `staged`."""

import argparse
import json
import pathlib

STANDARD = "staged"  # kStandard in costs.h


def preset_of(entry):
    """Returns the name of an entry's preset file, and the entry in the form of a preset."""
    key = entry["key"]
    place = {"library": "any", "cpu": "any", "transport": "any", "hosts": key["hosts"],
             "ranks_per_host": key["ranks_per_host"], "shared_cores": key.get("shared_cores", False),
             "kernel_copies": False}
    if "local" not in entry:
        costs = entry["messages"]
        steps = [{name: int(step.get(name, 0)) for name in ("bytes", "step_ns", "more_ns")} for step in costs["steps"]]
        return "messages", {"key": place | {"transport": key["transport"]},
                            "messages": {"steps": steps, "fold_ns_per_mib": int(costs["fold_ns_per_mib"])}}
    costs = entry["local"]
    far = int(costs.get("stream_from", 0))
    curves = [curve | {"points": [{"bytes": int(p["bytes"]), "ns": int(p["ns"])} for p in curve["points"]]}
              for curve in costs["curves"]]
    file = f"{'shared' if place['shared_cores'] else 'own'}_cores_{'far' if far else 'near'}"
    return file, {"key": place, "local": {"chunk": int(costs["chunk"]), "stream_from": far, "curves": curves}}


def curve_of(entry, algorithm, kind):
    for curve in entry["local"]["curves"]:
        if (curve["algorithm"], curve["kind"]) == (algorithm, kind):
            return curve
    return None


def time_at(curve, size):
    """Returns the time for a number of bytes, like time_at() in points.h."""
    points = [(p["bytes"], p["ns"]) for p in curve["points"]]
    if size <= points[0][0] or len(points) == 1:
        return points[0][1] * max(1, size / points[0][0])
    above = next((i for i in range(1, len(points)) if points[i][0] >= size), len(points) - 1)
    (x, y), (far, high) = points[above - 1:above + 1]
    return y + (size - x) / (far - x) * (high - y)


def put_curves(preset, measured, algorithm):
    """Puts the measured curves of one algorithm into a preset."""
    for curve in measured["local"]["curves"]:
        if curve["algorithm"] != algorithm:
            continue
        ours, theirs = (curve_of(each, STANDARD, curve["kind"]) for each in (preset, measured))
        least, points = 1, []
        for point in curve["points"]:
            least = max(least, round(point["ns"] * time_at(ours, point["bytes"]) / time_at(theirs, point["bytes"])))
            points.append({"bytes": point["bytes"], "ns": least})
        moved = {"algorithm": algorithm, "kind": curve["kind"], "points": points}
        curves = preset["local"]["curves"]
        if (old := curve_of(preset, algorithm, curve["kind"])) is not None:
            curves[curves.index(old)] = moved
        else:
            last = max(i for i, each in enumerate(curves) if each["kind"] == curve["kind"])
            curves.insert(last + 1, moved)


def put(table, entry, algorithm):
    """Puts an entry, or one algorithm of an entry, into the table of a file."""
    entries = table["entries"]
    there = [each for each in entries if each["key"] == entry["key"]]
    if algorithm is None:
        entries[:] = [entry if each in there else each for each in entries] + ([] if there else [entry])
    elif there:
        put_curves(there[0], entry, algorithm)
    else:
        raise SystemExit(f"no preset for {entry['key']['ranks_per_host']} ranks, only for "
                         + ", ".join(str(each["key"]["ranks_per_host"]) for each in entries))


def text(table):
    """Returns the text of the table in the form of the preset files: each key has its line, and
    three points share a line."""
    def curve(of):
        points = [", ".join(map(json.dumps, of["points"][i:i + 3])) for i in range(0, len(of["points"]), 3)]
        return (f'   {{"algorithm": "{of["algorithm"]}", "kind": "{of["kind"]}", "points": [\n    '
                + ",\n    ".join(points) + "]}")

    def costs(entry):
        if "local" in entry:
            local = entry["local"]
            return (f'"local": {{"chunk": {local["chunk"]}, "stream_from": {local["stream_from"]}, "curves": [\n'
                    + ",\n".join(map(curve, local["curves"])) + "\n  ]}")
        messages = entry["messages"]
        return ('"messages": {"steps": [\n' + ",\n".join("   " + json.dumps(step) for step in messages["steps"])
                + f'\n  ], "fold_ns_per_mib": {messages["fold_ns_per_mib"]}}}')

    entries = [f' {{"key": {json.dumps(entry["key"])},\n  {costs(entry)}}}' for entry in table["entries"]]
    return '{"version": 2, "entries": [\n' + ",\n".join(entries) + "\n]}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", type=pathlib.Path, metavar="TABLE.json")
    parser.add_argument("--algorithm", metavar="NAME")
    parser.add_argument("--presets", type=pathlib.Path, default=pathlib.Path(__file__).parent / "presets")
    options = parser.parse_args()
    for path in options.tables:
        for entry in json.loads(path.read_text())["entries"]:
            name, preset = preset_of(entry)
            if options.algorithm is not None and "local" not in preset:
                continue
            file = options.presets / f"{name}.json"
            table = json.loads(file.read_text())
            put(table, preset, options.algorithm)
            file.write_text(text(table))
            print(f"{file}: {preset['key']['ranks_per_host']} ranks")


if __name__ == "__main__":
    main()
