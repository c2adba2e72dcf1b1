#!/usr/bin/env bash
# Two ranks: one signal to one of them and both save and end with 75; two and that rank leaves at
# once and takes the job along, at the cost of the steps since the newest checkpoint alone.
source "$(dirname "$0")/common.sh"

newest_step() { ls run/ckpt 2>/dev/null | sed -n 's/^step-0*//p' | sort -n | tail -n 1 || true; }
is_later_than() { [ "$(newest_step)" -gt "$1" ] 2>/dev/null; }
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

start
kill -TERM "${rank_pids[1]}"
within 60 "a signal did not end the job" is_gone "$job"
code=0
wait "$job" || code=$?
[ "$code" -eq 75 ] || fail "a signal ended the job with $code, wanted 75: $(cat job.txt)"
grep -q "\"step\":$(newest_step)," <<<"$(tail -n 1 run/metrics.jsonl)" || fail "the last step was not saved"
expect 0 "$program" ckpt verify run

# A rank that stands still keeps the other in the step at hand, where the first signal has to wait.
for one in 0 1; do
  start run.on_existing=resume
  kill -STOP "${rank_pids[1 - one]}"
  kill -TERM "${rank_pids[one]}"
  sleep 0.5
  ! is_gone "${rank_pids[one]}" || fail "the first signal did not wait for the step: $(cat job.txt)"
  kill -TERM "${rank_pids[one]}"
  within 60 "two signals did not end rank $one" is_gone "${rank_pids[one]}"
  within 60 "the job went on without rank $one" is_gone "$job"
  code=0
  wait "$job" || code=$?
  [ "$code" -eq 143 ] || fail "two signals ended the job with $code, wanted 143: $(cat job.txt)"
  within 60 "the other rank outlived the job" is_gone "${rank_pids[1 - one]}"
  expect 0 "$program" ckpt verify run
done

# The folder can be gone on with; this time the clock ends the run.
saved=$(newest_step)
expect 75 ranks 2 "${endless[@]}" run.on_existing=resume run.stop_after=1s
is_later_than "$saved" || fail "the run did not go on from step $saved: $(cat output)"
