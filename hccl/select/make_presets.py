#!/usr/bin/env python3
"""make_presets.py OUTPUT FILE...: tune files (JSON) as a C++ table, for presets.h."""

import json
import sys

NEVER = "local::Tuning{}.stream_from"


def text(value):
    return json.dumps(value)


def flag(value):
    return "true" if value else "false"


def local(costs):
    curves = []
    for curve in costs["curves"]:
        points = ", ".join(f"{{{int(p['bytes'])}, {int(p['ns'])}}}" for p in curve["points"])
        kind = "Kind::k" + curve["kind"].capitalize()
        curves.append(f"Curve{{{text(curve['algorithm'])}, {kind}, {{{points}}}}}")
    stream_from = int(costs.get("stream_from", 0)) or NEVER
    return f"LocalCosts{{{{{', '.join(curves)}}}, {{{int(costs['chunk'])}, {stream_from}}}}}"


def messages(costs):
    steps = ", ".join(f"{{{int(s['bytes'])}, {int(s['step_ns'])}, {int(s['more_ns'])}}}" for s in costs["steps"])
    lanes = ", ".join(f"{{{int(a['lanes'])}, {int(a['saved_percent'])}}}" for a in costs.get("lanes", []))
    return f"MessageCosts{{{{{steps}}}, {int(costs['fold_ns_per_mib'])}, {{{lanes}}}}}"


def entry(item):
    key = item["key"]
    words = [text(key[k]) for k in ("library", "cpu", "transport")]
    numbers = [str(int(key[k])) for k in ("hosts", "ranks_per_host")]
    flags = [flag(key.get(k, False)) for k in ("shared_cores", "kernel_copies")]
    parts = [f"{{{', '.join(words + numbers + flags)}}}",
             local(item["local"]) if "local" in item else "{}",
             messages(item["messages"]) if "messages" in item else "{}"]
    return f"    CostEntry{{{', '.join(parts)}}},\n"


def main():
    output, files = sys.argv[1], sys.argv[2:]
    entries = []
    for path in files:
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
        if table["version"] != 2:
            sys.exit(f"{path}: version 2 is expected")
        entries += [entry(item) for item in table["entries"]]
    with open(output, "w", encoding="utf-8") as file:
        file.write('#include "hccl/select/presets.h"\n\nnamespace hccl::select {\n\n'
                   "const CostTable& presets() {\n  static const CostTable kTable{{\n"
                   + "".join(entries) + "  }};\n  return kTable;\n}\n\n}  // namespace hccl::select\n")


if __name__ == "__main__":
    main()
