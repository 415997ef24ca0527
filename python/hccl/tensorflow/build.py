"""Builds the ops for the TensorFlow of this environment: python -m hccl.tensorflow.build"""

import platform
import re

from hccl import _build


def _framework():
    import tensorflow

    return f"tensorflow {tensorflow.__version__}"


def _release():
    """Returns the part of a ready library's name that describes TensorFlow, or None if this
    TensorFlow is not an official build of a release, because its ABI is then unknown."""
    import tensorflow

    flags = " ".join(tensorflow.sysconfig.get_compile_flags())
    abi = re.search(r"CXX11_ABI=(\d).*EIGEN_MAX_ALIGN_BYTES=(\d+)", flags)
    found = re.fullmatch(r"(\d+\.\d+)\.\d+", tensorflow.__version__)
    if not (abi and found and tensorflow.version.GIT_VERSION.startswith(f"v{found[1]}.")):
        return None
    return f"tensorflow-{found[1]}-cxx11abi{abi[1]}-eigen{abi[2]}"


def _options():
    import tensorflow

    flags = tensorflow.sysconfig.get_compile_flags()
    includes = [flag[2:] for flag in flags if flag.startswith("-I")]
    definitions = [flag[2:] for flag in flags if flag.startswith("-D")]
    folder = tensorflow.sysconfig.get_lib()
    library = next(
        flag[3:] for flag in tensorflow.sysconfig.get_link_flags() if flag.startswith("-l:")
    )
    return [
        f"-DHCCL_TF_INCLUDES={';'.join([*includes, str(_build.HEADERS)])}",
        f"-DHCCL_TF_DEFINITIONS={';'.join(definitions)}",
        f"-DHCCL_TF_LIBRARY={folder}/{library}",
        f"-DHCCL_TF_HCCL={_build.library('libhccl.so.*')}",
    ]


MODULE = _build.Module(
    title="TensorFlow ops",
    folder="tensorflow",
    file="_ops.so",
    framework=_framework,
    options=_options,
    takes="a minute",
    release=_release,
    abi=platform.machine(),  # the ops do not use Python's ABI
)

if __name__ == "__main__":
    MODULE.main()
