#!/usr/bin/env bash
# Sets up, builds, and runs the main job, training on handwritten digits: four ranks in C++, then two in Python.
set -euo pipefail
source "$(dirname "$0")/common.sh"
scripts/setup.sh
configure_and_build release hccl train_digits
echo
echo "== mpirun -np 4 build/release/examples/train_digits --hcom-parallel =="
mpirun -np 4 build/release/examples/train_digits --hcom-parallel "$@"
scripts/python.sh
echo
echo "== mpirun -np 2 .venv/bin/python examples/train_digits.py --split-by-size 80,20 =="
mpirun -np 2 .venv/bin/python examples/train_digits.py --split-by-size 80,20 --epochs 5
