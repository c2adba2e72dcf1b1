#!/usr/bin/env bash
# Signals while a run is prepared. The recipe comes through a pipe, as of a process substitution, so
# that preparing lasts until this test writes it.
source "$(dirname "$0")/common.sh"
mkfifo pipe

# Starts training, as $job, and waits until it handles INT; then it gets $signals.
signals=INT
start() {
  exec 8<>pipe
  "$@" train /dev/fd/7 run.root=. parallel.expert_ranks=1 train.duration=100000step 7<pipe 8>&- \
    >job.txt 2>&1 &
  job=$!
  local caught=0
  until [ $((0x$caught & 2)) -ne 0 ]; do
    kill -0 "$job" 2>/dev/null || fail "training ended before it was signalled: $(cat job.txt)"
    sleep 0.02
    caught=$(sed -n 's/^SigCgt:\t*//p' "/proc/$job/status" 2>/dev/null || echo 0)
  done
  local signal
  for signal in $signals; do kill "-$signal" "$job"; done
}

# give TEXT: the recipe, whole.
give() {
  printf '%s\n' "$1" >&8
  exec 8>&-
}

# ends_with CODE WHAT
ends_with() {
  local code=0
  wait "$job" || code=$?
  [ "$code" -eq "$1" ] || fail "$2 ended with $code, wanted $1: $(cat job.txt)"
}

start "$program"
give "$(cat "$tiny")"
ends_with 75 "a signal before the first step"
[ "$(ls run/ckpt)" = step-00000001 ] || fail "not one step was saved: $(ls run/ckpt)"
rm -r run

# A terminal that closes sends HUP twice.
signals='HUP HUP' start "$program"
give "$(cat "$tiny")"
ends_with 75 "a closed terminal"
[ "$(ls run/ckpt)" = step-00000001 ] || fail "not one step was saved: $(ls run/ckpt)"
rm -r run

start "$program"
sleep 0.1
kill -0 "$job" || fail "the first signal did not wait for the first step"
kill -INT "$job"
ends_with 130 "a second signal"

# Failures keep their code. A rank that was signalled leaves silently, without the 5 s in which the
# launcher would end it.
start "$program"
give 'train: 3'
ends_with 10 "a bad recipe after a signal"
grep -q 'expected a mapping' job.txt || fail "the mistake is not named: $(cat job.txt)"
start env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 "$program"
give 'train: 3'
ends_with 10 "a bad recipe after a signal to rank 1"
[ ! -s job.txt ] || fail "rank 1 waited, and then repeated rank 0's message: $(cat job.txt)"
[ ! -e run ] || fail "a run that never began left a folder"
