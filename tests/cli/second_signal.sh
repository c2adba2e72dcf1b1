#!/usr/bin/env bash
# A second INT or TERM leaves at once, and any signal after the grace, though the step at hand takes
# minutes. Signals that announce a TERM do not make it the second.
source "$(dirname "$0")/common.sh"

# start COMMAND...: the program, or what runs it; returns once a step is under way.
start() {
  rm -rf run
  "$@" train "$tiny" run.root=. parallel.expert_ranks=1 train.batch=64000 train.accumulate=16000 \
    run.threads=2 run.grace="${grace:-1h}" >job.txt 2>&1 &
  job=$!
  is_prepared() { grep -qs 'device cpu' run/log/rank-00000.log; }
  wait_until "it was signalled" is_prepared
  sleep 0.2
}
# waits_after SIGNAL
waits_after() {
  kill "-$1" "$job"
  sleep 0.5
  ! is_gone "$job" || fail "$1 did not wait for the step: $(cat job.txt)"
}
# leaves_after SIGNAL CODE
leaves_after() {
  kill "-$1" "$job"
  within 30 "$1 waited for the step" is_gone "$job"
  code=0
  wait "$job" || code=$?
  [ "$code" -eq "$2" ] || fail "$1 ended the job with $code, wanted $2: $(cat job.txt)"
}

start "$program"
# No thread but the main one takes signals: its handlers have a stack of their own.
threads=0
for status in /proc/"$job"/task/*/status; do
  [ "$status" != "/proc/$job/task/$job/status" ] || continue
  blocked=$(sed -n 's/^SigBlk:[[:blank:]]*//p' "$status")
  threads=$((threads + 1))
  [ $((16#$blocked & 16#4000)) -ne 0 ] || fail "a thread takes SIGTERM: $(cat "$status")"
done
[ "$threads" -ge 2 ] || fail "only $threads threads"
waits_after USR1
waits_after TERM
waits_after HUP
leaves_after TERM 143

grace=0.1s start "$program"
waits_after USR1
leaves_after HUP 129

# The second signal of launch/run ends the ranks in whatever grace they are.
SHOAL_PROGRAM=$program start "$root/launch/run"
waits_after TERM
grep -q 'run: SIGTERM: the ranks save and end; once more ends them at once' job.txt || fail "$(cat job.txt)"
leaves_after HUP 143
