#!/usr/bin/env bash
# Resumed equals uninterrupted: equal digests and bit-equal metrics, for three places to stop and
# for a stop by signal.
source "$(dirname "$0")/common.sh"

train() { expect "$1" ranks 2 train "$tiny" run.root=. "${@:2}"; }

train 0 run.name=whole
for stop in 17 10 31; do
  train 75 run.name="cut$stop" run.stop_after="${stop}step"
  train 0 run.name="cut$stop" run.on_existing=resume
  [ "$(digest whole)" = "$(digest "cut$stop")" ] || fail "digest after stopping at $stop differs"
  diff <(exact_metrics whole) <(exact_metrics "cut$stop") || fail "metrics after $stop differ"
done
grep -q 'sha256:' cut17/log/rank-00000.log || fail "the digest of what was loaded is not logged"

# A signal to one rank stops all of them; the same command goes on.
ranks 2 train "$tiny" run.root=. run.name=signalled >signalled.txt 2>&1 &
job=$!
until grep -qs '"step":3,' signalled/metrics.jsonl; do
  kill -0 "$job" 2>/dev/null || fail "training ended before it was signalled: $(cat signalled.txt)"
  sleep 0.05
done
kill -USR1 "$(a_rank_of "$job")"
code=0
wait "$job" || code=$?
[ "$code" -eq 75 ] || fail "a signal ended the job with $code, wanted 75: $(cat signalled.txt)"
train 0 run.name=signalled run.on_existing=resume
[ "$(digest whole)" = "$(digest signalled)" ] || fail "digest after a signal differs"
