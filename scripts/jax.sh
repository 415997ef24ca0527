#!/usr/bin/env bash
# Makes .venv-jax with JAX (CPU) and the packages that its tests need, and installs the package into it.
# Does nothing when all of it is there.
set -euo pipefail
source "$(dirname "$0")/common.sh"
scripts/setup.sh

make_venv .venv-jax scripts/requirements-jax.txt
HCCL_VENV=.venv-jax scripts/python.sh
