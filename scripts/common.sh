# Shared by the scripts: sourced, not run.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=${JOBS:-$(nproc)}
cmake=/usr/bin/cmake   # Debian's: the same on every machine

# What one clone has compiled serves the others.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

# configure PRESET [option...]
configure() {
  local launcher=()
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
  fi
  "$cmake" --preset "$@" "${launcher[@]}" >/dev/null
}

# configure_and_build PRESET [target...]
configure_and_build() {
  local preset=$1
  shift
  configure "$preset"
  "$cmake" --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}
}

# Ranks often outnumber cores here, and containers are often root.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
