#!/usr/bin/env bash
# check says of a recipe for GPUs what they compute slowly; of one for CPUs nothing of it.
source "$(dirname "$0")/common.sh"

gpu=("$tiny" run.device=cuda train.precision=float32 parallel.expert_ranks=2)
expect 0 answered check "${gpu[@]}"
grep -q "^note  *train.precision: float32 products leave a GPU's tensor cores unused" output ||
  fail "float32: $(cat output)"
grep -q '^note  *model.sparse.channel_moe.capacity.mode: the host waits for the GPU' output ||
  fail "waits: $(cat output)"
expect 0 answered check "${gpu[@]}" run.tf32=true model.channel_hidden=36
! grep -q 'tensor cores unused' output || fail "with TF32: $(cat output)"
grep -q '^note  *model: sizes of [1-9].* are not multiples of 8' output || fail "sizes: $(cat output)"

expect 0 answered check "${gpu[@]}" run.device=cpu
! grep -qE 'tensor cores|the host waits|multiples of 8' output || fail "on CPUs: $(cat output)"

expect 10 answered check "${gpu[@]}" run.hang_timeout=30step
grep -q 'run.hang_timeout=30step: expected a duration in s' output || fail "$(cat output)"
expect 0 answered keys run.hang_timeout
grep -q 'MPI have no limit yet' output || fail "the help: $(cat output)"
