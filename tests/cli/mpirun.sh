#!/usr/bin/env bash
# launch/mpirun.sh on this machine alone: one rank for each slot, threads and cores for each rank,
# exit codes and signals come through, and mistakes are named. two_hosts.sh has more machines.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
unset OMP_NUM_THREADS MPIRUN_FLAGS

fail() { echo "FAILED: $*"; cat output; exit 1; }
run() { "$root/launch/mpirun.sh" "$@" >output 2>&1; }
count() { grep -c -- "$1" output || true; }
says() { [ "$(count "$1")" -ge 1 ] || fail "lacks: $1"; }
# refuses CODE ARGUMENT...
refuses() {
  local status=0
  run "${@:2}" || status=$?
  [ "$status" -eq "$1" ] || fail "'${*:2}' ended with $status, wanted $1"
}

cat >program <<'END_OF_PROGRAM'
#!/usr/bin/env bash
# In one go, as ranks share the output.
printf 'rank %s threads %s cpus %s in %s args%s\n' "$OMPI_COMM_WORLD_RANK" \
  "${OMP_NUM_THREADS:-unset}" "$(taskset -cp $$ | sed 's/.*: //')" "$PWD" "$(printf ' <%s>' "$@")"
[ "${!#}" != fail_on_1 ] || [ "$OMPI_COMM_WORLD_RANK" != 1 ] || exit 13
END_OF_PROGRAM
chmod +x program
export SHOAL_PROGRAM=$PWD/program

printf '# two ranks\n\n  localhost   slots=2  # here' >hosts
cores=$(source "$root/launch/mpirun_common.sh" && usable_cores)
run hosts train a=b 'c=d e' || fail "two ranks"
[ "$(count "in $PWD args <train> <a=b> <c=d e>$")" -eq 2 ] || fail "folder and arguments"
if [ "$cores" -ge 2 ]; then
  [ "$(count " threads $((cores / 2)) ")" -eq 2 ] || fail "the ranks share out the cores"
  [ "$(sed 's/.*cpus \(.*\) in .*/\1/' output | sort -u | wc -l)" -eq 2 ] ||
    fail "two ranks must not share cores"
  run hosts --cores 1 train || fail "--cores 1"
  [ "$(count ' threads 1 ')" -eq 2 ] || fail "--cores 1 is one thread each"
fi
run hosts --cores 0 train || fail "--cores 0"
[ "$(count ' threads unset ')" -eq 2 ] || fail "--cores 0 leaves threads to the program"
echo "localhost slots=$((2 * cores + 1))" >many
run many train || fail "more ranks than cores"
[ "$(count '^rank ')" -eq $((2 * cores + 1)) ] || fail "one rank for each slot"

status=0
run hosts train fail_on_1 || status=$?
[ "$status" -eq 13 ] || fail "a rank's exit code must come through, got $status"

printf 'node1 slots=2\nnode2 slots = 4\n' >cluster
MPIRUN_FLAGS='--mca btl self,tcp' run cluster --cores 3 --dry-run train 'a=[1, 2]' ||
  fail '--dry-run'
says '^OMP_NUM_THREADS=3 mpirun --host node1:2,node2:4 -np 6 --map-by slot:PE=3 --bind-to core'
says ' -x OMP_NUM_THREADS .*--mca btl self,tcp sh -c '
says "$PWD/program train 'a=\[1, 2\]'$"
[ "$(count '^')" -eq 1 ] || fail "--dry-run prints one line"

refuses 2
says 'no hostfile; try'
refuses 1 absent train
says "there is no hostfile 'absent'"
refuses 2 hosts
says 'no command'
refuses 2 hosts --cores two train
says "number of cores, got 'two'"
refuses 2 hosts -n 2 train
says "unknown flag '-n'"
refuses 1 hosts --cores "$cores" train
says "2 slots with --cores $cores are more than the $cores cores of $(uname -n)"
refuses 1 cluster train
says "is not in 'cluster'"
for line in node1 node1:8 'node1 8' 'node1 slots=0' 'node1 slots=two' 'me@node1 slots=2' \
  'node1 slots=2 rack=3'; do
  printf '# a comment\n%s\n' "$line" >bad
  refuses 1 bad train
  says "bad:2: '$line' is not 'HOST slots=N'"
done
printf 'node1 slots=1\nnode1 slots=1\n' >bad
refuses 1 bad train
says "bad:2: 'node1' a second time"
printf '# nobody\n\n' >bad
refuses 1 bad train
says "'bad' names no machine"
SHOAL_PROGRAM=$PWD/absent refuses 1 hosts train
says 'absent is not there'
mkdir bin
printf '#!/bin/sh\necho "HYDRA build details:"\n' >bin/mpirun
chmod +x bin/mpirun
PATH=$PWD/bin:$PATH refuses 1 hosts train
says 'not that of Open MPI 4 or 5 but: HYDRA'

# A first signal asks the ranks to save and end; a second one ends them, even if they do not listen.
# Not a shell, which cannot trap a signal that it was started without.
cat >patient <<'END_OF_PROGRAM'
#!/usr/bin/env python3
import os
import signal
import time
signal.signal(signal.SIGUSR1, lambda *_: os._exit(75) if os.environ["LISTENS"] == "yes" else None)
print("up", flush=True)
while True:
    time.sleep(0.05)
END_OF_PROGRAM
chmod +x patient
export SHOAL_PROGRAM=$PWD/patient LISTENS=yes
start() {
  rm -f output
  "$root/launch/mpirun.sh" hosts train >output 2>&1 &
  job=$!
  # Ranks share the output, so that their lines may be mixed.
  until [ -e output ] && [ "$(grep -o up output | wc -l)" -eq 2 ]; do
    kill -0 "$job" 2>/dev/null || fail "ended before it was signalled"
    sleep 0.05
  done
}
start
kill -TERM "$job"
status=0
wait "$job" || status=$?
[ "$status" -eq 75 ] || fail "after SIGTERM the ranks end with 75, got $status"
LISTENS=no
start
kill -TERM "$job"
sleep 0.7
kill -0 "$job" 2>/dev/null || fail "one signal ended ranks that do not listen"
kill -TERM "$job"
status=0
wait "$job" || status=$?
[ "$status" -ne 0 ] || fail "a job that was ended must not end with 0"
