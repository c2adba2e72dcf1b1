#!/usr/bin/env bash
# Experts that start as copies of a dense run's MLPs: shapes that do not match are refused by name
# before a run folder is made, and those that do say at the start what the dense run says.
source "$(dirname "$0")/common.sh"

vit='backbone: vit, patch: 4, width: 16, depth: 2, heads: 2, hidden: 32, pool: mean'
short=(train "$tiny" run.root=. parallel.expert_ranks=1 train.duration=4step)
expect 0 "$program" "${short[@]}" run.name=dense "model={$vit}"

# upcycled HIDDEN: the model with experts of this hidden width in the last block.
upcycled() {
  echo "model={$vit, moe: {router: {name: top_k, k: 2, weights: {normalise: topk_softmax}}," \
    "experts: {count: 4, hidden: $1}}, upcycle: true, init_from: dense}"
}
expect 12 "$program" "${short[@]}" run.name=never "$(upcycled 24)"
for words in "experts 'backbone.blocks.1.moe.experts.*.fc1.weight' are [16, 24] each" \
  "'backbone.blocks.1.mlp.fc1.weight' of checkpoint" 'set model.moe.experts.hidden=32'; do
  grep -qF "$words" output || fail "the refusal lacks '$words': $(cat output)"
done
[ ! -e never ] || fail 'a refusal left a run folder'

# The rate is too small for one step to change a float32.
expect 0 "$program" "${short[@]}" run.name=experts train.duration=1step optimizer.lr=1e-30 \
  "$(upcycled 32)"
"$program" eval dense --json >dense.json
"$program" eval experts --json >experts.json
python3 - <<'END' || fail "evaluations differ: $(cat dense.json experts.json)"
import json
dense, experts = (json.load(open(name)) for name in ("dense.json", "experts.json"))
assert abs(dense["loss"] - experts["loss"]) < 1e-5 * dense["loss"]
assert all(dense[key] == experts[key] for key in ("top1", "top5", "samples"))
END
