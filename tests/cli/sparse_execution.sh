#!/usr/bin/env bash
# sparsity.execution: auto takes what was measured, and a resume, and eval, what its run began with.
# $1 is the program, the working directory an empty scratch.
source "$(dirname "$0")/common.sh"

export XDG_CACHE_HOME=$PWD/cache
# measured DENSITY: kernels are faster below it, whatever the layer and the tokens
measured() {
  mkdir -p cache/shoal
  python3 - "$1" >cache/shoal/sparse_break_even.json <<'PYTHON'
import json, sys
models = [line.split(": ", 1)[1] for line in open("/proc/cpuinfo") if line.startswith("model name")]
even = dict.fromkeys(["one", "few", "many"], float(sys.argv[1]))
print(json.dumps({"processor": models[0].rstrip("\n") if models else "unknown",
                  "break_even": dict.fromkeys(["rows", "diagonals", "blocks"], even)}))
PYTHON
}
cat >recipe.yaml <<'YAML'
run: {seed: 1, threads: 1}
data: {source: shapes, image_size: 16, classes: 4, train: {samples: 64}, valid: {samples: 16}}
model: {backbone: vit, patch: 8, width: 64, depth: 1, heads: 2, hidden: 128, pool: mean}
task: {name: classify}
sparsity: {density: 0.2, layers: [mlp], rule: {name: set, every: 2step}}
optimizer: {name: adamw, lr: 1e-3}
train: {duration: 6step, batch: 8, log_every: 1step}
YAML
train() { expect 0 "$program" train recipe.yaml "$@"; }
digest() { "$program" ckpt digest "runs/$1"; }

measured 0.9
train run.name=whole
grep -q "2 of 2 sparse layers run by sparse kernels; break-even densities: $PWD/cache" output ||
  fail "auto takes what was measured"

expect 75 "$program" train recipe.yaml run.name=parts run.stop_after=3step
grep -q 'stopped (exit code 75); .* goes on from it with run.name=parts run.on_existing=resume' output || fail "$(cat output)"
measured 0.0
train run.name=none
grep -q "0 of 2 sparse layers run by sparse kernels" output || fail "no kernel is fast enough"
train run.name=parts run.on_existing=resume
grep -q "2 of 2 sparse layers run by sparse kernels; break-even densities: the checkpoint" output ||
  fail "a resume takes other kernels than its run"
[ "$(digest parts)" = "$(digest whole)" ] || fail "resumed differs from uninterrupted"

kernels() { "$program" eval "runs/$1" --json 2>/dev/null |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["num_sparse_kernel_layers"])'; }
[ "$(kernels parts)" = 2 ] || fail "eval takes the kernels of the training"
[ "$(kernels none)" = 0 ] || fail "eval takes dense products as the training did"
