#!/usr/bin/env bash
# Ranks on several hosts: the hosts are network namespaces, joined by a bridge. Two hosts with two ranks each
# must use shm inside a host and tcp between the hosts; four hosts with one rank each must use only tcp. Needs root
# (or sudo without a password) for `ip netns`.
#   hosts_test.sh PROGRAM PERF TRAIN MESSAGES
# PROGRAM joins by launcher and prints "rank R of 4: the ranks add up to 6, ..."; PERF is hccl_perf, which checks
# allreduces of many sizes over both shapes; TRAIN is train_digits, whose gradients are planned on a slow line;
# MESSAGES checks messages with tags, limits and abort, and prints "all right" on each rank.
set -euo pipefail
program=$1
perf=$2
train=$3
messages=$4
if ((EUID != 0)); then exec sudo -n "$0" "$@"; fi

tag=hccl$$
hosts=()
table=$(mktemp -d)
relay=''
cleanup() {
  if [[ $relay ]]; then kill "$relay" 2>/dev/null || true; fi
  for host in "${hosts[@]}"; do
    ip netns del "$host" 2>/dev/null || true
    rm -rf "/etc/netns/$host"
  done
  ip link del "$tag-b" 2>/dev/null || true
  rm -rf "$table"
}
trap cleanup EXIT
(umask 077; openssl rand -hex 32 >"$table/secret")

ip link add "$tag-b" type bridge
ip link set "$tag-b" up
for h in 0 1 2 3; do
  host=$tag-$h
  ip netns add "$host"
  hosts+=("$host")
  ip link add "$tag-v$h" type veth peer name eth0 netns "$host"
  ip link set "$tag-v$h" master "$tag-b" up
  ip -n "$host" addr add "10.211.0.$((h + 1))/24" dev eth0
  ip -n "$host" link set eth0 up
  ip -n "$host" link set lo up
  ip -n "$host" route add default via 10.211.0.254
  # Like many hosts, each has Debian's line for its own name, and a bridge for containers with the same address on all
  # hosts.
  mkdir -p "/etc/netns/$host"
  printf '127.0.0.1 localhost\n%s node0\n' "$( ((h == 0)) && echo 127.0.1.1 || echo 10.211.0.1)" >"/etc/netns/$host/hosts"
  ip -n "$host" link add br-containers type bridge
  ip -n "$host" link add port0 type veth peer name port1
  ip -n "$host" link set port0 master br-containers up
  ip -n "$host" link set port1 up
  ip -n "$host" addr add 172.18.0.1/16 dev br-containers
  ip -n "$host" link set br-containers up
done

# start RANKS_PER_HOST COMMAND...: runs four ranks, and prints their output.
start() {
  local per_host=$1
  for rank in 0 1 2 3; do
    HCCL_JOB_SECRET_FILE=${secret-$table/secret} HCCL_LOG=info HCCL_CONNECT_TIMEOUT=30 HCCL_EXEC_TIMEOUT=30 \
      RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % per_host)) LOCAL_WORLD_SIZE=${local_size-$per_host} \
      MASTER_ADDR=${master-10.211.0.1} MASTER_PORT=29500 TORCHELASTIC_RUN_ID="$tag-$*" \
      ip netns exec "$tag-$((rank / per_host))" "${@:2}" 2>&1 &
  done
  wait
}

# run RANKS_PER_HOST TRANSPORT: every rank must get the sum, over the expected transport.
run() {
  local per_host=$1 transport=$2 output
  output=$(start "$per_host" "$program")
  local right routed
  right=$(grep -c 'the ranks add up to 6, there are 4' <<<"$output" || true)
  routed=$(grep -cE "of 4, transport $transport(,|\$)" <<<"$output" || true)
  if ((right != 4 || routed != 4)); then
    echo "hosts_test: $((4 / per_host)) hosts with $per_host ranks each: $right of 4 sums right, $routed of 4 over $transport"
    echo "$output"
    exit 1
  fi
  echo "hosts_test: $((4 / per_host)) hosts with $per_host ranks each: right, over $transport"
}

