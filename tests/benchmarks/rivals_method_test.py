"""The timing loop for libraries finds wrong results, and times hccl without an error.
RIVALS_BUILD names the build folder."""

import os
import subprocess
import sys
import tempfile
import unittest

RIVALS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "benchmarks", "rivals")
sys.path.insert(0, RIVALS)
BUILD = os.environ.get("RIVALS_BUILD", "")

# A library of one rank that runs in a process of its own. Leaving the buffer as it is would be right; each cheat is
# wrong.
CHEAT = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
Open = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int),
                        ctypes.c_void_p)
Run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                       ctypes.c_int)
None_ = ctypes.CFUNCTYPE(ctypes.c_int)
class Library(ctypes.Structure):
    _fields_ = [("open", Open), ("allocate", None_), ("prepare", None_), ("run", Run), ("close", ctypes.CFUNCTYPE(None))]
calls = 0
before = {}
def open_library(_options, rank, size, _version):
    rank[0], size[0] = 0, 1
    return 0
def run(op, kind, send, recv, count, root):
    global calls
    calls += 1
    width = 4 if kind == 0 else 2
    if send != recv:
        ctypes.memmove(recv, send, count * width)
    cheat = sys.argv[2]
    if cheat == "last" and calls == 3:              # one element, in one iteration
        ctypes.memset(recv + (count - 1) * width, 0, width)
    elif cheat == "inner" and calls == 1:           # an element that only the whole check sees
        ctypes.memset(recv + 3 * width, 0, width)
    elif cheat == "stale":                          # the result of the first time, for ever
        first = before.setdefault(count, ctypes.string_at(recv, count * width))
        ctypes.memmove(recv, first, count * width)
    elif cheat == "fails":
        return 1
    return 0
library = Library(Open(open_library), None_(), None_(), Run(run), ctypes.CFUNCTYPE(None)(lambda: None))
words = [word.encode() for word in sys.argv[3:]]
sys.exit(ctypes.CDLL(sys.argv[1]).bench_main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None),
                                             ctypes.byref(library)))
"""


class Method(unittest.TestCase):
    def bench(self, cheat, arguments):
        with tempfile.NamedTemporaryFile() as page:
            command = [f"{BUILD}/benchmarks/libbench_method.so", cheat or "none", "bench", "--page", page.name]
            return subprocess.run(
                [sys.executable, "-B", "-c", CHEAT, *command, "--seconds", "0.001", "--limit", "50", *arguments.split()],
                capture_output=True, text=True, timeout=60,
            )

    def test_right_results(self):
        for kind in ("fp32", "fp16", "bf16"):
            operations = "allreduce,broadcast,allgather,reduce_scatter,alltoall"
            done = self.bench(None, f"--ops {operations} --sizes 4,1K,128K --type {kind}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count('"wrong": 0}'), 15, done.stdout)

    def test_wrong_results_are_found(self):
        for cheat in ("last", "inner", "stale"):
            done = self.bench(cheat, "--ops allreduce --sizes 64")
            self.assertEqual(done.returncode, 3, cheat)
            self.assertNotIn('"wrong": 0}', done.stdout, cheat)

    def test_failure_and_mistakes(self):
        self.assertEqual(self.bench("fails", "--ops allreduce --sizes 64").returncode, 1)
        for mistake in (
            "--ops nothing --sizes 4",
            "--ops allreduce --sizes 4Q",
            "--ops allreduce --sizes 0",
            "--ops allreduce",
            "--seconds",
            "--ops allreduce --sizes 4 --seconds -1",
        ):
            self.assertEqual(self.bench(None, mistake).returncode, 2, mistake)


class Ours(unittest.TestCase):
    def test_two_ranks_time_every_operation_in_the_loop(self):
        from cases import Field
        from runner import Runner
        from settings import our_settings

        runner = Runner("", BUILD, 2)
        ops = "allreduce,broadcast,allgather,reduce_scatter,alltoall,reduce,barrier".split(",")
        for setting in our_settings(2, "shm", ("private", "heap")):
            outcome, version, figures = runner._once(
                setting, Field(2, "shm", "all"), ops, [64, 100000], 0.001, 60
            )
            self.assertEqual(outcome, "ok")
            self.assertIn("libhccl", version)
            self.assertEqual(len(figures), 2 * len(ops) - 1)
            for figure in figures:
                self.assertEqual(figure["wrong"], 0, figure)
                self.assertTrue(figure["us"] > 0 and figure["rewrite_us"] >= 0, figure)
                # If each rank has a processor of its own, line_ns reports how far apart the processors are.
                if len(os.sched_getaffinity(0)) > 1:
                    self.assertTrue(all(0 < ns < 1e6 for ns in figure["line_ns"]), figure)


if __name__ == "__main__":
    unittest.main()
