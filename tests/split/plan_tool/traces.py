"""Makes traces for the tests of hccl-plan, as a training of a real network would record them, in Protobuf's JSON
form."""

import json
import os

MODELS = os.path.join(os.path.dirname(__file__), "..", "..", "..", "benchmarks", "split", "models")


def load_model(name):
    """Returns the bytes and ready times (seconds) of the gradients, their names, and the time of the step."""
    with open(os.path.join(MODELS, name + ".json"), encoding="utf-8") as file:
        model = json.load(file)
    return {"names": [g["name"] for g in model["gradients"]],
            "bytes": [4 * g["elements"] for g in model["gradients"]],
            "ready": [g["ready_ms"] / 1e3 for g in model["gradients"]], "end": model["step_ms"] / 1e3}


def segments(model, plan, start, per_byte):
    """Returns (first, last, bytes, start, end) of each segment, for segments that follow each other on one wire."""
    result, first, free = [], 0, 0.0
    for last in plan:
        size = sum(model["bytes"][first:last + 1])
        begin = max(free, max(model["ready"][:last + 1]))
        free = begin + start + per_byte * size
        result.append((first, last, size, begin, free))
        first = last + 1
    return result


def trace(model, plan, start, per_byte, ranks=4, rank=0, group="hccl_world_group", iterations=3):
    """Returns a trace as rank `rank` records it. Each rank's clock has another zero. Gradients of ranks above 0 are 10
    us early."""
    ns = lambda seconds: round(seconds * 1e9)
    early = 1e-5 * (rank > 0)
    result = []
    for number in range(1, iterations + 1):
        begin = ns(1000 * rank + 2 * number)
        wire = segments(model, plan, start, per_byte)
        result.append({
            "number": number, "begin_ns": begin, "compute_end_ns": begin + ns(model["end"]),
            "marks": [{"name": "fp_start", "time_ns": begin}, {"name": "bp_end", "time_ns": begin + ns(model["end"])},
                      {"name": "iteration_end", "time_ns": begin + ns(max(model["end"], wire[-1][4]) + 0.01)}],
            "gradients": [{"index": i, "name": name, "bytes": size, "ready_ns": begin + ns(max(ready - early, 0))}
                          for i, (name, size, ready) in enumerate(zip(model["names"], model["bytes"], model["ready"]))],
            "segments": [{"first": first, "last": last, "bytes": size, "algorithm": "ring", "start_ns": begin + ns(s),
                          "end_ns": begin + ns(e)} for first, last, size, s, e in wire]})
    return {"version": 1, "rank": rank, "rank_size": ranks, "group": group, "iterations": result}


def write(folder, name, content):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)
    return path
