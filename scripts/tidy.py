#!/usr/bin/env python3
"""tidy.py BUILD [--checks=CHECKS] [file...]: runs clang-tidy over the files that BUILD compiles, or
over those of them that are named.

BUILD must be built: its generated headers and its lists of headers (ninja) are used. A file without
errors is checked again only if the file, one of its headers, its command, the configuration or
clang-tidy has changed. The results are kept in $HCCL_TIDY_CACHE, or ~/.cache/hccl-tidy. $JOBS
bounds how many run at once.

Most of the time goes into headers, so files of a target with equal commands are checked together.
If a group has an error, or two of its files cannot be compiled together, each is checked by
itself."""

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
GROUP = 8  # files


def contents(path, known={}):
    """Returns a digest of a file's contents; for a system header, its size, which is enough."""
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
    """Returns, for each object, the files that it was made from."""
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
    text = [extra, " ".join(shlex.split(entry["command"])).replace(ROOT, ".")]  # without quotes, which depend on ROOT
    text += [f"{os.path.relpath(f, ROOT) if f.startswith(ROOT) else f} {contents(f)}" for f in sorted(files)]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()


def object_of(entry):
    return re.search(r" -o (\S+)", entry["command"]).group(1)


def options(entry):
    """Returns the command without the names of the source and the object."""
    words = shlex.split(entry["command"])
    return tuple(w for i, w in enumerate(words) if w != entry["file"] and words[i - 1] != "-o")


def tidy(build, checks, files):
    """Checks the files together. Returns whether they pass, and clang-tidy's output."""
    # The command and configuration of the last file hold for all files of a group.
    before = [f"--extra-arg-before={word}" for file in files[:-1] for word in ("-include", file)]
    # Shows findings in the files and in their headers, but not in headers below the build folder.
    # The pattern begins at the root, because this checkout may itself be below a folder "build".
    plain = re.sub(r"([][.+*?(){}|^$\\])", r"\\\1", build)
    where = f"--exclude-header-filter=^{plain}/|/site-packages/"
    command = [TIDY, "-p", build, "--quiet", where, *checks, *before, files[-1]]
    done = subprocess.run(command, capture_output=True, text=True)
    text = done.stdout.replace(ROOT + "/", "")
    return done.returncode == 0, text or ("" if done.returncode == 0 else done.stderr)


def keep(kept, text):
    if kept is None:
        return
    os.makedirs(os.path.dirname(kept), exist_ok=True)
    with open(f"{kept}.{os.getpid()}", "w", encoding="utf-8") as new:
        new.write(text)
    os.replace(new.name, kept)


def tidy_group(build, checks, files, kept):
    """Returns a pair for each file: whether it passes, and clang-tidy's output."""
    if len(files) > 1:
        good, text = tidy(build, checks, files)
        if good and not text:
            for file in files:
                keep(kept[file], "")
            return [(True, "")] * len(files)
    said = []
    for file in files:
        said.append(tidy(build, checks, [file]))
        if said[-1][0]:
            keep(kept[file], said[-1][1])
    return said


def main():
    build = os.path.abspath(sys.argv[1])
    checks = [a for a in sys.argv[2:] if a.startswith("--checks")]
    named = {os.path.abspath(a) for a in sys.argv[2:] if not a.startswith("--")}
    extra = subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout + str(checks)
    extra += "".join(contents(os.path.join(ROOT, name)) for name in CONFIGURATIONS)
    made_from = headers(build)
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    kept, groups, said = {}, {}, []
    for entry in entries:  # a file that is compiled twice is read once
        file = entry["file"]
        if file.startswith(build) or file in kept or (named and file not in named):
            continue
        files = made_from.get(object_of(entry))
        kept[file] = os.path.join(CACHE, key(entry, files, extra)) if files else None
        if kept[file] and os.path.exists(kept[file]):
            with open(kept[file], encoding="utf-8") as known:
                said.append((True, known.read()))
        else:
            groups.setdefault((os.path.dirname(object_of(entry)), options(entry)), []).append(file)
    known = len(said)
    parts = [files[i : i + GROUP] for files in groups.values() for i in range(0, len(files), GROUP)]
    parts.sort(key=lambda files: -sum(map(os.path.getsize, files)))
    failed = 0
    shown = set()
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS") or os.cpu_count())) as pool:
        for some in [said, *pool.map(lambda files: tidy_group(build, checks, files, kept), parts)]:
            for good, text in some:
                failed += not good
                # A header's findings come with each file that includes it.
                for part in re.split(r"^(?=\S+:\d+:\d+: (?:error|warning):)", text, flags=re.M):
                    if part.strip() and part not in shown:
                        shown.add(part)
                        print(part, end="", flush=True)
    print(f"tidy: {len(kept)} files, {len(kept) - known} read, the others known; {failed} with errors")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
