"""A process that the tests fork begins and ends like a process that Python starts."""

import os

import pytest
from conftest import run

AT_EXIT = """
import atexit

class Last:
    def __del__(self):
        print("the end")

last = Last()
atexit.register(print, "at exit")
print("first")
"""
HERE = """
import json, os, sys
print(json.dumps([__name__, sys.argv, sys.path, os.getcwd(), dict(os.environ), __file__]))
"""


@pytest.mark.parametrize(
    "text",
    [
        AT_EXIT,
        "raise SystemExit(3)",
        "raise SystemExit('a reason')",
        "open('/no/file')",
        "import os; print('lost'); os._exit(4)",
        "import os; print('lost'); os.kill(os.getpid(), 9)",
        "import os, signal; signal.signal(2, signal.default_int_handler); os.kill(os.getpid(), 2)",
    ],
)
def test_its_end_is_the_same(text):
    forked, fresh = run("-c", text), run("-c", text, fresh=True)
    assert (forked.returncode, forked.stdout) == (fresh.returncode, fresh.stdout)
    assert forked.stderr.splitlines()[-1:] == fresh.stderr.splitlines()[-1:]


def test_what_a_program_is_told_is_the_same(tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(HERE)
    monkeypatch.chdir(tmp_path)
    told = {fresh: run("program.py", "--word", RANK_ID="7", fresh=fresh) for fresh in (True, False)}
    assert told[True].stdout == told[False].stdout and '"RANK_ID": "7"' in told[True].stdout, told


def test_one_has_imported_tensorflow_and_is_alone_with_its_numbers():
    text = """
import os, sys
began = len(os.listdir("/proc/self/task")), "tensorflow" in sys.modules, "hccl" in sys.modules
import random, numpy, tensorflow as tf
print(*began, random.random(), numpy.random.rand(), *tf.random.normal([2]).numpy(), sep="\\n")
"""
    several = [run("-c", text).stdout.split() for _ in range(3)]  # from two servers
    assert all(each[:3] == ["1", "True", "False"] for each in several), several
    assert all(len(set(numbers)) == 3 for numbers in list(zip(*several))[3:]), several
