#!/bin/bash
# install_test.sh SOURCE BUILD CMAKE CC: installs the build somewhere, and uses it as a stranger
# would: with pkg-config, with find_package, and by looking at what the library shows and needs.
set -euo pipefail
source=$1 build=$2 cmake=$3 cc=$4
work=$(mktemp -d /tmp/hccl_install_test_XXXXXX)
trap 'rm -rf "$work"' EXIT
fail() { echo "install_test: $*" >&2; exit 1; }

"$cmake" --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
# Nothing may remember where it was put.
mv "$work/first" "$work/there"
prefix=$work/there
libdir=$(dirname "$(find "$prefix" -name 'libhccl.so' | head -1)")
[ -e "$libdir/libhccl.so" ] || fail "libhccl.so is not installed"
for variable in RANK_TABLE_FILE RANK WORLD_SIZE SLURM_PROCID PMIX_RANK; do unset "$variable"; done

# pkg-config
export PKG_CONFIG_PATH=$libdir/pkgconfig
pkg-config --exists hccl || fail "pkg-config does not find hccl"
read -ra flags <<<"$(pkg-config --cflags --libs hccl)"
"$cc" -std=c99 -Wall -Wextra -Wpedantic -Werror "$source/tests/c99/consumer.c" "${flags[@]}" \
  -o "$work/consumer"
[ "$(LD_LIBRARY_PATH=$libdir "$work/consumer")" = 42 ] || fail "the pkg-config program is wrong"

# find_package
"$cmake" -S "$source/tests/c99" -B "$work/build" -DCMAKE_C_COMPILER="$cc" \
  -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 || { cat "$work/log"; fail "find_package"; }
"$cmake" --build "$work/build" >"$work/log" 2>&1 || { cat "$work/log"; fail "building with CMake"; }
[ "$("$work/build/consumer")" = 42 ] || fail "the CMake program is wrong"

# What the library shows: HCCL's functions and no others.
shown=$(nm -D --defined-only "$libdir/libhccl.so" | awk '{print $3}')
grep -q '^HcclAllReduce$' <<<"$shown" || fail "libhccl.so does not show HcclAllReduce"
others=$(grep -Ev '^(Hccl|Hcom)[A-Za-z]+$' <<<"$shown" || true)
[ -z "$others" ] || fail "libhccl.so shows $others"
# Everything that the headers declare.
declared=$(cat "$prefix"/include/hccl/*.h | tr '\n' ' ' |
  grep -oE '(HcclResult|bool|void|const char\*) (Hccl|Hcom)[A-Za-z]+\(' | sed 's/.* //; s/(//')
[ "$(wc -l <<<"$declared")" -gt 40 ] || fail "too few functions in the headers"
for name in $declared; do
  grep -qx "$name" <<<"$shown" || fail "$name is declared and not there"
done
# What it needs: no launcher and no fabric, not even by way of another library.
needed=$(readelf -d "$libdir/libhccl.so" | grep NEEDED; ldd "$libdir/libhccl.so")
! grep -iE 'libmpi|fabric|pmix|not found' <<<"$needed" || fail "libhccl.so needs the above"
echo "install_test: ok"
