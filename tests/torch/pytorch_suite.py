"""Runs PyTorch's own tests of distributed backends (torch.testing._internal.distributed) on this backend.

python pytorch_suite.py [--backend NAME] [--ranks N] [unittest's options] [TestBackend.test_...]

Runs all tests that Gloo runs: PyTorch's conditions for tests get Gloo's name, and the tests get the backend's name.
"""

import os
import sys
import tempfile

options = {"--backend": "hccl", "--ranks": "2"}
while len(sys.argv) > 2 and sys.argv[1] in options:
    options[sys.argv[1]] = sys.argv[2]
    del sys.argv[1:3]
# The import below reads CI: if it is set, PyTorch writes reports with a package that it does not install.
os.environ.pop("CI", None)
os.environ.update(
    BACKEND="gloo",
    WORLD_SIZE=options["--ranks"],
    TEMP_DIR=tempfile.mkdtemp(prefix="hccl-suite-"),
    INIT_METHOD="env://",
    OMP_NUM_THREADS="1",
)

import torch
import torch.distributed as dist
from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed import distributed_test

NAME = options["--backend"]
# These tests choose their work by Gloo's name, so only init_process_group gets the backend's name.
NAMED_GLOO = "test_accumulate_gradients_no_sync"

# torch refuses these to every plugin: monitored_barrier requires Gloo by name, and DDP's log calls a plugin "custom".
REFUSED = [
    "test_ddp_logging_data_cpu",
    "test_monitored_barrier_gloo",
    "test_monitored_barrier_gloo_rank_0_timeout",
    "test_monitored_barrier_gloo_subgroup",
]
if NAME != "gloo":
    for test in REFUSED:
        delattr(distributed_test.DistributedTest._DistTestBase, test)


class TestBackend(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        # Forks a process that has imported torch, which is many times faster than spawning.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank, test_name, file_name, pipe, **arguments):
        if test_name.startswith(NAMED_GLOO):
            join = dist.init_process_group
            dist.init_process_group = lambda backend, **rest: join(NAME, **rest)
        else:
            distributed_test.BACKEND = dist.Backend(NAME)
        super()._run(rank, test_name, file_name, pipe, **arguments)


if __name__ == "__main__":
    run_tests()
