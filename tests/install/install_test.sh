#!/bin/bash
# install_test.sh SOURCE BUILD CMAKE CC CXX: installs the build somewhere, and uses it as other projects do: with
# pkg-config, with find_package, with the compiler lines of programs for HCCL. Also checks which symbols the libraries
# export, and which libraries they need.
set -euo pipefail
source=$1 build=$2 cmake=$3 cc=$4 cxx=$5
work=$(mktemp -d /tmp/hccl_install_test_XXXXXX)
trap 'rm -rf "$work"' EXIT
fail() { echo "install_test: $*" >&2; exit 1; }
for variable in RANK_TABLE_FILE RANK WORLD_SIZE SLURM_PROCID PMIX_RANK LD_LIBRARY_PATH \
  PKG_CONFIG_PATH CMAKE_PREFIX_PATH ASCEND_HOME_PATH ASCEND_DIR; do
  unset "$variable"
done

"$cmake" --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
# dash gives a sourced file no path, so the tree must be where it was installed.
[ "$(cd / && dash -euc '. "$1/set_env.sh"; . "$1/set_env.sh"; echo "$ASCEND_DIR ${LD_LIBRARY_PATH}"' - "$work/first")" = \
  "$work/first $work/first/lib64" ] || fail "set_env.sh in dash"
# A prefix may be relative and contain an apostrophe. With CDPATH set, the shell's cd prints its new folder.
(cd "$work" && "$cmake" --install "$build" --prefix "it's" --component ascend) >"$work/log" || fail "$(cat "$work/log")"
for shell in bash dash; do
  found=$(cd "$work" && CDPATH=$work "$shell" -euc 'cd / && . "$1/set_env.sh"; echo "$ASCEND_DIR"' - "$work/it's") || true
  [ "$found" = "$work/it's" ] || fail "set_env.sh of a relative prefix, in $shell: $found"
done
[ "$(cd "$work" && CDPATH=$work bash -euc '. "it'\''s/set_env.sh"; echo "$ASCEND_DIR"')" = "$work/it's" ] ||
  fail "set_env.sh in bash with CDPATH"
# Moves the tree: no file may depend on where it was installed.
mv "$work/first" "$work/there"
prefix=$work/there
! dash -c '. "$1/set_env.sh"' - "$prefix" 2>"$work/log" || fail "set_env.sh in dash, in a tree that was moved"
grep -q "$work/first/set_env.sh does not exist" "$work/log" || fail "set_env.sh in dash: $(cat "$work/log")"
libdir=$(dirname "$(find "$prefix" -name 'libhccl.so.*.*' ! -name '*.debug')")
[ -e "$libdir/libhccl.so" ] || fail "libhccl.so is not installed"

# Libraries are stripped, and their symbols are where a debugger finds them.
for library in "$libdir"/libhccl_optim.so "$(realpath "$libdir/libhccl.so")"; do
  sections=$(readelf -SW "$library")
  ! grep -q '\.debug_info' <<<"$sections" || fail "$library is not stripped"
  grep -q '\.gnu_debuglink' <<<"$sections" || fail "$library does not name its symbols"
  grep -q '\.debug_info' <<<"$(readelf -SW "$library.debug")" || fail "$library.debug has no symbols"
done

# ---- its own package files ----

export PKG_CONFIG_PATH=$libdir/pkgconfig
pkg-config --exists hccl || fail "pkg-config does not find hccl"
read -ra flags <<<"$(pkg-config --cflags --libs hccl)"
"$cc" -std=c99 -Wall -Wextra -Wpedantic -Werror "$source/tests/install/c99/consumer.c" "${flags[@]}" \
  -o "$work/consumer"
[ "$(LD_LIBRARY_PATH=$libdir "$work/consumer")" = 42 ] || fail "the pkg-config program is wrong"
version=$(pkg-config --modversion hccl)
unset PKG_CONFIG_PATH

"$cmake" -S "$source/tests/install/c99" -B "$work/build" -DCMAKE_C_COMPILER="$cc" \
  -DCMAKE_PREFIX_PATH="$prefix" "-Dwanted=$version" >"$work/log" 2>&1 || { cat "$work/log"; fail "find_package"; }
"$cmake" --build "$work/build" >"$work/log" 2>&1 || { cat "$work/log"; fail "building with CMake"; }
[ "$("$work/build/consumer")" = 42 ] || fail "the CMake program is wrong"
! "$cmake" -S "$source/tests/install/c99" -B "$work/older" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" \
  -Dwanted=0.1 >"$work/log" 2>&1 || fail "find_package takes $version for 0.1"
grep -q "version: $version" "$work/log" || fail "find_package of 0.1: $(cat "$work/log")"

# ---- as ASCEND_HOME_PATH ----

# The variables that set_env.sh sets, printed by a shell that stops at every mistake; sourcing the file again changes
# nothing.
environment() {
  bash -euc 'for ((i = 0; i < $2; ++i)); do source "$1/set_env.sh"; done
    for name in ASCEND_HOME_PATH ASCEND_DIR LD_LIBRARY_PATH PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH
    do echo "$name=${!name}"; done
    ! declare -f hccl_prepend >/dev/null && pkg-config --exists hccl' - "$prefix" "$1"
}
once=$(environment 1) || fail "set_env.sh: $once"
[ "$(environment 2)" = "$once" ] || fail "set_env.sh twice is not set_env.sh once"
for line in "ASCEND_HOME_PATH=$prefix" "ASCEND_DIR=$prefix" "LD_LIBRARY_PATH=$prefix/lib64" \
  "CMAKE_PREFIX_PATH=$prefix" "PKG_CONFIG_PATH=$libdir/pkgconfig"; do
  grep -qxF "$line" <<<"$once" || fail "set_env.sh does not set $line"
