#!/usr/bin/env bash
# Times collectives between hosts: two network namespaces with RANKS_PER_HOST (2) ranks each, joined by a veth pair that tbf
# limits to RATE. Compares the times with the bound of the line: an allreduce of n bytes sends at least
# 2 (hosts - 1) / hosts * n bytes out of every host. Needs root for `ip netns` and `tc`.
#   hosts.sh HCCL_PERF [RATE [hccl_perf options]]     default: 10gbit -b 1M -e 64M
set -euo pipefail
program=$1
rate=${2:-10gbit}
options=("${@:3}")
if ((${#options[@]} == 0)); then options=(-b 1M -e 64M -f 4 -n 10 -w 3); fi
if ((EUID != 0)); then exec sudo -n "$0" "$@"; fi

tag=hccl$$
secret=$(mktemp)
openssl rand -hex 32 >"$secret"
cleanup() {
  rm -f "$secret"
  ip netns del "$tag-0" 2>/dev/null || true
  ip netns del "$tag-1" 2>/dev/null || true
}
trap cleanup EXIT
for h in 0 1; do
  ip netns add "$tag-$h"
  ip -n "$tag-$h" link set lo up
done
ip -n "$tag-0" link add eth0 type veth peer name eth0 netns "$tag-1"
for h in 0 1; do
  ip -n "$tag-$h" addr add "10.212.0.$((h + 1))/24" dev eth0
  ip -n "$tag-$h" link set eth0 up
  tc -n "$tag-$h" qdisc add dev eth0 root tbf rate "$rate" burst 1mb latency 50ms
done

case $rate in
  *gbit) bytes_per_us=$(awk "BEGIN { print ${rate%gbit} * 1000 / 8 }") ;;
  *mbit) bytes_per_us=$(awk "BEGIN { print ${rate%mbit} / 8 }") ;;
  *) echo "hosts.sh: rate $rate: say it in mbit or gbit" >&2; exit 2 ;;
esac

# Each host has half of the processors, as two machines would.
cores=$(nproc)
cores_of() {
  local half=$((cores / 2))
  if ((half == 0)); then echo 0; else echo "$(($1 * half))-$(($1 * half + half - 1))"; fi
}

per_host=${RANKS_PER_HOST:-2}
echo "# two hosts with $per_host ranks each, $rate between them; bound = bytes / line rate; $cores cores for all ranks"
for rank in $(seq 1 $((2 * per_host - 1))) 0; do
  run=(env HCCL_JOB_SECRET_FILE="$secret" HCCL_CONNECT_TIMEOUT=30 HCCL_EXEC_TIMEOUT=60 RANK=$rank WORLD_SIZE=$((2 * per_host))
    LOCAL_RANK=$((rank % per_host)) LOCAL_WORLD_SIZE=$per_host MASTER_ADDR=10.212.0.1 MASTER_PORT=29500
    TORCHELASTIC_RUN_ID="$tag" ip netns exec "$tag-$((rank / per_host))"
    taskset -c "$(cores_of $((rank / per_host)))" "$program" "${options[@]}")
  if ((rank != 0)); then
    "${run[@]}" >/dev/null &
  else
    "${run[@]}" | awk -v line="$bytes_per_us" '
      /^ *[0-9]/ { printf "%s  %6.2f of the line\n", $0, $1 / line / $3; next }
      { print }'
  fi
done
wait
