#!/usr/bin/env bash
# Builds Debian packages for this system into the folder dist: hccl, hccl-plugins and libhccl-dev.
set -euo pipefail
source "$(dirname "$0")/common.sh"
scripts/setup.sh dpkg-dev

launcher=()
if command -v ccache >/dev/null; then
  launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
fi
# Debian's folders follow from its prefix.
"$cmake" --preset release -B build/packages -DCMAKE_INSTALL_PREFIX=/usr -DHCCL_BUILD_TESTS=OFF -DHCCL_BUILD_EXAMPLES=OFF \
  "${launcher[@]}" >/dev/null
"$cmake" --build build/packages -j "$jobs"
mkdir -p dist
(cd build/packages && "${cmake%cmake}cpack" -B made >/dev/null)
mv build/packages/made/*.deb dist
ls -l dist/*.deb
