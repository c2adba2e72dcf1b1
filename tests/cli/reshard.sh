#!/usr/bin/env bash
# Checkpoints move between one, two, three (uneven) and four ranks with equal digests: those of
# experts in both stages of a Sparse-MLP, of a denoiser's attention experts with averaged weights,
# of the experts and memory units of a Nexus layer, from placement to placement as well, of sparse
# experts with masks that change and permutations that become hard on the way, matrices or switches,
# and of MoCo's two encoders with the optimizer's state of one. Every second step the optimizer's
# state is shared out among the replicas.
source "$(dirname "$0")/common.sh"

# Ranks and expert ranks: every number of ranks from every other.
grids=("1 1" "2 2" "3 3" "1 1" "4 2" "2 1" "4 4" "3 3" "2 2" "1 1" "3 3" "4 4" "1 1")
sharded=true
expect 75 ranks 4 train "$tiny" run.root=. run.name=four parallel.expert_ranks=4 \
  parallel.uneven=true run.stop_after=5step
for shape in "${grids[@]}"; do
  saved=$(digest four)
  read -r world expert_ranks <<<"$shape"
  if $sharded; then sharded=false; else sharded=true; fi
  expect 75 ranks "$world" train "$tiny" run.root=. run.name=four run.on_existing=resume \
    parallel.expert_ranks="$expert_ranks" parallel.uneven=true parallel.shard_optimizer="$sharded" \
    run.stop_after=1step
  loaded=$(grep -o 'sha256:[0-9a-f]*' four/log/rank-00000.log | tail -n 1)
  [ "$loaded" = "$saved" ] || fail "on $world ranks: loaded '$loaded', saved '$saved'"
done
cp -r four copy
expect 0 "$program" ckpt diff four copy
expect 0 "$program" inspect four --diff copy
expect 1 "$program" ckpt diff four four/ckpt/"$(ls four/ckpt | sed -n 1p)"
expect 1 "$program" inspect four --diff four/ckpt/"$(ls four/ckpt | sed -n 1p)"

# The other models, all by one start of four ranks.
RESHARD_RECIPE=$tiny "$root/tests/support/mpi.sh" 4 "$(dirname "$program")/tests_mpi" \
  --gtest_brief=1 --gtest_color=no --gtest_filter='*ReshardCli*' >models.txt 2>&1 || fail "$(cat models.txt)"
grep -q ' 5 tests' models.txt || fail "not five models: $(cat models.txt)"
