#!/usr/bin/env bash
# launch/run: ranks share out the cores; more ranks than cores, root, bad numbers and signals are
# handled.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
unset OMP_NUM_THREADS

cat >program <<'END'
#!/usr/bin/env bash
printf 'rank %s threads %s cpus %s args %s\n' "$OMPI_COMM_WORLD_RANK" "$OMP_NUM_THREADS" \
  "$(taskset -cp $$ | sed 's/.*: //')" "$*"
[ "${!#}" != fail_on_1 ] || [ "$OMPI_COMM_WORLD_RANK" != 1 ] || exit 13
END
chmod +x program
export SHOAL_PROGRAM=$PWD/program

fail() { echo "FAILED: $*"; cat output; exit 1; }
run() { "$root/launch/run" "$@" >output 2>&1; }
count() { grep -c -- "$1" output || true; }

cores=$(lscpu -p=CORE,SOCKET | grep -v '^#' | sort -u | wc -l)
run train a=b c=d || fail "one rank"
[ "$(count "rank 0 threads $cores .*args train a=b c=d")" -eq 1 ] || fail "one rank gets all cores"

if [ "$cores" -ge 2 ]; then
  run -n 2 train || fail "two ranks"
  [ "$(count "threads $((cores / 2)) ")" -eq 2 ] || fail "two ranks get half of the cores each"
  [ "$(sed 's/.*cpus \(.*\) args.*/\1/' output | sort -u | wc -l)" -eq 2 ] ||
    fail "two ranks must not share cores"
fi

run -n $((2 * cores + 1)) train || fail "more ranks than cores"
[ "$(count 'threads 1 ')" -eq $((2 * cores + 1)) ] || fail "a rank without a core has one thread"

status=0
run -n 2 train fail_on_1 || status=$?
[ "$status" -eq 13 ] || fail "a rank's exit code must come through, got $status"
[ "$(count '^rank')" -eq "$(wc -l <output)" ] || fail "mpirun adds to what the ranks say"
! MPIRUN_FLAGS="--bind-to core --map-by slot:PE=$((cores + 1))" run train || fail "too many cores"
[ "$(count 'found no available cpus')" -eq 1 ] || fail "why no rank began is not told once"
! MPIRUN_FLAGS=--no-such-flag run train || fail "an unknown flag"
[ "$(count '--no-such-flag')" -eq 1 ] || fail "an unknown flag is not told once"

cat >killed <<'END'
#!/usr/bin/env bash
[ "$OMPI_COMM_WORLD_RANK" != 1 ] || kill -KILL $$
sleep 60
END
chmod +x killed
status=0
SHOAL_PROGRAM=$PWD/killed run -n 2 train || status=$?
[ "$status" -eq 137 ] || fail "a killed rank gives 137, got $status"
[ "$(count 'a rank was ended by signal 9 (KILL), as by the system where memory runs out')" -eq 1 ] ||
  fail "a killed rank is not told"
sed -i 's/-KILL/-SEGV/' killed
status=0
SHOAL_PROGRAM=$PWD/killed run -n 2 train || status=$?
[ "$status" -eq 139 ] || fail "a rank that crashes gives 139, got $status"
[ "$(count 'a rank was ended by signal 11 (SEGV), a fault in shoal')" -eq 1 ] ||
  fail "a crashed rank is not told"

# Of more threads than cores none spins while it waits.
cat >waits <<'END'
#!/usr/bin/env bash
echo "waits ${OMP_WAIT_POLICY:-as it likes}"
END
chmod +x waits
waits() { SHOAL_PROGRAM=$PWD/waits run "${@:2}" && [ "$(count "waits $1")" -ge 1 ]; }
waits 'as it likes' train || fail "a rank with all cores"
waits passive train run.threads=$((cores + 1)) || fail "more threads than cores"
waits passive -n $((cores + 1)) train || fail "more ranks than cores"
OMP_NUM_THREADS=$((cores + 1)),1 waits passive train || fail "OMP_NUM_THREADS"
OMP_NUM_THREADS=$((cores + 1)) waits 'as it likes' train run.threads=1 || fail "run.threads holds"
OMP_WAIT_POLICY=active waits active train run.threads=$((cores + 1)) || fail "the user's policy"

# refused FAULT ARGUMENT...: a wrong command line ends with 2, as shoal's own.
refused() {
  local fault=$1 status=0
  run "${@:2}" || status=$?
  [ "$status" -eq 2 ] || fail "$fault: exit code $status, wanted 2"
}
for bad in 0 -1 x 1.5; do
  refused "-n $bad" -n "$bad" train
  [ "$(count "needs a number of ranks, got '$bad'")" -eq 1 ] || fail "-n $bad: message"
done
refused "no command"
refused "no number" -n
env -u HOME "$root/launch/run" train >output 2>&1 || fail "without HOME"
SHOAL_PROGRAM=$PWD/absent
! run train || fail "an absent program was accepted"
[ "$(count 'Build it: launch/quickstart')" -eq 1 ] || fail "absent program: message"

