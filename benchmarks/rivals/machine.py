"""The description of this machine."""

import os
import platform
import subprocess


def processors():
    return len(os.sched_getaffinity(0))


def _first(path, key, separator=":"):
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(key):
                    return line.split(separator, 1)[1].strip()
    except OSError:
        pass
    return "unknown"


def _read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def _version(command):
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
        return text.splitlines()[0] if text else "unknown"
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"


def describe():
    return {
        "processor": _first("/proc/cpuinfo", "model name"),
        "family_model": f"{_first('/proc/cpuinfo', 'cpu family')}/{_first('/proc/cpuinfo', 'model')}",
        "processors": processors(),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "system": _first("/etc/os-release", "PRETTY_NAME", "=").strip('"'),
        "compiler": _version(["cc", "--version"]),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "shared_huge_pages": _read("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        "load": os.getloadavg()[0],
        "revision": _version(
            [
                "git",
                "-C",
                os.path.dirname(os.path.abspath(__file__)),
                "describe",
                "--always",
                "--dirty",
            ]
        ),
    }
