#!/usr/bin/env bash
# Kills one of two ranks outright, again and again: at calls of MPI spread over the phases of two
# steps, and at file calls spread over a save. Each time the job ends, the newest checkpoint is that
# of an uninterrupted run, and so is the result of the run that was resumed after all of them.
source "$(dirname "$0")/common.sh"
shim=$(dirname "$program")/libfault_shim.so
last=40
most_seconds=30 # to end; a busy machine takes a while
more=()

# train NAME [VARIABLE=VALUE...]: on two ranks, with the library that kills.
train() {
  local name=$1
  shift
  LD_PRELOAD=$shim SHOAL_PROGRAM=$program OMPI_MCA_odls_base_sigkill_timeout=0 env "$@" \
    "$root/launch/run" -n 2 train "$tiny" \
    run.root="$PWD" run.name="$name" run.on_existing=resume train.duration="${last}step" \
    evaluate.every=6step checkpoint.every=2step checkpoint.keep_last=1000 "${more[@]}" >job.txt 2>&1
}
newest() { find run/ckpt -name 'step-*' | sort | tail -n 1 | sed 's/.*step-0*//'; }
folder_of() { printf 'step-%08d' "$1"; }
nobody_is_left() { ! pgrep -f "run.root=$PWD " >/dev/null; }
slowest=0

# kill_at COUNTER NUMBER RANK: resumes the run and kills the rank at that call, counted from its
# next save.
kill_at() {
  local step code=0 seconds
  step=$(newest)
  rm -f mark
  train run FAULT_FROM="/.tmp-$(folder_of $((step + 2)))" "$1=$2" FAULT_RANK="$3" \
    FAULT_MARK="$PWD/mark" || code=$?
  [ -e mark ] || fail "rank $3 was not killed at $1 $2: $(cat job.txt)"
  seconds=$(awk -v end="$(date +%s.%N)" -v start="$(stat -c %.9Y mark)" 'BEGIN {print end - start}')
  [ "$code" -ne 0 ] && [ "$code" -ne 75 ] || fail "a killed job ended with $code: $(cat job.txt)"
  awk -v s="$seconds" -v most="$most_seconds" 'BEGIN {exit !(s < most)}' ||
    fail "the job took $seconds s to end after rank $3 was killed at $1 $2"
  slowest=$(awk -v a="$slowest" -v b="$seconds" 'BEGIN {print (a > b ? a : b)}')
  for ((tries = 0; tries < 10 * most_seconds; tries++)); do
    nobody_is_left && break
    sleep 0.1
  done
  nobody_is_left || fail "processes are left after rank $3 was killed at $1 $2"
  step=$(newest)
  "$program" ckpt diff run "whole/ckpt/$(folder_of "$step")" >diff.txt ||
    fail "rank $3 killed at $1 $2: step $step is not that of the whole run: $(cat diff.txt)"
}

train whole FAULT_FROM="/.tmp-$(folder_of $((last - 2)))" FAULT_COUNT="$PWD/count" ||
  fail "the whole run failed: $(cat job.txt)"
read -r files_0 mpi <count.0 # of two steps and two saves
read -r files_1 _ <count.1
[ "$mpi" -gt 100 ] && [ "$files_0" -gt 30 ] && [ "$files_1" -gt 10 ] ||
  fail "calls were not counted: $(cat count.0 count.1)"

more=(run.stop_after=2step)
train run || [ $? -eq 75 ] || fail "no start: $(cat job.txt)"
more=()
for i in 0 1 2 3 4 5 6 7; do
  kill_at FAULT_MPI $((1 + i * mpi / 9)) $((i % 2))
done
for i in 0 1 2 3 4; do
  kill_at FAULT_AT $((1 + i * files_0 / 10)) 0
done
for i in 0 1; do
  kill_at FAULT_AT $((1 + i * files_1 / 4)) 1
done

# A rank that fails says so at once, though it is still writing its part of a checkpoint.
code=0
SECONDS=0
train run FAULT_FROM="/.tmp-$(folder_of $(($(newest) + 2)))" FAULT_MPI=20 FAULT_RANK=1 \
  FAULT_SLEEP=$((4 * most_seconds)) || code=$?
[ "$code" -eq 70 ] && grep -q 'error\[E70\] rank=1' job.txt ||
  fail "a rank whose call of MPI failed ended the job with $code: $(cat job.txt)"
[ "$SECONDS" -lt "$most_seconds" ] || fail "its report took $SECONDS s"

train run || fail "the last resume failed: $(cat job.txt)"
[ "$(digest run)" = "$(digest whole)" ] || fail "the result differs from the whole run's"
echo "kill_training: 15 kills; the slowest end took $slowest s"
