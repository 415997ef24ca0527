"""Ready ops, which a wheel contains in compiled form. Without a compiler, only ops that fit are used."""

import platform

import pytest
import ready
import tensorflow as tf
from conftest import on_ranks, run

from hccl.tensorflow.build import MODULE

MINOR = ".".join(tf.__version__.split(".")[:2])
ABI = "cxx11abi1-eigen64"
MACHINE = platform.machine()
DIGEST = MODULE.find().parent.name.rpartition("-")[2]  # of the sources of this environment's ops

PROGRAM = """
import hccl.tensorflow as hvd
import tensorflow as tf

hvd.init()
print("said:", hvd.allreduce(tf.ones(4), op=hvd.Sum).numpy().tolist())
"""


def test_the_ready_ops_are_taken(tmp_path):
    target, variables = ready.package(tmp_path)
    ready.pack(target, MODULE, [f"tensorflow-{minor}-{ABI}-{MACHINE}-{DIGEST}" for minor in ("1.99", MINOR)])
    information = run("-m", "hccl.info", **variables).stdout
    assert "ready in the package" in information, information
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for output in on_ranks(2, program, **variables):
        assert "said: [2.0, 2.0, 2.0, 2.0]" in output and "building" not in output, output
    assert len(list((target / "tensorflow" / "_built").rglob(MODULE.file))) == 1


def test_no_other_ops_are_taken(tmp_path):
    """Ops of another version of TensorFlow, of another C++ ABI, for another machine, or of other sources."""
    target, variables = ready.package(tmp_path)
    others = [
        f"tensorflow-1.99-{ABI}-{MACHINE}-{DIGEST}",
        f"tensorflow-{MINOR}-cxx11abi0-eigen64-{MACHINE}-{DIGEST}",
        f"tensorflow-{MINOR}-{ABI}-sparc-{DIGEST}",
        f"tensorflow-{MINOR}-{ABI}-{MACHINE}-{'0' * 12}",
    ]
    ready.pack(target, MODULE, [*others, f"torch-1.98-cxx11abi1-cpython-399-x86_64-linux-gnu-{DIGEST}"])
    done = run("-m", "hccl.tensorflow.build", **variables)
    assert done.returncode != 0 and not list(target.rglob(f"_built/*/{MODULE.file}")), done.stdout
    assert "cmake is missing" in done.stderr and "Traceback" not in done.stderr, done.stderr
    ends = f"No compiler is needed for tensorflow 1.99, tensorflow {MINOR}"
    assert done.stderr.rstrip().endswith(ends), done.stderr


@pytest.mark.parametrize(
    "version, source, fits",
    [
        ("2.15.0", "v2.15.0-rc1-8-g6887368d6d4", True),
        ("2.15.1", "v2.15.0-11-g63f5a65c7cd", True),
        ("2.15.1", "unknown", False),
        ("2.16.0-rc0", "v2.16.0-rc0", False),
    ],
)
def test_only_releases_of_tensorflow_have_ready_ops(version, source, fits, monkeypatch):
    monkeypatch.setattr(tf, "__version__", version)
    monkeypatch.setattr(tf.version, "GIT_VERSION", source)
    assert MODULE.release() == ("tensorflow-2.15-" + ABI if fits else None)
