#!/usr/bin/env bash
# Runs a program on two ranks, each on a host of its own: namespaces of this machine, joined by a
# cable of a given speed, over TCP. Needs root, or user namespaces, and ip and tc (iproute2).
#
# Usage: benchmarks/two_hosts.sh RATE COMMAND [ARGUMENT...]
#   benchmarks/two_hosts.sh 2gbit build/release/benchmarks/overlap_bench --json overlap.json
#
#   RATE   as tc takes it (100mbit, 2gbit), each way; none: what the processors can copy
#
# Rows travel while ranks compute, as under launch/mpirun.sh; MPIRUN_FLAGS adds mpirun's flags:
#   MPIRUN_FLAGS="--mca btl_tcp_progress_thread 0"   only while a rank waits
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ "${1:-}" = -h ] || [ "${1:-}" = --help ] || [ $# -lt 2 ]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
  exit $(($# >= 1 ? 0 : 2))
fi
if [ -z "${SHOAL_IN_NAMESPACES:-}" ]; then
  SHOAL_IN_NAMESPACES=yes exec "$root/tests/support/in_namespaces.sh" "${BASH_SOURCE[0]}" "$@"
fi
trap 'exit 130' INT TERM  # no signal ends the first process of a namespace by itself
rate=$1
shift

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$PWD
cd "$work"
source "$root/tests/support/two_hosts.sh"
if [ "$rate" != none ]; then
  for host in '' on_hostb; do
    $host tc qdisc add dev cable root tbf rate "$rate" burst 256kb latency 20ms
  done
fi
cd "$folder"
printf 'hosta slots=1\nhostb slots=1\n' >"$work/hosts"
read -r -a flags <<<"${MPIRUN_FLAGS:-}"
[ "$(id -u)" -ne 0 ] || flags+=(--allow-run-as-root)
export OMPI_MCA_btl_tcp_progress_thread=1
OMP_NUM_THREADS=1 mpirun --hostfile "$work/hosts" -np 2 --bind-to none --mca pml ob1 \
  --mca btl self,tcp -x OMP_NUM_THREADS "${flags[@]}" "$@"
