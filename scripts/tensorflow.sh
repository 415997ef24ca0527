#!/usr/bin/env bash
# Makes .venv-tf215 and .venv-tf221 with TensorFlow (CPU), installs the package into them, and builds the ops.
# Does nothing when all of it is there.
set -euo pipefail
source "$(dirname "$0")/common.sh"
scripts/setup.sh

for version in 215 221; do
  requirements=scripts/requirements-tf$version.txt venv=.venv-tf$version
  if [[ ! -x $venv/bin/python ]] || ! cmp -s "$requirements" $venv/requirements.txt; then
    echo "tensorflow: making $venv with: $(grep -v '^#' "$requirements" | tr '\n' ' ')"
    rm -rf $venv
    /usr/bin/python3 -m venv $venv
    $venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$requirements"
    cp "$requirements" $venv/requirements.txt
  fi
  HCCL_VENV=$venv scripts/python.sh
  CMAKE_EXECUTABLE=$cmake CMAKE_BUILD_PARALLEL_LEVEL=$jobs $venv/bin/python -m hccl.tensorflow.build
done
