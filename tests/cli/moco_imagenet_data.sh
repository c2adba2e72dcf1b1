#!/usr/bin/env bash
# Two steps of Sparse-B's pretraining at 224 pixels, with one block of each kind of its twelve and
# narrow ones, its experts on two ranks, on real photographs: the same from class folders and from
# shards. A photograph that is cut short ends it by name.
source "$(dirname "$0")/common.sh"

mkdir folder shards
for split in train val; do
  cp -r "$IMAGENET_SAMPLE" "folder/$split"
  expect 0 "$program" data pack "folder/$split" --classes --out "shards/$split" --shard-size 4MB
done
classes=$(find folder/train -mindepth 1 -type d | wc -l)

train() { # train SOURCE NAME
  ranks 2 train "$root/configs/moco/sparse_b.yaml" run.root=. "run.name=$2" run.threads=1 \
    parallel.expert_ranks=2 "data.source=$1" \
    "data.classes=$classes" data.image_size=224 train.batch=8 train.group=4 train.duration=2step \
    model.dense_blocks=1 model.sparse_blocks=1 model.width=192 model.sparse.tokens=98 \
    model.sparse.width=96 task.hidden=256 \
    schedule.warmup=0step evaluate.every=never checkpoint.keep_best=0 "${@:3}"
}
expect 0 train image_folder by_files data.path=folder
expect 0 train tar_shards by_shards data.path=shards
[ "$(digest by_files)" = "$(digest by_shards)" ] || fail "shards give other steps"
rm -r by_files by_shards

for photograph in folder/train/*/*; do truncate -s 3000 "$photograph"; done
expect 13 train image_folder cut data.path=folder
grep -q 'folder/train/.*: corrupt JPEG: ' output || fail "$(cat output)"
