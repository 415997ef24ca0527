# Shared by the scripts: sourced, not run.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=${JOBS:-$(nproc)}
cmake=/usr/bin/cmake   # Debian's: the same on every machine

# Lets all clones share the results in the compiler cache.
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

# make_venv VENV REQUIREMENTS [REQUIREMENTS_WITHOUT_DEPENDENCIES]: keeps an environment that was made of the same files.
make_venv() {
  local venv=$1 requirements=("${@:2}")
  local install=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
  if [[ -x $venv/bin/python ]] && cmp -s <(cat "${requirements[@]}") "$venv/requirements.txt"; then return; fi
  echo "making $venv with: $(grep -v '^#' "$2" | tr '\n' ' ')"
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv"   # Debian's: the same on every machine
  "${install[@]}" -r "$2"
  if [[ ${3-} ]]; then "${install[@]}" --no-deps -r "$3"; fi
  cat "${requirements[@]}" >"$venv/requirements.txt"
}

# Ranks often outnumber cores here, and containers often run as root.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
