#!/usr/bin/env bash
# Makes .venv-vllm with vLLM (CPU), installs the package into it, and builds the backend for PyTorch.
# Does nothing when all of it is there. Needs 4 GB of disk.
set -euo pipefail
source "$(dirname "$0")/common.sh"
scripts/setup.sh

venv=.venv-vllm
make_venv $venv scripts/requirements-vllm.txt
# These packages are builds for GPUs (no index for CPUs is used), which do not load; text models do not need them.
$venv/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
HCCL_VENV=$venv scripts/python.sh
CMAKE_EXECUTABLE=$cmake CMAKE_BUILD_PARALLEL_LEVEL=$jobs $venv/bin/python -m hccl.torch.build
