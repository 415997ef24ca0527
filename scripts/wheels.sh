#!/usr/bin/env bash
# Builds the wheels of the Python packages hccl and hccl-ascend, and the source package of hccl, into the folder dist.
# The wheels need glibc 2.34, but no compiler and no C++ libraries of the host: they contain fmt, Protobuf, and compiled
# modules for some versions of PyTorch and TensorFlow (scripts/modules.py). The plugins for PMIx, MPI and libfabric load
# where these libraries are installed. For Debian 12: a newer glibc gives wheels that need this newer glibc.
#   scripts/wheels.sh [VERSION...]     of Python; default: 3.10 3.11 3.12; the wheel of 3.12 serves all later ones, too
# Each Python is taken from PATH (python3.11) or from pyenv, and needs no pip. Symbols for debuggers:
# build/wheels/symbols. Older wheels for the same Python are removed from dist.
set -euo pipefail
source "$(dirname "$0")/common.sh"
versions=("$@")
((${#versions[@]})) || versions=(3.10 3.11 3.12)

# python_of VERSION: prints the path of its interpreter.
python_of() {
  local found
  for found in "$(command -v "python$1")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if [[ $found ]] && "$found" -c '' 2>/dev/null; then  # pyenv may have a shim for a version that it lacks
      echo "$found"
      return
    fi
  done
}
look() {
  local version
  for version in "${versions[@]}"; do
    if [[ ! $version =~ ^3\.[0-9]+$ ]]; then
      echo "wheels: \"$version\" is no version of Python, such as 3.11" >&2
      exit 2
    fi
    if [[ -z $(python_of "$version") ]]; then
      echo "wheels: there is no python$version in PATH or in pyenv" >&2
      exit 1
    fi
  done
}
# The set-up takes minutes, so a missing Python is reported before, unless the set-up itself may install one.
if [[ -x /usr/bin/python3 ]]; then look; fi
scripts/setup.sh
look

made=build/wheels prefix=$PWD/build/wheels/prefix
rm -rf "$prefix" "$made/raw" "$made/symbols"
mkdir -p "$made/symbols" dist
make_venv "$made/tools" scripts/requirements-wheels.txt

configure_and_build release hccl hccl_files hccl_optim hccl_jax hccl_pmix hccl_ofi hccl_mpi hccl_perf hccl_plan
for component in library plugins development symbols programs; do
  "$cmake" --install build/release --prefix "$prefix" --component "$component" >/dev/null
done
mv "$prefix"/lib*/*.debug "$made/symbols"

# Lists the Pythons of each wheel. 3.12 and later share a wheel, which has modules for each named Python. If 3.12 is
# named and Python 3.13 is installed, the wheel has modules for 3.13, too.
pythons=() later=()
for version in "${versions[@]}"; do
  these=$(python_of "$version")
  if ((${version#3.} < 12)); then pythons+=("$these"); else later+=("$these"); fi
  if [[ $version == 3.12 ]] && these=$(python_of 3.13) && [[ $these ]]; then later+=("$these"); fi
done
if ((${#later[@]})); then pythons+=("$(printf '%s\n' "${later[@]}" | awk '!seen[$0]++' | paste -sd,)"); fi
CMAKE_EXECUTABLE=$cmake CMAKE_BUILD_PARALLEL_LEVEL=$jobs .venv/bin/python scripts/modules.py "$prefix" "$PWD/$made" \
  "${pythons[@]}"

# The plugins use the host's own MPI, PMIx and libfabric. `auditwheel show` knows no exclusions, so it says linux_x86_64
# for wheels with these plugins. The plugins must name these libraries. Otherwise the libraries would have to be in the
# global scope, where their symbols and those of their dependencies, such as libevent and hwloc, come before other
# libraries' symbols. Also, glibc aborts if a symbol's version belongs to a library that is not loaded.
excluded=() number=0
for library in libmpi.so.40 libpmix.so.2 libfabric.so.1; do excluded+=(--exclude "$library"); done
for these in "${pythons[@]}"; do
  ready=$PWD/$made/ready/$((++number)).tar.xz
  CMAKE_EXECUTABLE=$cmake CMAKE_BUILD_PARALLEL_LEVEL=$jobs "$made/tools/bin/python" -m pip --python "${these%%,*}" \
    wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$made/raw" \
    --config-settings=cmake.define.hccl_ROOT="$prefix" --config-settings=cmake.define.HCCL_READY="$ready" \
    --config-settings=build-dir="$made/{wheel_tag}" --config-settings=install.components=python .
done
for wheel in "$made"/raw/*.whl; do
  IFS=- read -r _ _ python abi _ <<<"${wheel##*/}"
  rm -f dist/hccl-*-"$python-$abi"-*"$(uname -m).whl"
  PATH=$PWD/$made/tools/bin:$PATH auditwheel repair "$wheel" --plat "manylinux_2_34_$(uname -m)" \
    --strip "${excluded[@]}" --wheel-dir dist
done
rm -f dist/hccl_ascend-*.whl
.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir dist \
  python/ascend
.venv/bin/python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'
ls -l dist
