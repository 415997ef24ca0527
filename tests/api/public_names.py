#!/usr/bin/env python3
"""public_names.py ROOT: counts how many of the names of HCCL and acl that public clients use are in the headers, and
prints the missing names. Fails if a name is not in the header that the table gives, unless the table marks the name
"absent", or if a name marked "absent" is there."""

import csv
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
INCLUDE = re.compile(r'#include [<"]([\w/]+\.h)[">]')


def words(header, seen):
    """Returns the words of a header and of the headers that it includes, without comments."""
    path = ROOT / "hccl" / header if header.startswith("acl/") else ROOT / header
    if path in seen or not path.exists():
        return set()
    seen.add(path)
    text = COMMENT.sub("", path.read_text(encoding="utf-8"))
    found = set(re.findall(r"\w+", text))
    folder = header[: header.rfind("/") + 1]
    included = [each if "/" in each else folder + each for each in INCLUDE.findall(text)]
    return found.union(*(words(each, seen) for each in included))


def main():
    with open(ROOT / "tests/api/public_names.tsv", encoding="utf-8") as file:
        lines = (line for line in file if not line.startswith("#"))
        rows = [[*row, ""][:4] for row in csv.reader(lines, delimiter="\t")]
    declared = {header: words(header, set()) for header in {row[1] for row in rows}}
    lacking = [row for row in rows if row[0] not in declared[row[1]]]
    for name, header, project, _ in lacking:
        print(f"lacks {name} of {header}, which {project} uses")
    print(f"{len(rows) - len(lacking)} of {len(rows)} names")
    wrong = [row[0] for row in rows if (row in lacking) != (row[3] == "absent")]
    return f"not as the table says: {' '.join(wrong)}" if wrong else None


sys.exit(main())
