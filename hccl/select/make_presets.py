#!/usr/bin/env python3
"""make_presets.py OUTPUT FILE...: writes tune files (JSON) as a C++ table, for presets.h."""

import json
import sys

NEVER = "local::Tuning{}.stream_from"
TEXTS = ("library", "cpu", "transport", "algorithm")
TYPES = {"local": "LocalCosts", "messages": "MessageCosts"}  # the types of optional members


def literal(name, value):
    """Returns the C++ initializer of a JSON value. Protobuf writes 64-bit numbers as strings."""
    if isinstance(value, dict):
        if name == "local":  # C++ has these numbers in a structure of their own
            tuning = {"chunk": value["chunk"], "stream_from": value.get("stream_from", 0)}
            value = {"curves": value["curves"], "tuning": tuning}
        return TYPES.get(name, "") + "{" + ", ".join(f".{k} = {literal(k, v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(literal("", each) for each in value) + "}"
    if name == "kind":
        return "CurveKind::k" + value.capitalize()
    if name in TEXTS or isinstance(value, bool):
        return json.dumps(value)
    return NEVER if name == "stream_from" and int(value) == 0 else str(int(value))


def main():
    output, files = sys.argv[1], sys.argv[2:]
    entries = []
    for path in files:
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
        if table["version"] != 2:
            sys.exit(f"{path}: version 2 is expected")
        entries += [literal("", entry) for entry in table["entries"]]
    with open(output, "w", encoding="utf-8") as file:
        file.write('#include "hccl/select/presets.h"\n\nnamespace hccl::select {\n\n'
                   "namespace {\n// One function for each entry, so that small stacks have room for one entry.\n")
        for i, entry in enumerate(entries):
            file.write(f"[[gnu::noinline]] void put{i}(CostTable& table) {{\n  table.entries.push_back({entry});\n}}\n")
        file.write("}  // namespace\n\nconst CostTable& presets() {\n"
                   "  // Never destroyed: threads outlive main().\n"
                   "  static const auto* const table = [] {\n    auto* const made = new CostTable;\n"
                   + "".join(f"    put{i}(*made);\n" for i in range(len(entries)))
                   + "    return made;\n  }();\n  return *table;\n}\n\n}  // namespace hccl::select\n")


if __name__ == "__main__":
    main()
