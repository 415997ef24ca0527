#!/usr/bin/env python3
"""tidy.py BUILD [--checks=CHECKS] [file...]: clang-tidy over what BUILD compiles, or over the named files of it.

BUILD must be built: its generated headers and its lists of headers (ninja) are used. A file that had no errors is
read again only when it, a header of it, its command, the configuration or clang-tidy has changed; what is known is
kept in $HCCL_TIDY_CACHE, or ~/.cache/hccl-tidy. $JOBS bounds how many run at once."""

import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIDY = os.path.join(ROOT, ".venv/bin/clang-tidy")
CACHE = os.environ.get("HCCL_TIDY_CACHE") or os.path.expanduser("~/.cache/hccl-tidy")
CONFIGURATIONS = (".clang-tidy", "tests/.clang-tidy")


def contents(path, known={}):
    """What a file holds, as a digest; of a system's header, its size is enough."""
    if path not in known:
        try:
            if path.startswith(ROOT):
                with open(path, "rb") as file:
                    known[path] = hashlib.sha256(file.read()).hexdigest()
            else:
                known[path] = str(os.path.getsize(path))
        except OSError:
            known[path] = "missing"
    return known[path]


def headers(build):
    """Object: the files it was made from."""
    found, current = {}, None
    text = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        if line.startswith("    "):
            current.append(os.path.normpath(os.path.join(build, line.strip())))
        elif line.endswith("(VALID)"):
            current = found.setdefault(line.split(": ")[0], [])
        else:
            current = []
    return found


def key(entry, files, extra):
    text = [extra, " ".join(shlex.split(entry["command"])).replace(ROOT, ".")]  # as quoted as ROOT needs it
    text += [f"{os.path.relpath(f, ROOT) if f.startswith(ROOT) else f} {contents(f)}" for f in sorted(files)]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()


def tidy(build, checks, file, kept):
    """Whether the file passes, what is said of it, and whether clang-tidy had to run."""
    if kept and os.path.exists(kept):
        with open(kept, encoding="utf-8") as known:
            return True, known.read(), False
    done = subprocess.run([TIDY, "-p", build, "--quiet", *checks, file], capture_output=True, text=True)
    text = done.stdout.replace(ROOT + "/", "")
    if done.returncode == 0 and kept:
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        with open(f"{kept}.{os.getpid()}", "w", encoding="utf-8") as new:
            new.write(text)
        os.replace(new.name, kept)
    return done.returncode == 0, text or ("" if done.returncode == 0 else done.stderr), True


def main():
    build = os.path.abspath(sys.argv[1])
    checks = [a for a in sys.argv[2:] if a.startswith("--checks")]
    named = {os.path.abspath(a) for a in sys.argv[2:] if not a.startswith("--")}
    extra = subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout + str(checks)
    extra += "".join(contents(os.path.join(ROOT, name)) for name in CONFIGURATIONS)
    made_from = headers(build)
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    work = {}
    for entry in entries:  # a file that is compiled twice is read once
        file = entry["file"]
        if file.startswith(build) or (named and file not in named):
            continue
        files = made_from.get(re.search(r" -o (\S+)", entry["command"]).group(1))
        kept = os.path.join(CACHE, key(entry, files, extra)) if files else None
        work.setdefault(file, kept)
    order = sorted(work, key=os.path.getsize, reverse=True)
    failed = ran = 0
    said = set()
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS") or os.cpu_count())) as pool:
        for good, text, new in pool.map(lambda file: tidy(build, checks, file, work[file]), order):
            failed += not good
            ran += new
            # A header's findings come with each file that includes it.
            for part in re.split(r"^(?=\S+:\d+:\d+: (?:error|warning):)", text, flags=re.M):
                if part.strip() and part not in said:
                    said.add(part)
                    print(part, end="", flush=True)
    print(f"tidy: {len(work)} files, {ran} read, the others known; {failed} with errors")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
