#!/usr/bin/env bash
# Runs the fuzz targets of tests/fuzz under libFuzzer and clang's sanitizers, one after the other; fails if one of them
# ends early. New inputs gather in build/fuzz/inputs/TARGET, those that end a run in build/fuzz/found.
#   scripts/fuzz.sh [MINUTES] [TARGET...]     default: 10 minutes each, all targets
set -euo pipefail
source "$(dirname "$0")/common.sh"
minutes=10
if [[ ${1-} =~ ^[0-9]+$ ]]; then minutes=$1 && shift; fi
targets=("$@")
if ((${#targets[@]} == 0)); then
  for corpus in tests/fuzz/corpus/*/; do targets+=("$(basename "$corpus")"); done
fi

scripts/setup.sh clang-19 libclang-rt-19-dev
configure_and_build fuzz "${targets[@]/#/fuzz_}"
mkdir -p build/fuzz/found
failed=()
for target in "${targets[@]}"; do
  inputs=build/fuzz/inputs/$target
  mkdir -p "$inputs"
  echo "== $target: $minutes minutes"
  # -timeout=5: a second for an input would do on an idle machine, but this machine may be loaded.
  "build/fuzz/tests/fuzz_$target" -max_total_time=$((60 * minutes)) -timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=128 \
    -report_slow_units=1 -print_final_stats=1 -verbosity=0 -artifact_prefix="build/fuzz/found/$target-" \
    "$inputs" "tests/fuzz/corpus/$target" || failed+=("$target")
done
if ((${#failed[@]})); then
  echo "fuzz: ended early: ${failed[*]}; the inputs are in build/fuzz/found" >&2
  exit 1
fi
