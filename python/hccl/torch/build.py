"""Builds the backend for the torch of this Python environment: python -m hccl.torch.build"""

import re
import sysconfig
from typing import Optional

from hccl import _build

_OLDEST = (2, 13)  # the oldest torch for which src/ compiles


def _framework() -> str:
    import torch

    return f"torch {torch.__version__}"


def _release() -> Optional[str]:
    """Returns the part of a ready module's name that describes torch. The releases of a minor
    version share one ABI. Returns None if this torch is not an official build of a release, because
    its ABI is then unknown."""
    import torch

    found = re.fullmatch(r"(\d+\.\d+)\.\d+(\+(cpu|cu\d+|rocm[\d.]+|xpu))?", torch.__version__)
    return f"torch-{found[1]}-cxx11abi{int(torch.compiled_with_cxx11_abi())}" if found else None


def _too_old() -> Optional[str]:
    import torch

    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) >= _OLDEST:
        return None
    return f"PyTorch {torch.__version__} is older than 2.13: install PyTorch 2.13 or later"


def _options() -> list[str]:
    import torch
    from torch.utils import cpp_extension

    includes = [
        *cpp_extension.include_paths(),
        sysconfig.get_path("include"),
        str(_build.HEADERS),
    ]
    return [
        f"-DCMAKE_CXX_FLAGS=-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-DHCCL_TORCH_INCLUDES={';'.join(includes)}",
        f"-DHCCL_TORCH_LIBRARIES={';'.join(cpp_extension.library_paths())}",
        f"-DHCCL_TORCH_LIBRARY={_build.library('libhccl.so.*')}",
        f"-DHCCL_TORCH_OPTIM={_build.library('libhccl_optim.so')}",
        f"-DHCCL_TORCH_SUFFIX={sysconfig.get_config_var('EXT_SUFFIX')}",
    ]


MODULE = _build.Module(
    title="PyTorch backend",
    folder="torch",
    file=f"_backend{sysconfig.get_config_var('EXT_SUFFIX')}",
    framework=_framework,
    options=_options,
    takes="a minute or two",
    release=_release,
    too_old=_too_old,
)

if __name__ == "__main__":
    MODULE.main()
