#!/usr/bin/env bash
# Times hccl and its rivals in one run: installs the rivals into build/rivals, builds, times, prints ratios.
# scripts/bench.sh --quick takes under 3 minutes once all is installed. --help lists all options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build=1
for option in "$@"; do
  case $option in
    --help | -h | --list | --report | --report=* | --build | --build=*) build=0 ;;
  esac
done
if ((build)); then
  scripts/setup.sh
  configure_and_build release rivals_bench
fi
exec /usr/bin/python3 benchmarks/rivals/bench.py "$@"
