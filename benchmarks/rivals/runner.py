"""Runs one setting of one library once, within a time limit, and reads the output."""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from cases import size_text
from settings import launch


FACTOR = 1.7  # if a cache line takes this many times as long, the processors moved; as in method.c


def moved(figure):
    """Returns whether the machine changed its state while the figure was measured."""
    ns = figure.get("line_ns", [0])
    return max(ns) > FACTOR * min(ns)


class Runner:
    def __init__(self, rivals, build, processors, prefix=(), repeats=2):
        self._rivals, self._build, self._processors = rivals, build, processors
        self._prefix, self._repeats = list(prefix), repeats

    def run(self, setting, field, ops, sizes, seconds, limit):
        """Runs a setting. Returns a record for the raw results: the setting, the outcome and a list
        of figures. Repeats the run if the machine changed its state."""
        for attempt in range(self._repeats + 1):
            outcome, version, figures = self._once(setting, field, ops, sizes, seconds, limit)
            if outcome != "ok" or not any(map(moved, figures)):
                break
        return {
            "field": field.name,
            "ranks": field.ranks,
            "transport": field.transport,
            "library": setting.library,
            "setting": setting.name,
            "version": version,
            "outcome": outcome,
            "attempts": attempt + 1,
            "figures": figures,
        }

    def _once(self, setting, field, ops, sizes, seconds, limit):
        arguments = ["--ops", ",".join(ops), "--sizes", ",".join(map(size_text, sizes))]
        arguments += ["--type", field.type, "--seconds", str(seconds)]
        arguments += ["--limit", str(int(limit) + 2)]
        place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="hccl-bench-", dir=place) as folder:
            page = os.path.join(folder, "page")
            open(page, "w").close()
            what = launch(
                setting, field.ranks, arguments, page, self._rivals, self._build, self._processors
            )
            try:
                text, codes, late = self._execute(what, folder, limit)
            except OSError as problem:
                return f"failed: {problem}", "", []
        version, figures = read_figures(text)
        wrong = any(figure["wrong"] for figure in figures)
        if wrong:
            return "wrong results", version, figures
        if late:
            return f"ended after {limit:g} s", version, figures
        if any(codes) or not figures:
            return "failed: " + last_words(text), version, figures
        return "ok", version, figures

    def _execute(self, what, folder, limit):
        """Runs the commands. Returns all output, the exit codes, and whether the run exceeded its
        time."""
        output = os.path.join(folder, "output")
        processes = []
        with open(output, "w") as file:
            try:
                for command, own in zip(what.commands, what.of_rank):
                    environment = {**os.environ, **what.environment, **own}
                    processes.append(
                        subprocess.Popen(
                            [*self._prefix, *command],
                            stdin=subprocess.DEVNULL,
                            stdout=file,
                            stderr=subprocess.STDOUT,
                            env=environment,
                            start_new_session=True,
                        )
                    )
                end = time.monotonic() + limit
                late = failed = False
                while any(process.poll() is None for process in processes):
                    if not failed and any(process.poll() for process in processes):
                        failed = True
                        end = min(end, time.monotonic() + 5)  # after a failure the other ranks get little time
                    if time.monotonic() > end:
                        late = True
                        break
                    time.sleep(0.02)
            finally:
                for process in processes:
                    end_group(process)
        with open(output, errors="replace") as file:
            text = file.read()
        codes = [process.returncode for process in processes]
        return text, codes, late and not failed


def end_group(process):
    """Ends the launcher. Sends SIGTERM before SIGKILL, so that the launcher can end its ranks. The
    ranks also die when their launcher dies."""
    for sign, patience in ((signal.SIGTERM, 2), (signal.SIGKILL, 5)):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)


def read_figures(text):
    """Returns (version, figures) from the lines "BENCH {json}". A launcher may have put a prefix
    before them."""
    version, figures = "", []
    for match in re.finditer(r"BENCH (\{[^{}]*\})", text):
        try:
            entry = json.loads(match.group(1))
        except ValueError:
            continue
        if "version" in entry:
            version = " ".join(entry["version"].split())
        elif "us" in entry:
            figures.append(entry)
    return version, figures


def last_words(text):
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip(" -=") and not line.startswith("BENCH ")
    ]
    for line in lines:
        if re.search(r"bench:|hccl:|rror", line):
            return line[:200]
    return lines[-1][:200] if lines else "without a word"
