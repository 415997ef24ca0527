#!/bin/bash
# run.sh BUILD EXAMPLE: runs the command in an example's README (the line after "$"), and compares its
# output with the output in the README.
set -euo pipefail
build=$(cd "$1" && pwd) example=$2
cd "$(dirname "$0")"
# Ranks may outnumber cores, and containers often run as root.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Other jobs of this host may use the same rank table at this moment.
export HCCL_IF_BASE_PORT=${HCCL_IF_BASE_PORT:-$((16384 + RANDOM % 16000))}

readme=$example/README.md
command=$(sed -n 's/^\$ //p' "$readme")
expected=$(awk '/^```/ {inside = 0} inside; /^\$ / {inside = 1}' "$readme")
[ -n "$command" ] && [ -n "$expected" ] || { echo "$readme names no command and output" >&2; exit 1; }

echo "== $example: $command"
output=$(cd "$build/$example" && bash -o pipefail -c "$command")
echo "$output"
diff <(echo "$expected") <(echo "$output") || { echo "$example: not what its README says" >&2; exit 1; }
