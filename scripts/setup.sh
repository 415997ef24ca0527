#!/usr/bin/env bash
# Installs what building and testing need: Debian packages, and a Python environment in .venv.
# Does nothing when all of it is there.
#   scripts/setup.sh [PACKAGE...]     further Debian packages
set -euo pipefail
source "$(dirname "$0")/common.sh"

packages=(
  g++ cmake ninja-build pkg-config ccache            # building
  libssl-dev libspdlog-dev libhwy-dev                # the library
  nlohmann-json3-dev libprotobuf-dev protobuf-compiler
  openmpi-bin libopenmpi-dev libpmix-dev libfabric-dev   # launching, plugins
  mpich                                              # mpiexec.hydra; mpirun stays Open MPI's
  libgtest-dev libbenchmark-dev libcli11-dev spin    # tests, benchmarks, command lines, models
  iproute2 python3 python3-dev python3-venv          # test hosts, Python
)
# A browser for the test of hccl-plan's page.
if grep -qs '^ID=ubuntu' /etc/os-release; then packages+=(firefox); else packages+=(firefox-esr); fi
packages+=("$@")

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done

if ((${#missing[@]})); then
  echo "setup: installing Debian packages: ${missing[*]}"
  as_root=()
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      echo "setup: these packages are missing and this user may not install them. As root, run:" >&2
      echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
  fi
  if ! command -v apt-get >/dev/null; then
    echo "setup: no apt-get here; this script knows Debian 12 and Ubuntu. Install the equivalents of: ${missing[*]}" >&2
    exit 1
  fi
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

make_venv .venv scripts/requirements.txt
echo "setup: all there"
