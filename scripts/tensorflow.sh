#!/usr/bin/env bash
# Makes .venv-tf215 and .venv-tf221 with TensorFlow (CPU), installs the package into them, and builds the ops.
# Does nothing when all of it is there.
set -euo pipefail
source "$(dirname "$0")/common.sh"
scripts/setup.sh

for version in 215 221; do
  venv=.venv-tf$version
  make_venv $venv scripts/requirements-tf$version.txt
  HCCL_VENV=$venv scripts/python.sh
  CMAKE_EXECUTABLE=$cmake CMAKE_BUILD_PARALLEL_LEVEL=$jobs $venv/bin/python -m hccl.tensorflow.build
done
