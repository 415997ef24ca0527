"""What `import torch` loads, and how the backend is found. Since PyTorch 2.14 torch registers it at its first use."""

import pytest
import torch.distributed as dist

LATER = hasattr(dist.Backend, "_ensure_backend_registered")
START = """
import datetime, torch, torch.distributed as dist
def join(*names):
    dist.init_process_group(*names, store=dist.HashStore(), rank=0, world_size=1)
"""
END = """
from hccl.torch import _module
group = dist.group.WORLD if _module.backend_of(dist.group.WORLD) else group
print(type(_module.backend_of(group)).__module__)
dist.all_reduce(torch.ones(4), group=group)
"""
COMPILED, PYTHON = "hccl.torch._backend", "hccl.torch._python"
WAYS = {
    "the name": "join('hccl')",
    "a device": "join('cpu:hccl')",
    "the default": "dist.Backend.default_device_backend_map['cpu'] = 'hccl'; join()",
    "a group": "join('gloo'); group = dist.new_group(backend='hccl')",
    "as_gloo": "import hccl.torch; hccl.torch.as_gloo(); join('gloo')",
    "HCCL_AS_GLOO": "join('gloo')",
}
if LATER:
    taken = "dist.Backend.register_backend('hccl', lambda *_: None, devices=['npu'])\n"
    WAYS["the other name"] = taken + "join('hccl_cpu')"
    WAYS["the other name, first"] = "assert dist.is_backend_available('hccl_cpu'); join('hccl_cpu')"


def test_import_loads_one_module_and_starts_nothing(python):
    done = python(
        "import sys, threading, torch, torch.distributed as dist\n"
        "print(*sorted(each for each in sys.modules if 'hccl' in each))\n"
        "print(threading.active_count(), dist.Backend.default_device_backend_map['cpu'])\n"
    )
    modules, others = done.stdout.splitlines()
    if LATER:
        assert modules == "_hccl_torch"
    else:  # this torch knows only backends that are registered
        assert "hccl.torch._register" in modules and "hccl._hccl" not in modules
    assert others == "1 gloo", done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_the_backend(python, way):
    done = python(START + WAYS[way] + END, **({way: "1"} if way.isupper() else {}))
    assert done.stdout.split() == [COMPILED], done.stderr


@pytest.mark.parametrize("form", [COMPILED, PYTHON])
def test_every_form(python, form):
    done = python(START + "join('hccl')" + END, HCCL_TORCH_FORM="python" if form == PYTHON else "native")
    assert done.stdout.split() == [form], done.stderr


def test_what_a_program_takes_before_the_first_group(python):
    """It imports functions of torch that the backend replaces, and registers an exit handler that uses the group."""
    done = python(
        START + "import atexit\n"
        "from torch.distributed import shrink_group\n"
        "from torch.distributed.distributed_c10d import _set_pg_timeout\n"
        "atexit.register(lambda: dist.all_reduce(torch.ones(1)) or print('alive'))\n"
        "join('hccl')\n"
        "_set_pg_timeout(datetime.timedelta(seconds=77))\n"
        "print(dist.group.WORLD._get_backend(torch.device('cpu')).options._timeout.seconds)\n"
        "shrink_group([])\n"
        "print(dist.group.WORLD.group_desc)\n"
    )
    assert done.stdout.split() == ["77", "default:shrunken", "alive"], done.stderr
