#!/usr/bin/env bash
# Builds the Python package around the library of $HCCL_BUILD_DIR and installs it into .venv (or $HCCL_VENV).
# Does nothing when neither the package nor the library has changed.
set -euo pipefail
source "$(dirname "$0")/common.sh"
build=${HCCL_BUILD_DIR:-build/release} venv=${HCCL_VENV:-.venv}
scripts/setup.sh

if [[ $build == build/release ]]; then
  configure_and_build release hccl hccl_optim hccl_jax hccl_pmix hccl_ofi hccl_mpi
fi
contents() {
  find pyproject.toml python hccl/*.h hccl/acl -type f -not -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum
  stat -c '%n %s %Y' "$build"/lib/libhccl*.so
}
stamp=$venv/hccl.installed
if [[ -f $stamp && $(contents) == "$(<"$stamp")" ]]; then
  echo "python: hccl is installed in $venv"
  exit
fi

prefix=$PWD/$build-install
rm -rf "$prefix"
for component in library plugins development; do
  "$cmake" --install "$build" --prefix "$prefix" --component "$component" >/dev/null
done
CMAKE_EXECUTABLE=$cmake CMAKE_BUILD_PARALLEL_LEVEL=$jobs "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
  --force-reinstall --config-settings=cmake.define.hccl_ROOT="$prefix" \
  --config-settings=build-dir="build/python/{wheel_tag}" .  # kept for the next time
contents >"$stamp"
echo "python: installed hccl in $venv"
