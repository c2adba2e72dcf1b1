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

# moves NAME [OVERRIDE...]: a run goes from grid to grid, a step on each, and what is loaded is what
# was saved.
moves() {
  local name=$1 saved loaded world expert_ranks sharded=true
  shift
  expect 75 ranks 4 train "$tiny" run.root=. run.name="$name" parallel.expert_ranks=4 \
    parallel.uneven=true run.stop_after=5step "$@"
  for shape in "${grids[@]}"; do
    saved=$(digest "$name")
    read -r world expert_ranks <<<"$shape"
    if $sharded; then sharded=false; else sharded=true; fi
    expect 75 ranks "$world" train "$tiny" run.root=. run.name="$name" run.on_existing=resume \
      parallel.expert_ranks="$expert_ranks" parallel.uneven=true parallel.shard_optimizer="$sharded" \
      run.stop_after=1step "$@"
    loaded=$(grep -o 'sha256:[0-9a-f]*' "$name/log/rank-00000.log" | tail -n 1)
    [ "$loaded" = "$saved" ] || fail "$name on $world ranks: loaded '$loaded', saved '$saved'"
  done
}

moves four
cp -r four copy
expect 0 "$program" ckpt diff four copy
expect 0 "$program" inspect four --diff copy
expect 1 "$program" ckpt diff four four/ckpt/"$(ls four/ckpt | head -n 1)"
expect 1 "$program" inspect four --diff four/ckpt/"$(ls four/ckpt | head -n 1)"
moves denoiser train.average=0.9 'data.normalise={mean: [0, 0, 0], std: [1, 1, 1]}' 'task={name: denoise}' \
  'model={backbone: adaptive_attention, patch: 4, width: 16, depth: 1, heads: 2, attention: {mixing: hard,
  soft_steps: 8, experts: [{k: 3}, {share: 0.5}, {candidates: {from: window, window: 3}}, {}]}}'
moves nexus parallel.placement=by_cost 'model={backbone: vit, patch: 4, width: 16, depth: 2, heads: 2, hidden: 32, nexus:
  {experts: {count: 3}, memory: {count: 2, keys: 8, k: 2}, slots: 2}}'
moves sparse 'sparsity={density: 0.4, rule: {name: set, every: 2step, until: 100%},
  permutation: {name: learned, until: 12step}}'
moves switches 'sparsity={density: 0.4, layers: [experts], rule: {name: set, every: 2step, until: 100%},
  permutation: {name: benes, near: random, until: 12step}}'
grids=("1 1" "3 3" "2 2" "4 2" "1 1")
moves moco train.accumulate=1 'task={name: moco_v3, hidden: 32, out: 16}'