# sweep RANKS_PER_HOST ALGORITHM [options]: all results must be right, and the largest size must use ALGORITHM.
sweep() {
  local per_host=$1 algorithm=$2 output wrong
  output=$(start "$per_host" "$perf" -b 4 -e 1M -f 8 -n 3 -w 1 "${@:3}")
  # A row of the table ends with the number of wrong results.
  wrong=$(awk '/^ *[0-9]+ +[0-9]+ / { rows++; if ($NF != 0) wrong++ } END { print rows + 0 ":" wrong + 0 }' <<<"$output")
  if [[ $wrong != 7:0 ]] || ! grep -q "allreduce of 1048576 bytes by $algorithm" <<<"$output"; then
    echo "hosts_test: $((4 / per_host)) hosts, $*: rows and wrong ones $wrong, expected 7:0 and $algorithm"
    echo "$output"
    exit 1
  fi
  echo "hosts_test: $((4 / per_host)) hosts with $per_host ranks each: allreduce right at all sizes, by $algorithm"
}

# talk RANKS_PER_HOST: tests messages between all ranks, and the limits and the end of communicators.
talk() {
  local per_host=$1 output
  output=$(start "$per_host" "$messages")
  if (($(grep -c 'of 4: all right' <<<"$output" || true) != 4)); then
    echo "hosts_test: $((4 / per_host)) hosts with $per_host ranks each: messages, limits and abort:"
    echo "$output"
    exit 1
  fi
  echo "hosts_test: $((4 / per_host)) hosts with $per_host ranks each: messages, limits and abort right"
}

# Without a secret every rank is refused, with a text that describes how to make one.
refused=$(secret='' start 2 "$program" | grep -c 'openssl rand -hex 32' || true)
if ((refused < 4)); then
  echo "hosts_test: without a secret $refused of 4 ranks were refused with a text that helps"
  exit 1
fi
echo "hosts_test: a job on several hosts is refused without a secret"

run 2 auto
run 1 tcp
master=node0 run 2 auto
# Only rank 0's host may count the job as one of a single host; then only rank 0's job name would contain the
# scheduler's id.
SLURM_JOB_ID=77 local_size='' run 1 tcp
# The root listens at the address to which its peers connect, even if that is no private address of its host.
for h in 0 1 2 3; do ip -n "$tag-$h" addr add "100.101.102.$((h + 1))/24" dev eth0; done
master=100.101.102.1 run 1 tcp
for h in 0 1 2 3; do ip -n "$tag-$h" addr del "100.101.102.$((h + 1))/24" dev eth0; done

# The devices of this rank table have a network that the hosts lack, so the table names the servers by the hosts'
# addresses.
servers=''
for h in 0 1; do
  devices=''
  for d in 0 1; do
    devices+=${devices:+, }"{\"device_id\": \"$d\", \"device_ip\": \"192.168.$h.$d\", \"rank_id\": \"$((2 * h + d))\"}"
  done
  servers+=${servers:+, }"{\"server_id\": \"10.211.0.$((h + 1))\", \"device\": [$devices]}"
done
echo "{\"version\": \"1.0\", \"status\": \"completed\", \"server_count\": \"2\", \"server_list\": [$servers]}" >"$table/ranks.json"
by_table=$(for rank in 0 1 2 3; do
  RANK_TABLE_FILE=$table/ranks.json RANK_ID=$rank HCCL_JOB_SECRET_FILE=$table/secret HCCL_CONNECT_TIMEOUT=30 \
    ip netns exec "$tag-$((rank / 2))" "$program" 2>&1 &
done; wait)
if (($(grep -c 'the ranks add up to 6, there are 4' <<<"$by_table" || true) != 4)); then
  echo "hosts_test: a rank table with addresses of devices and of hosts:"
  echo "$by_table"
  exit 1
fi
echo "hosts_test: a rank table with addresses of devices and of hosts joins"
talk 2
talk 1
sweep 2 two_level
sweep 2 two_level --memory heap
sweep 1 halving_doubling

# If a file for measured costs is given, these costs also decide between hosts, and all ranks log the same choice.
tuned=$(HCCL_TUNE_FILE=$table/costs.json start 2 "$perf" -b 1M -e 1M -n 2 -w 1)
words=$(grep -oE 'allreduce of 1048576 bytes between hosts by .*' <<<"$tuned" | sort | uniq -c)
if [[ $(wc -l <<<"$words") != 1 || ! $words =~ ^\ *4\ .*predicted.*\(measured\ now\)$ ]]; then
  echo "hosts_test: measured costs did not choose between hosts on four ranks alike:"
  echo "$tuned"
  exit 1
