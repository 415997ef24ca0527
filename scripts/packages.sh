#!/usr/bin/env bash
# Builds Debian packages for this system into the folder dist: hccl, hccl-plugins and libhccl-dev.
set -euo pipefail
source "$(dirname "$0")/common.sh"
scripts/setup.sh dpkg-dev

# With the prefix /usr, CMake chooses Debian's folders.
configure release -B build/packages -DCMAKE_INSTALL_PREFIX=/usr -DHCCL_BUILD_TESTS=OFF -DHCCL_BUILD_EXAMPLES=OFF
"$cmake" --build build/packages -j "$jobs"
mkdir -p dist
(cd build/packages && "${cmake%cmake}cpack" -B made >/dev/null)
mv build/packages/made/*.deb dist
ls -l dist/*.deb