# A first signal asks the ranks to save and end; a second one ends them, even if they do not listen.
cat >patient <<'END'
#!/usr/bin/env bash
trap "$ON_USR1" USR1
echo up
while :; do sleep 0.05; done
END
chmod +x patient
export SHOAL_PROGRAM=$PWD/patient ON_USR1
start() {
  rm -f output
  "$root/launch/run" -n 2 "${1:-train}" >output 2>&1 &
  job=$!
  # Ranks share the output, so that their lines may be mixed.
  until [ -e output ] && [ "$(grep -o up output | wc -l)" -eq 2 ]; do
    kill -0 "$job" 2>/dev/null || fail "ended before it was signalled"
    sleep 0.05
  done
}
for signal in TERM HUP USR1; do
  ON_USR1='exit 75'
  start
  kill -"$signal" "$job"
  status=0
  wait "$job" || status=$?
  [ "$status" -eq 75 ] || fail "after SIG$signal the ranks end with 75, got $status"
  [ "$(count "run: SIG$signal: the ranks save and end; once more ends them at once")" -eq 1 ] || fail "SIG$signal: message"
done
ON_USR1=:
start
kill -TERM "$job"
sleep 0.7
kill -0 "$job" 2>/dev/null || fail "one signal ended ranks that do not listen"
kill -TERM "$job"
status=0
wait "$job" || status=$?
[ "$status" -ne 0 ] || fail "a job that was ended must not end with 0"

# As fast as somebody presses Ctrl-C twice.
start
kill -TERM "$job"
until [ "$(count 'once more ends them')" -eq 1 ]; do sleep 0.02; done
sleep 0.15
kill -HUP "$job"
status=0
wait "$job" || status=$?
[ "$status" -ne 0 ] || fail "a job that was ended must not end with 0"
[ "$(count 'run: SIGHUP: train is ended')" -eq 1 ] || fail "a fast second signal: message"

# timeout sends its signal twice, which is one.
rm -f output
ON_USR1='sleep 0.2; exit 75'
status=0
timeout 3 "$root/launch/run" -n 2 train >output 2>&1 || status=$?
[ "$status" -eq 124 ] || fail "under timeout: $status instead of 124"
[ "$(count 'SIGTERM: the ranks save and end')" -eq 1 ] || fail "under timeout: no message"
[ "$(count 'is ended')" -eq 0 ] || fail "the signal of timeout counts twice"
ON_USR1=:

# A signal is passed on though nothing can be printed: onto a full disk, and into a pipe that nobody
# reads any more, as after Ctrl-C in `launch/run ... | tee`. Nor does that end the ranks.
cat >saving <<'END'
#!/usr/bin/env bash
trap 'sleep 0.3; touch saved.$OMPI_COMM_WORLD_RANK; exit 75' USR1
trap : PIPE
touch up.$OMPI_COMM_WORLD_RANK
while :; do sleep 0.05; echo step; echo step >&2; done
END
chmod +x saving
SHOAL_PROGRAM=$PWD/saving
stop_unheard() {
  until [ -e up.0 ] && [ -e up.1 ]; do sleep 0.05; done
  sleep 0.3
  kill -HUP "$job"
  sleep 0.1
  kill -HUP "$job"  # as a terminal that closes
  status=0
  wait "$job" || status=$?
  [ "$status" -eq 75 ] || fail "$1: $status instead of 75"
  [ -e saved.0 ] && [ -e saved.1 ] || fail "$1: the ranks were ended"
  rm -f up.* saved.*
}
"$root/launch/run" -n 2 train >/dev/null 2>/dev/full &
job=$!
stop_unheard "a full disk"
mkfifo pipe
sleep 0.5 <pipe &
"$root/launch/run" -n 2 train >pipe 2>&1 &
job=$!
stop_unheard "a closed pipe"
"$root/launch/run" -n 2 train <&- >&- 2>&- &
job=$!
stop_unheard "closed outputs"

# A signal that comes before the ranks listen waits for them.
cat >slow <<'END'
#!/usr/bin/env bash
echo up
sleep 1
trap 'exit 75' USR1
while :; do sleep 0.05; done
END
chmod +x slow
SHOAL_PROGRAM=$PWD/slow
start
kill -TERM "$job"
status=0
wait "$job" || status=$?
[ "$status" -eq 75 ] || fail "a signal before the ranks listen: $status instead of 75"

# Other commands than train do not listen: one signal ends them.
cat >deaf <<'END'
#!/usr/bin/env bash
echo up
sleep 600
END
chmod +x deaf
SHOAL_PROGRAM=$PWD/deaf
start eval
kill -TERM "$job"
status=0
wait "$job" || status=$?
[ "$status" -ne 0 ] || fail "an evaluation that was ended must not end with 0"
[ "$(count 'run: SIGTERM: eval is ended')" -eq 1 ] || fail "an ended evaluation: no word"

# A second signal while mpirun follows its ranks changes nothing.
SHOAL_PROGRAM=$PWD/patient ON_USR1='sleep 0.6; echo $$ >>left; exit 75'
start
kill -TERM "$job"
ranks_left() {
  [ "$(wc -l 2>/dev/null <left)" = 2 ] || return 1
  ! sed 's|.*|/proc/&/status|' left | xargs grep -qs '^State:.[^ZX]'
}
until ranks_left; do sleep 0.05; done
kill -TERM "$job" 2>/dev/null || true
status=0
wait "$job" || status=$?
[ "$status" -eq 75 ] || fail "a second signal after the ranks have left: $status instead of 75"