fi
echo "hosts_test: measured costs choose between hosts"

# One packet of 25 is lost, also while ranks join: a packet whose random number is below 2^32 / 25. This does not use
# netem, which few kernels for containers have.
lost() {
  local lost=0 host
  for host in "${hosts[@]}"; do
    lost=$((lost + $(ip netns exec "$host" awk '/^Tcp: [0-9]/ { print $13 }' /proc/net/snmp)))
  done
  echo "$lost"
}
before=$(lost)
for h in 0 1 2 3; do
  tc -n "$tag-$h" qdisc add dev eth0 clsact
  tc -n "$tag-$h" filter add dev eth0 egress bpf da bytecode \
    '4,32 0 0 4294963256,37 0 1 171798691,6 0 0 4294967295,6 0 0 2'
done
again=0
for ((i = 0; i < 50 && again == 0; ++i)); do  # a sweep loses few packets, or none
  sweep 1 halving_doubling
  again=$(($(lost) - before))
done
for h in 0 1 2 3; do tc -n "$tag-$h" qdisc del dev eth0 clsact; done
if ((again == 0)); then
  echo "hosts_test: nothing was lost"
  exit 1
fi
echo "hosts_test: results are right where packets are lost, $again were sent again"

# cut_off [VARIABLE=VALUE]: the last host loses its line while four ranks compute. Their output is written to a file.
cut_off() {
  local line=/sys/class/net/$tag-v3/statistics/rx_bytes
  local enough=$(($(cat "$line") + 4000000))
  (export HCCL_FLIGHT_RECORDER_DIR=off "$@"; start 1 "$perf" -b 1M -e 1M -n 300 -w 1) >"$table/output" &
  ranks=$!
  while (($(cat "$line") < enough)); do
    if ! kill -0 "$ranks" 2>/dev/null; then break; fi
  done
  ip link set "$tag-v3" down
  cut=$(date +%s%N)
}
cut_off
sleep 1.5
ip link set "$tag-v3" up
wait "$ranks"
rows=$(awk '/^ *[0-9]+ +[0-9]+ / { rows++; if ($NF != 0) wrong++ } END { print rows + 0 ":" wrong + 0 }' "$table/output")
if [[ $rows != 1:0 ]]; then
  echo "hosts_test: after a line was down for 1.5 s, rows and wrong ones $rows, expected 1:0"
  cat "$table/output"
  exit 1
fi
echo "hosts_test: results are right after a line was down for 1.5 s"

# The line is cut for good: both sides of the partition name the other side.
cut_off HCCL_PEER_TIMEOUT=5
wait "$ranks" || true
took=$((($(date +%s%N) - cut) / 1000000))
ip link set "$tag-v3" up
named=$(grep -c 'hccl_perf: .*rank 3 (.*no sign of life for 5 s.*cut off' "$table/output" || true)
lonely=$(grep -c 'hccl_perf: .*rank [0-2] (.*no sign of life.*cut off' "$table/output" || true)
if ((named != 3 || lonely != 1 || took > 10000)); then
  echo "hosts_test: of a partition $named of 3 ranks and $lonely of 1 heard, after $took ms"
  cat "$table/output"
  exit 1
fi
echo "hosts_test: both sides of a partition name the other one, all after $took ms at a peer timeout of 5 s"

