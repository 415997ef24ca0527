"""Builds the ops for the TensorFlow of this environment: python -m hccl.tensorflow.build"""

from hccl import _build


def _framework():
    import tensorflow

    return f"tensorflow {tensorflow.__version__}"


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
)

if __name__ == "__main__":
    MODULE.main()
