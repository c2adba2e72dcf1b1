#!/usr/bin/env bash
# What a change that moves no result must leave equal: losses in hex, evaluations and digests of
# trainings of every kind, for a comparison of two checkouts that are built.
#
# Usage: tests/results.sh CHECKOUT OUT      trains and writes OUT/NAME.txt; what is there already stays
#        tests/results.sh --compare A B     names the trainings of two such folders that differ
#
# CIFAR10 and WIKITEXT2 name the folders of the data. Two cores take about ten minutes.
set -euo pipefail

if [ "${1:-}" = --compare ]; then
  status=0
  for file in "$2"/*.txt; do
    name=$(basename "$file" .txt)
    cmp -s "$file" "$3/$name.txt" || { echo "$name differs"; status=1; }
  done
  [ "$(cd "$2" && ls -- *.txt)" = "$(cd "$3" && ls -- *.txt)" ] || { echo "not the same trainings"; status=1; }
  exit $status
fi

checkout=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
: "${CIFAR10:?}" "${WIKITEXT2:?}"
export OMP_NUM_THREADS=1

# record NAME RANKS STEPS RECIPE [key=value...]
record() {
  local name=$1 ranks=$2 steps=$3 recipe=$checkout/configs/$4
  shift 4
  [ ! -e "$out/$name.txt" ] || return 0
  rm -rf "$out/runs/$name"
  "$checkout/launch/run" -n "$ranks" train "$recipe" run.root="$out/runs" run.name="$name" \
    run.threads=1 train.duration="${steps}step" train.log_every=1step evaluate.every="${steps}step" \
    checkpoint.every="${steps}step" "$@" >"$out/$name.log" 2>&1 ||
    { echo "$name failed: $(tail -n 3 "$out/$name.log")" >&2; exit 1; }
  {
    grep -o '"loss_hex":"[^"]*"' "$out/runs/$name/metrics.jsonl"
    grep '"event":"eval"' "$out/runs/$name/metrics.jsonl" |
      grep -oE '"(loss|top1|top5|perplexity|psnr|knn_top1)":[^,}]*'
    "$checkout/build/release/shoal" ckpt digest "$out/runs/$name"
  } >"$out/$name.part"
  mv "$out/$name.part" "$out/$name.txt"
}

record quickstart 2 384 quickstart.yaml
record mlp_1 1 100 sparse_mlp/tiny_cifar10.yaml parallel.expert_ranks=1 data.valid.samples=512
record mlp_2 2 100 sparse_mlp/tiny_cifar10.yaml data.valid.samples=512
for recipe in "$checkout"/configs/routing/*.yaml; do
  name=$(basename "$recipe" .yaml)
  record "routing_$name" 2 20 "routing/$name.yaml"
done
record gpt2_moe 2 20 gpt2/tiny_wikitext2_bytes_moe.yaml
record hspmn 1 20 hspmn/tiny_mqar.yaml
record padst 1 20 padst/tiny_cifar10_vit_dynadiag.yaml
record moco 2 20 moco/tiny_cifar10_sparse_mlp.yaml
record denoise 1 20 denoise/cifar10_hard.yaml
