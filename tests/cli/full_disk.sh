#!/usr/bin/env bash
# A disk that is full at a checkpoint costs that checkpoint: training goes on, older ones stay valid
# and the next one is saved. The last one is tried again for run.grace; only then the job ends with 21.
source "$(dirname "$0")/common.sh"

# Runs a command for which the disk is full at the next shard, once ./full exists.
with_full_disk() {
  env LD_PRELOAD="$(dirname "$program")/libfault_shim.so" FAULT_IF="$PWD/full" \
    FAULT_PATH=/shard- SHOAL_PROGRAM="$program" "$@"
}
steps() { find run/ckpt -maxdepth 1 -name 'step-*' 2>/dev/null | sed 's/.*step-0*//' | sort -n; }
has_checkpoint() { [ -n "$(steps)" ]; }
was_warned() { grep -q 'was not saved' job.txt; }
has_saved_again() { [ "$(steps | tail -n 1)" -gt "$lost" ]; }
endless=(train "$tiny" run.root=. train.duration=100000step evaluate.every=never)

with_full_disk "$root/launch/run" -n 2 "${endless[@]}" checkpoint.every=20step \
  checkpoint.keep_last=1000 >job.txt 2>&1 &
job=$!
wait_until "its first checkpoint" has_checkpoint
touch full
wait_until "a save failed" was_warned
grep -qE 'warning: \[E21\] step [0-9]+ was not saved, training goes on: .*/shard-.*No space left on device \([0-9]+ bytes needed, [0-9]+ free\)' \
  job.txt || fail "the warning does not tell file, reason and bytes: $(cat job.txt)"
lost=$(sed -n 's/.*step \([0-9]*\) was not saved.*/\1/p' job.txt)
wait_until "the next checkpoint" has_saved_again
kill -USR1 "$(a_rank_of "$job")"
code=0
wait "$job" || code=$?
[ "$code" -eq 75 ] || fail "a signal ended the job with $code, wanted 75: $(cat job.txt)"
grep -qx "$((lost - 20))" <<<"$(steps)" || fail "the checkpoint before is gone: $(steps)"
! grep -qx "$lost" <<<"$(steps)" || fail "a save that failed left a checkpoint"
for path in run/ckpt/step-*; do
  "$program" ckpt verify "$path" >/dev/null || fail "$path is not valid"
done
grep -q '"failed_saves": 1' run/summary.json || fail "summary.json does not count the failed save"

last=$(($(steps | tail -n 1) + 2))
touch full
expect 75 with_full_disk "$program" "${endless[@]}" run.on_existing=resume run.stop_after=2step \
  checkpoint.every=never checkpoint.keep_last=1000 parallel.expert_ranks=1
grep -q "\[E21\] step $last was not saved, trying again while run.grace lasts: .*bytes needed" output ||
  fail "no word of the failed save: $(cat output)"
[ "$(steps | tail -n 1)" -eq "$last" ] || fail "the last step was not saved: $(steps)"
"$program" ckpt verify run >/dev/null || fail "the newest checkpoint was damaged"

# Nor does a limit on the size of files end the job by a signal. What was saved before stays.
limited() {
  (
    ulimit -f 16
    "$program" "${two_steps[@]}" run.on_existing=resume run.grace=0.1s
  )
}
two_steps=("${endless[@]}" run.name=limited run.stop_after=2step checkpoint.every=never
  parallel.expert_ranks=1)
expect 75 "$program" "${two_steps[@]}"
expect 21 limited
[ "$(ls limited/ckpt)" = step-00000002 ] || fail "not what was saved before: $(ls limited/ckpt)"
grep -q 'error\[E21\] the last checkpoint could not be saved: .*/shard-.*File too large' output ||
  fail "exit 21 does not name the limit: $(cat output)"
