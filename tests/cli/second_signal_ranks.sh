#!/usr/bin/env bash
# Two ranks: one signal to one of them and both save and end with 75; two and that rank leaves at
# once and takes the job along, at the cost of the steps since the newest checkpoint alone.
source "$(dirname "$0")/common.sh"

newest_step() { ls run/ckpt 2>/dev/null | sed -n 's/^step-0*//p' | sort -n | tail -n 1 || true; }
is_later_than() { [ "$(newest_step)" -gt "$1" ] 2>/dev/null; }
# Dead, though perhaps not yet buried by its parent.
is_gone() { ! grep -qs '^State:.[^ZX]' "/proc/$1/status"; }
endless=(train "$tiny" run.root=. train.duration=100000step evaluate.every=never checkpoint.every=5step)

# start ARGUMENT...: returns once the job has saved a checkpoint of its own.
start() {
  local before
  before=$(newest_step)
  ranks 2 "${endless[@]}" "$@" >job.txt 2>&1 &
  job=$!
  wait_until "its first checkpoint" is_later_than "${before:-0}"
  mapfile -t rank_pids < <(ranks_of "$job")
  [ "${#rank_pids[@]}" -eq 2 ] || fail "not two ranks but ${#rank_pids[@]}: $(cat job.txt)"
}

ms_since() { echo $((($(date +%s%N) - $1) / 1000000)); }

start
began=$(date +%s%N)
kill -TERM "${rank_pids[1]}"
code=0
wait "$job" || code=$?
[ "$(ms_since "$began")" -lt 5000 ] || fail "saving and leaving took $(ms_since "$began") ms"
[ "$code" -eq 75 ] || fail "a signal ended the job with $code, wanted 75: $(cat job.txt)"
tail -n 1 run/metrics.jsonl | grep -q "\"step\":$(newest_step)," || fail "the last step was not saved"
expect 0 "$program" ckpt verify run

# A rank that stands still keeps the other in the step at hand, where the first signal has to wait.
for one in 0 1; do
  start run.on_existing=resume
  kill -STOP "${rank_pids[1 - one]}"
  kill -TERM "${rank_pids[one]}"
  sleep 0.5
  ! is_gone "${rank_pids[one]}" || fail "the first signal did not wait for the step: $(cat job.txt)"
  kill -TERM "${rank_pids[one]}"
  began=$(date +%s%N)
  until is_gone "${rank_pids[one]}"; do sleep 0.02; done
  left_ms=$(ms_since "$began")
  code=0
  wait "$job" || code=$?
  ended_ms=$(ms_since "$began")
  [ "$left_ms" -lt 1000 ] || fail "rank $one left after $left_ms ms"
  [ "$code" -eq 143 ] || fail "two signals ended the job with $code, wanted 143: $(cat job.txt)"
  [ "$ended_ms" -lt 6000 ] || fail "the job went on for $ended_ms ms without rank $one"
  for ((tries = 40; tries > 0; tries--)); do
    ! is_gone "${rank_pids[1 - one]}" || break
    sleep 0.05
  done
  [ "$tries" -gt 0 ] || fail "the other rank outlived the job"
  expect 0 "$program" ckpt verify run
done

# The folder can be gone on with; this time the clock ends the run.
saved=$(newest_step)
expect 75 ranks 2 "${endless[@]}" run.on_existing=resume run.stop_after=1s
is_later_than "$saved" || fail "the run did not go on from step $saved: $(cat output)"