done
[ "$(cd / && bash -c 'cd "$1" && source ./set_env.sh && echo "$ASCEND_DIR"' - "$prefix")" = "$prefix" ] ||
  fail "set_env.sh does not find its place from a relative path"
source "$prefix/set_env.sh"

for file in hccl/hccl.h hccl/hccl_comm.h hccl/hccl_types.h acl/acl.h acl/acl_base.h acl/acl_base_rt.h \
  acl/acl_rt.h acl/acl_rt_memory.h acl/acl_prof.h acl/error_codes/rt_error_codes.h; do
  [ -f "$prefix/include/$file" ] || fail "there is no include/$file"
done
private=$(find "$prefix/include" -type f ! -path '*/hccl/*' ! -name 'acl*.h' ! -path '*/error_codes/*')
[ -z "$private" ] || fail "these are no public headers: $private"

# Compiles with the compiler lines of programs for HCCL; the program has 4 ranks.
hardened=(-fPIE -pie -s -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--copy-dt-needed-entries)
program=$source/examples/01_communicator/01_root_info/main.cc
expected=$(for rank in 0 1 2 3; do echo "rank $rank of 4: the ranks add up to 6"; done)
for libraries in "-lhccl -lascendcl" "-lhccl -lacl_rt -lmsprofiler" "-lhcomm -lascendcl"; do
  # shellcheck disable=SC2086
  "$cxx" -std=c++11 -O2 -Wall -Wextra -Werror "${hardened[@]}" "-I$ASCEND_DIR/include" "$program" \
    -o "$work/program" "-L$ASCEND_DIR/lib64" $libraries -pthread || fail "compiling with $libraries"
  [ "$("$work/program")" = "$expected" ] || fail "the program with $libraries is wrong"
done

# All names lead to one library, so programs and plugins share one state.
names=(libhccl.so libhccl.so.0 libascendcl.so libacl_rt.so libhcomm.so libmsprofiler.so)
"$cc" -std=c99 -D_GNU_SOURCE -Wall -Wextra -Werror "$source/tests/install/c99/names.c" -o "$work/names" -ldl
for directory in lib64 "${libdir#"$prefix"/}"; do
  for name in "${names[@]}"; do
    [ -e "$prefix/$directory/$name" ] || fail "there is no $directory/$name"
    link=$(readlink "$prefix/$directory/$name")
    [[ $link != /* ]] || fail "$directory/$name leads to $link"
  done
  "$work/names" "${names[@]/#/$prefix/$directory/}" || fail "two libraries in $directory"
  # Programs link one of these names, and load a transport that is a plugin.
  for name in ascendcl acl_rt hcomm msprofiler; do
    "$cc" -std=c99 "$source/tests/install/c99/consumer.c" "-I$prefix/include" "-L$prefix/$directory" "-l$name" \
      -o "$work/named"
    [ "$(HCCL_TRANSPORT=auto "$work/named")" = 42 ] || fail "a program with $directory/lib$name.so is wrong"
  done
done
if [ -e "$libdir/libhccl_mpi.so" ]; then
  found=$(cd / && HCCL_TRANSPORT=mpi "$work/named" 2>&1) || true
  ! grep -q 'there is no plugin' <<<"$found" || fail "plugins are not found: $found"
fi

# ---- what the library shows: HCCL's functions and no others ----

shown=$(nm -D --defined-only "$libdir/libhccl.so" | awk '{print $3}')
others=$(grep -Ev '^(Hccl|Hcom|acl)[A-Za-z0-9]+$' <<<"$shown" || true)
[ -z "$others" ] || fail "libhccl.so shows $others"
# The library must export everything that the headers declare.
# declared HEADER...: prints the functions that these headers declare.
declared() {
  cat "$@" | tr '\n' ' ' |
    grep -oE '(HcclResult|bool|void|uint32_t|aclError|const char ?\*|aclprofConfig ?\*) ?(Hccl|Hcom|acl)[A-Za-z0-9]+\(' |
    sed 's/.*[ *]//; s/(//' | sort -u
}
optim=$prefix/include/hccl/hccl_optim.h
mapfile -t headers < <(find "$prefix"/include/hccl "$prefix"/include/acl -name '*.h' ! -path "$optim")
functions=$(declared "${headers[@]}")
[ "$(wc -l <<<"$functions")" -gt 100 ] || fail "too few functions in the headers"
for name in $functions; do
  [ "$name" = HcclCommConfigInit ] && continue  # the header defines this function itself
  grep -qx "$name" <<<"$shown" || fail "$name is declared and not there"
done
# The optimizers are in a separate library.
of_optim=$(nm -D --defined-only "$libdir/libhccl_optim.so" | awk '{print $3}' | sort)
[ "$of_optim" = "$(declared "$optim")" ] || fail "libhccl_optim.so and hccl_optim.h differ: $of_optim"
# The library must export everything that programs for HCCL call. Some references are weak: if their function were
# missing, a program would still link, and crash.
for name in $(cat "$source/tests/install/hccl_client/symbols.txt"); do
  grep -qx "$name" <<<"$shown" || fail "programs need $name"
done

# The library must need no launcher, no fabric and no Protobuf, not even through another library.
needed=$(readelf -d "$libdir/libhccl.so" | grep NEEDED; ldd "$libdir/libhccl.so")
! grep -iE 'libmpi|fabric|pmix|protobuf|not found' <<<"$needed" || fail "libhccl.so needs the above"
echo "install_test: ok"
