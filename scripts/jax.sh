#!/usr/bin/env bash
# Makes .venv-jax with JAX (CPU) and what its tests need, and installs the package into it.
# Does nothing when all of it is there.
set -euo pipefail
source "$(dirname "$0")/common.sh"
scripts/setup.sh

requirements=scripts/requirements-jax.txt venv=.venv-jax
if [[ ! -x $venv/bin/python ]] || ! cmp -s "$requirements" $venv/requirements.txt; then
  echo "jax: making $venv with: $(grep -v '^#' "$requirements" | tr '\n' ' ')"
  rm -rf $venv
  /usr/bin/python3 -m venv $venv
  $venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$requirements"
  cp "$requirements" $venv/requirements.txt
fi
HCCL_VENV=$venv scripts/python.sh
