#!/usr/bin/env bash
# A checkpoint of four ranks loads on one, two, three (uneven) and four, with the same digest: of
# experts in both stages of a Sparse-MLP, and of the experts and memory units of a Nexus layer.
source "$(dirname "$0")/common.sh"

# moves NAME [OVERRIDE...]: trains on four ranks, then goes on from there on other grids.
moves() {
  local name=$1 saved loaded world expert_ranks
  shift
  expect 75 ranks 4 train "$tiny" run.root=. run.name="$name" parallel.expert_ranks=4 \
    parallel.uneven=true run.stop_after=5step "$@"
  saved=$(digest "$name")
  for shape in "1 1" "2 2" "3 3" "4 4" "4 2" "2 1"; do
    read -r world expert_ranks <<<"$shape"
    rm -rf other && cp -r "$name" other
    expect 75 ranks "$world" train "$tiny" run.root=. run.name=other run.on_existing=resume \
      parallel.expert_ranks="$expert_ranks" parallel.uneven=true run.stop_after=1step "$@"
    loaded=$(grep -o 'sha256:[0-9a-f]*' other/log/rank-00000.log | tail -n 1)
    [ "$loaded" = "$saved" ] || fail "$name on $world ranks: loaded '$loaded', saved '$saved'"
  done
}

moves four
moves nexus 'model={backbone: vit, patch: 4, width: 16, depth: 2, heads: 2, hidden: 32, nexus:
  {experts: {count: 3}, memory: {count: 2, keys: 8, k: 2}, slots: 2}}'
