"""Fixtures of the tests of Ray: one local Ray, whose setup hook registers the backend."""

import os
import pathlib
import uuid

import pytest
import ray

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT = 120  # seconds; for a hang, not for speed


@pytest.fixture(scope="session", autouse=True)
def cluster():
    environment = {"PYTHONPATH": str(HERE), "HCCL_CONNECT_TIMEOUT": "60", "OMP_NUM_THREADS": "1"}
    hook = {"worker_process_setup_hook": "hccl.ray.register", "env_vars": environment}
    os.environ["RAY_AUTH_TOKEN"] = uuid.uuid4().hex  # without a token Ray would write one into the home folder
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 2**20,
        runtime_env=hook,
    )
    yield
    ray.shutdown()


@pytest.fixture
def group():
    """Returns a name that no other test has."""
    return f"group-{uuid.uuid4().hex}"
