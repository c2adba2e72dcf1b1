#!/usr/bin/env bash
# Usage: mpi.sh RANKS PROGRAM [ARGUMENT...]: runs the program under mpirun on this machine.
# Any rank's failure is the script's failure.
set -euo pipefail
ranks=$1
shift
flags=(-np "$ranks" --bind-to none --mca mpi_yield_when_idle 1 --tag-output)
# mpirun refuses root, and more ranks than cores, unless told.
[ "$(id -u)" -ne 0 ] || flags+=(--allow-run-as-root)
[ "$ranks" -le "$(nproc)" ] || flags+=(--oversubscribe)
export OMP_NUM_THREADS=1
exec mpirun "${flags[@]}" "$@"
