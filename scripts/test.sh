#!/usr/bin/env bash
# Sets up, builds, and runs every test: the whole suite as users get it, from C, C++ and Python, then under
# the address and undefined-behaviour sanitizers, then the parts with threads under the thread sanitizer.
#   scripts/test.sh [release] [python] [asan] [tsan]      default: all of them
set -euo pipefail
source "$(dirname "$0")/common.sh"
steps=${*:-release python asan tsan}
scripts/setup.sh

# The programs whose ranks are threads.
threads=(acl agreement api collectives comm exchange fusion fusion_auto handles heap host_path host_path_failure mismatch
  operators probe routed shm shm_ring split streams strict tcp transport_contract tuning two_level)

run_ctest() {
  local preset=$1
  shift
  echo
  echo "== $preset: $("$cmake" --version | head -n 1), $(nproc) cores =="
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j 1 "$@"
}

for step in $steps; do
  case $step in
    release)
      configure_and_build release
      run_ctest release
      ;;
    python)
      configure_and_build release
      scripts/python.sh
      echo
      echo "== python =="
      HCCL_BUILD_DIR=build/release .venv/bin/python -m pytest -q tests/python
      ;;
    asan)
      configure_and_build asan
      # What mpirun starts is left to the release run, and where MPI is loaded leaks are not looked for: they
      # are MPI's own.
      GTEST_FILTER='-*_mpi_*:*/mpi*' run_ctest asan -E 'mpi|pmix|install|hosts|rivals'
      GTEST_FILTER='*mpi_2*' ASAN_OPTIONS=detect_leaks=0 run_ctest asan -R '^(collectives|transport_contract)_test$'
      ;;
    tsan)
      configure_and_build tsan "${threads[@]/%/_test}"
      # Ranks as threads; MPI and libfabric know nothing of the thread sanitizer.
      GTEST_FILTER='-*_mpi_*:*/mpi*:*_ofi_*:*/ofi*' run_ctest tsan -R "^($(IFS="|" && echo "${threads[*]}"))_test\$"
      ;;
    *)
      echo "test.sh: unknown step \"$step\": release, python, asan or tsan" >&2
      exit 2
      ;;
  esac
done