# broken_path NAME HOST:FILTER...: while four ranks compute, packets between hosts 1 and 3 are lost, which rank 0 cannot
# see. All ranks must name both ends.
broken_path() {
  local name=$1 filter took named
  local line=/sys/class/net/$tag-v1/statistics/rx_bytes
  local enough=$(($(cat "$line") + 4000000))
  (export HCCL_FLIGHT_RECORDER_DIR=off HCCL_PEER_TIMEOUT=5; start 1 "$perf" -b 1M -e 1M -n 30000 -w 1) >"$table/output" &
  ranks=$!
  while (($(cat "$line") < enough)); do
    if ! kill -0 "$ranks" 2>/dev/null; then break; fi
  done
  for filter in "${@:2}"; do
    tc -n "$tag-${filter%%:*}" qdisc add dev eth0 clsact
    tc -n "$tag-${filter%%:*}" filter add dev eth0 egress bpf da bytecode "${filter#*:}"
  done
  cut=$(date +%s%N)
  wait "$ranks" || true
  took=$((($(date +%s%N) - cut) / 1000000))
  for filter in "${@:2}"; do tc -n "$tag-${filter%%:*}" qdisc del dev eth0 clsact; done
  named=$(grep -cE 'hccl_perf: .*the path from rank (1 to rank 3|3 to rank 1) does not work \(.*Check the network' "$table/output" || true)
  if ((named != 4 || took > 25000)); then
    echo "hosts_test: of a path that is $name $named of 4 ranks heard, after $took ms"
    cat "$table/output"
    exit 1
  fi
  echo "hosts_test: a path that is $name is named on all ranks after $took ms, at a peer timeout of 5 s"
}
# Filters for packets to 10.211.0.2 (0x0AD30002), to 10.211.0.4, and to 10.211.0.4 with more than 600 bytes.
to_1='4,32 0 0 30,21 0 1 181600258,6 0 0 2,6 0 0 4294967295'
to_3='4,32 0 0 30,21 0 1 181600260,6 0 0 2,6 0 0 4294967295'
long_to_3='6,32 0 0 30,21 0 3 181600260,128 0 0 0,37 0 1 600,6 0 0 2,6 0 0 4294967295'
broken_path cut "1:$to_3" "3:$to_1"
broken_path 'open in one direction only' "1:$to_3"
broken_path 'closed for long packets' "1:$long_to_3"

# A line of 100 Mbit/s that passes the first 70 KB at once. Four ranks send 1.5 times their gradients, so an allreduce
# of 0.0083 GB takes 1 s. The probe of the automatic plan must not extrapolate from the first bytes (it once measured
# 0.03 to 0.2 GB). On a busy machine the test may try again.
for h in 0 1 2 3; do
  tc -n "$tag-$h" qdisc add dev eth0 root tbf rate 100mbit burst 70000 limit 33554432
done
for attempt in 1 2 3 4 5 6; do
  planned=$(HCCL_SPLIT=auto start 1 "$train" --hcom-parallel --epochs 1)
  probed=$(grep -oE 'rank 0: gradient plan: an allreduce costs .*' <<<"$planned" || true)
  if [[ $probed =~ \ 1\ s\ for\ 0\.0(0[4-9]|1[0-6])\ GB ]]; then break; fi
  if ((attempt == 6)); then
    echo "hosts_test: on a line of 100 Mbit/s, expected a probe of about 0.008 GB in 1 s: $probed"
    echo "$planned"
    exit 1
  fi
done
echo "hosts_test: the automatic plan sees what a slow line costs: ${probed#*plan: }"
for h in 0 1 2 3; do tc -n "$tag-$h" qdisc del dev eth0 root; done

# The last host gets a delay of 50 ms in each direction.
ip -n "$tag-3" link del eth0
coproc relay_out { exec "$(dirname "$0")/delayed_line.py" "$tag-v3" "$tag-far" 50; }
relay=$relay_out_PID
read -r -u "${relay_out[0]}" _
ip link set "$tag-far" netns "$tag-3" name eth0
ip link set "$tag-v3" master "$tag-b" up
ip -n "$tag-3" addr add 10.211.0.4/24 dev eth0
ip -n "$tag-3" link set eth0 up
for h in 0 1 2; do ip -n "$tag-$h" neigh flush dev eth0; done  # they may keep its old address for 30 s and more
far=$(HCCL_PEER_TIMEOUT=5 start 1 "$perf" -b 4 -e 256K -f 256 -n 2 -w 1)
# A rank may begin before the others, so only the slower of two successive calls must take at least half of the delay.
rows=$(awk '/^ *[0-9]+ +[0-9]+ / { rows++; if ($NF != 0 || $3 < 10000) wrong++ } END { print rows + 0 ":" wrong + 0 }' <<<"$far")
if [[ $rows != 3:0 ]]; then
  echo "hosts_test: on a line that takes 50 ms, rows and those that are wrong or too fast $rows, expected 3:0"
  echo "$far"
  exit 1
fi
echo "hosts_test: results are right on a line that takes 50 ms"
