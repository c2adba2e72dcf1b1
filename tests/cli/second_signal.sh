#!/usr/bin/env bash
# A second signal leaves at once, though the step at hand takes minutes.
source "$(dirname "$0")/common.sh"

"$program" train "$tiny" run.root=. parallel.expert_ranks=1 train.batch=64000 \
  train.accumulate=16000 >job.txt 2>&1 &
job=$!
until grep -qs 'device cpu' run/log/rank-00000.log; do
  kill -0 "$job" 2>/dev/null || fail "training ended before it was signalled: $(cat job.txt)"
  sleep 0.05
done
sleep 0.2
kill -TERM "$job"
sleep 1
kill -0 "$job" 2>/dev/null || fail "the first signal did not wait for the step: $(cat job.txt)"
kill -TERM "$job"
within 30 "the second signal waited for the step" is_gone "$job"
code=0
wait "$job" || code=$?
[ "$code" -eq 143 ] || fail "a second signal ended the job with $code, wanted 143: $(cat job.txt)"
