#!/usr/bin/env bash
# Builds the kernels for Arm (aarch64, NEON) and runs their tests in an emulator: about two minutes. Installs a cross
# compiler, QEMU, and Highway for Arm. On an Arm machine, use scripts/test.sh instead.
#   scripts/arm.sh [options of the tests, such as --gtest_filter=...]
set -euo pipefail
source "$(dirname "$0")/common.sh"

packages=(g++-aarch64-linux-gnu qemu-user libhwy-dev:arm64 libgtest-dev)
if ! dpkg-query -W "${packages[@]}" >/dev/null 2>&1; then
  as_root=()
  if ((EUID != 0)); then as_root=(sudo -n); fi
  "${as_root[@]}" dpkg --add-architecture arm64
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

out=build/arm
rm -rf "$out"
googletest=/usr/src/googletest/googletest
mkdir -p "$out"
compile() {
  aarch64-linux-gnu-g++ -std=c++20 -O2 -I . -I "$googletest" -I "$googletest/include" "$@"
}
objects=()
for source in hccl/kernels/*.cc hccl/base/{status,types,vector_targets}.cc tests/kernels/kernels_test.cc "$googletest"/src/gtest{-all,_main}.cc; do
  objects+=("$out/$(basename "$source" .cc).o")
  compile -c "$source" -o "${objects[-1]}" &
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
done
wait
compile "${objects[@]}" -lpthread -o "$out/kernels_test"
LD_LIBRARY_PATH='' qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=/usr/lib/aarch64-linux-gnu "$out/kernels_test" "$@"
