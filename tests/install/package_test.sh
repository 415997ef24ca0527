#!/usr/bin/env bash
# Installs the Debian packages of the folder dist into a bare Debian of this system's suite, with a C compiler. README's C
# program is then built with pkg-config and run by two ranks. Needs root, debootstrap and the distribution's mirror.
set -euo pipefail
cd "$(dirname "$0")/../.."
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
root=$(mktemp -d)
trap 'umount -q "$root/proc" "$root/dev/shm" || true; rm -rf --one-file-system "$root"' EXIT

debootstrap --variant=minbase --include=gcc,libc6-dev,pkg-config "$suite" "$root" >"$root.log" || { tail "$root.log" && exit 1; }
mount -t proc proc "$root/proc"
mkdir -p "$root/dev/shm" "$root/packages"
mount -t tmpfs tmpfs "$root/dev/shm"
cp dist/*.deb "$root/packages"
awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' README.md >"$root/first.c"
chroot "$root" bash -e <<'END'
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -qq --no-install-recommends /packages/hccl_*.deb /packages/libhccl-dev_*.deb >/log 2>&1 || { cat /log; exit 1; }
cc /first.c $(pkg-config --cflags --libs hccl) -o /first
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29555
for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank /first >/output$rank & done
wait
[[ $(cat /output0 /output1) == $'rank 0 of 2: the sum is 1\nrank 1 of 2: the sum is 1' ]] || { cat /output?; exit 1; }
hccl_perf --help >/dev/null
hccl-plan --help >/dev/null
apt-get install -y -qq --no-install-recommends /packages/hccl-plugins_*.deb >/log 2>&1 || { cat /log; exit 1; }
if ldd /usr/lib/*/libhccl_*.so | grep 'not found'; then exit 1; fi
apt-get remove -y -qq hccl hccl-plugins libhccl-dev >/log 2>&1
[[ -z $(find /usr -name '*hccl*' -not -path '/usr/share/*') ]]
END
echo "packages: $suite: right"
