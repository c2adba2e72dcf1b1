#!/usr/bin/env bash
# A training that does not fit is refused before it starts, and one that runs out of memory says
# where and what to lower.
source "$(dirname "$0")/common.sh"

wide="{source: shapes, image_size: 64, classes: 10}"
big=(train "$tiny" parallel.expert_ranks=1 "data=$wide" train.duration=2step evaluate.every=never)

# 2^26 images of 64 x 64 pixels: more than any machine has.
expect 11 "$program" "${big[@]}" train.batch=67108864 run.name=refused
grep -q 'E11.*train.batch: a rank would take about .* GiB' output || fail "$(cat output)"
grep -q 'train.batch [0-9]* or less fits' output || fail "no batch that fits: $(cat output)"
grep -q 'run.memory_check=false' output || fail "no way on: $(cat output)"
[ ! -e runs/refused ] || fail "a refused run left a folder"

# The batch that is named does fit.
fitting=$(grep -o 'train.batch [0-9]*' output | sed -n '1s/.* //p')
[ "$fitting" -ge 8 ] || fail "no batch: $(cat output)"

# peak_kib ARGUMENT...: the address space that the program takes at most.
peak_kib() {
  local peak=0 now
  "$program" "$@" >output 2>&1 &
  local job=$!
  while now=$(awk '/^VmPeak/ {print $2}' "/proc/$job/status" 2>/dev/null) && [ -n "$now" ]; do
    peak=$now
    sleep 0.02
  done
  wait "$job" || fail "$(cat output)"
  echo "$peak"
}

# Within an address space that the program fits into, but not this batch. Refused by default, and
# tried all the same if the recipe says so.
limit_kib=$(($(peak_kib "${big[@]}" run.name=first) + 1000000))
limited() {
  (
    ulimit -v "$limit_kib"
    "$program" "$@"
  )
}
expect 0 limited "${big[@]}" run.name=small
expect 11 limited "${big[@]}" train.batch=262144 run.name=large
grep -q 'a rank would take about' output || fail "$(cat output)"
expect 11 limited "${big[@]}" train.batch=262144 run.name=tried run.memory_check=false
grep -q 'E11\] step 1, .*out of memory.*lower train.batch' output || fail "$(cat output)"
grep -q 'out of memory' runs/tried/log/rank-00000.log || fail "the rank's log does not say so"
