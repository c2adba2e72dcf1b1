#!/usr/bin/env bash
# Runs shoal under mpirun on several machines, one rank per slot of a hostfile.
#
# Usage: launch/mpirun.sh HOSTFILE [--cores K] [--dry-run] COMMAND [ARGUMENT...]
#   launch/mpirun.sh hosts.txt train RECIPE.yaml parallel.expert_ranks=8
#   launch/mpirun.sh hosts.txt doctor
#
#   HOSTFILE    a line `node1 slots=8` for each machine: the number of ranks to run there, one per GPU
#               or as many as should share its cores
#   --cores K   cores and threads per rank; 0 leaves the ranks unbound. Default: the cores of this
#               machine divided by the largest number of slots
#   --dry-run   prints the command without running it
#
# Every machine needs the program and this working directory at the same path, Open MPI 4 or 5, and
# passwordless ssh. LD_LIBRARY_PATH is not needed: the program finds its libraries by its RPATH.
# Signals are handled as by launch/run.
#
# SHOAL_PROGRAM selects a program other than build/release/shoal (for an installed script: other than
# PREFIX/bin/shoal). MPIRUN_FLAGS adds flags of mpirun:
#   MPIRUN_FLAGS="-x CIFAR10"           passes an environment variable that the recipe reads
#   MPIRUN_FLAGS="--report-bindings"    prints which rank is bound to which cores

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$shoal_root/launch/mpirun_common.sh"

# Whether mpirun will run the ranks of host $1 on this machine.
is_here() {
  local name
  for name in localhost "$(uname -n)" $(hostname -I 2>/dev/null); do
    if [ "$1" = "$name" ]; then return 0; fi
  done
  # With a domain on one side only.
  name=$(uname -n)
  [ "$1" = "${name%%.*}" ] || [ "${1%%.*}" = "$name" ]
}

an_example="Write a line 'node1 slots=8' for each machine: its name, and how many ranks run there."
# Sets hosts (as mpirun wants them), ranks, most_slots and local_ranks.
read_hostfile() {
  local file=$1 line name slots number=0 seen=' ' blank='[[:space:]]*'
  local pattern="^$blank([A-Za-z0-9._-]+)[[:space:]]${blank}slots$blank=$blank([1-9][0-9]*)$blank$"
  [ -f "$file" ] || die "there is no hostfile '$file'" "$an_example"
  hosts='' ranks=0 most_slots=0 local_ranks=0
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    line=${line%%#*}
    [[ "$line" =~ [^[:space:]] ]] || continue
    [[ "$line" =~ $pattern ]] || die "$file:$number: '$line' is not 'HOST slots=N'" \
      "N is the number of ranks that run there; user and port, if ssh needs them, go into ~/.ssh/config."
    name=${BASH_REMATCH[1]} slots=${BASH_REMATCH[2]}
    [[ "$seen" != *" $name "* ]] ||
      die "$file:$number: '$name' a second time" "Add its slots up in one line."
    seen+="$name "
    hosts+="${hosts:+,}$name:$slots"
    ranks=$((ranks + slots))
    [ "$slots" -le "$most_slots" ] || most_slots=$slots
    if is_here "$name"; then local_ranks=$((local_ranks + slots)); fi
  done <"$file"
  [ "$ranks" -gt 0 ] || die "the hostfile '$file' names no machine" "$an_example"
}

cores='' dry_run=false
case "${1:-}" in
  -h | --help) show_help; exit 0 ;;
  '' | -*) die_of_usage "no hostfile; try launch/mpirun.sh --help" ;;
esac
hostfile=$1
shift
while [ $# -gt 0 ]; do
  case "$1" in
    --cores)
      cores=${2:-}
      [[ "$cores" =~ ^(0|[1-9][0-9]*)$ ]] || die_of_usage "--cores needs a number of cores, got '$cores'"
      shift 2 ;;
    --dry-run) dry_run=true; shift ;;
    -*) die_of_usage "unknown flag '$1'; try launch/mpirun.sh --help" "MPIRUN_FLAGS takes mpirun's flags." ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || die_of_usage "no command; try launch/mpirun.sh --help"
command=$1

read_hostfile "$hostfile"
find_program
version=$(mpirun --version 2>&1 | sed -n 1p)
open_mpi='\((Open MPI|OpenRTE)\) [45]\.'
[[ "$version" =~ $open_mpi ]] ||
  die "mpirun is not that of Open MPI 4 or 5 but: $version" \
    "Put the one that shoal was built with first in PATH; shoal doctor names it."

here=$(usable_cores)
if [ -z "$cores" ]; then
  [ "$local_ranks" -gt 0 ] ||
    die "$(uname -n) is not in '$hostfile', so how many cores the others have is not known" \
      "Give the number of cores of a rank: --cores K."
  cores=$((here / most_slots))
fi
[ $((local_ranks * cores)) -le "$here" ] ||
  die "$local_ranks slots with --cores $cores are more than the $here cores of $(uname -n)" \
    "Lower one of them; --cores 0 leaves the ranks unbound."
flags=(--host "$hosts" -np "$ranks")
if [ "$cores" -gt 0 ]; then
  flags+=(--map-by "slot:PE=$cores" --bind-to core)
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cores}
else
  flags+=(--map-by slot --bind-to none --mca mpi_yield_when_idle 1)
fi
[ -z "${OMP_NUM_THREADS:-}" ] || flags+=(-x OMP_NUM_THREADS)
spare_cores "$((most_slots * $(threads_per_rank "$@")))" "$here"
[ -z "${OMP_WAIT_POLICY:-}" ] || flags+=(-x "OMP_WAIT_POLICY=$OMP_WAIT_POLICY")
# Over TCP an all-to-all proceeds while a rank computes only where a thread moves the data.
export OMPI_MCA_btl_tcp_progress_thread=${OMPI_MCA_btl_tcp_progress_thread:-1}
[ "$(id -u)" -ne 0 ] || flags+=(--allow-run-as-root)
read -r -a more_flags <<<"${MPIRUN_FLAGS:-}"

# What each rank does first, on its machine. SIGUSR1 goes to all ranks at once: one that does not
# listen yet must not die of it, one that does is enough.
start='trap "" USR1;
for path in "$1" "$2"; do
  [ -x "$path" ] && continue;
  [ "${OMPI_COMM_WORLD_LOCAL_RANK:-0}" = 0 ] || sleep 5;
  echo "mpirun.sh: error: $(uname -n): no $path, and each machine needs it at this path" >&2;
  exit 1;
done;
cd "$1" && shift && exec "$@"'
start=$(printf %s "$start" | tr -s '\n ' ' ')  # on one line, for --dry-run
job=("${flags[@]}" "${more_flags[@]}" sh -c "$start" sh "$PWD" "$program" "$@")

show_command() {
  local word
  [ -z "${OMP_NUM_THREADS:-}" ] || printf 'OMP_NUM_THREADS=%s ' "$OMP_NUM_THREADS"
  printf mpirun
  for word in "$@"; do
    [[ "$word" =~ ^[A-Za-z0-9_./:=,@+-]+$ ]] || word=${word@Q}
    printf ' %s' "$word"
  done
  printf '\n'
}

if $dry_run; then
  show_command "${job[@]}"
  exit 0
fi
find_columns
[ -z "${SHOAL_COLUMNS:-}" ] || job=(-x SHOAL_COLUMNS "${job[@]}")
run_mpirun "${job[@]}"
