#!/usr/bin/env bash
# Makes an environment with TensorFlow 2.15.1, this library and Horovod 0.28.1 (about 8 minutes), and runs
# benchmarks/tensorflow/bench.py in it, with the given options.
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"
environment=build/venv-bench-tf
if [[ ! -e $environment/ready ]]; then
  /usr/bin/python3 -m venv "$environment"
  pip=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check)
  "${pip[@]}" -r scripts/requirements-tf215.txt 'setuptools<80' wheel cloudpickle psutil
  # Builds Horovod for TensorFlow only, over MPI, because Horovod's Gloo does not configure with CMake 4.
  CMAKE_POLICY_VERSION_MINIMUM=3.5 HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 \
    HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 "${pip[@]}" --no-build-isolation --no-deps horovod==0.28.1
  touch "$environment/ready"
fi
HCCL_VENV=$environment scripts/python.sh
[[ -n ${HCCL_BUILD_DIR-} ]] || configure_and_build release hccl-plan
"$environment/bin/python" -m hccl.tensorflow.build
exec "$environment/bin/python" benchmarks/tensorflow/bench.py "$@"
