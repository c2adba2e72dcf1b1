#!/usr/bin/env bash
# CIFAR files: judging by training data is refused in training and allowed in evaluation; a corrupt
# record fails, or is replaced and counted.
source "$(dirname "$0")/common.sh"

record_bytes=3073
make_file() { head -c "$(($2 * record_bytes))" /dev/zero >"$1"; }
make_file train.bin 64
make_file valid.bin 32
cifar="data={source: cifar, path: ., train: {files: [train.bin]}, valid: {files: [valid.bin]}}"
small=(train "$tiny" "$cifar" run.root=. parallel.expert_ranks=1 train.duration=1step
  evaluate.every=never checkpoint.every=never model.patch=16)

expect 10 "$program" "${small[@]}" 'data.valid.files=[train.bin]'
grep -q 'data.valid.files=.train.bin.: train.bin is trained on as well' output || fail "$(cat output)"
[ ! -e run ] || fail "a refused recipe left a folder"
expect 10 "$program" check "$tiny" "$cifar" 'data.valid.files=[train.bin]'

expect 0 "$program" "${small[@]}"
grep -q 'device cpu: run.device is auto' output || fail "the device is not told: $(cat output)"
expect 0 "$program" eval run 'data.valid.files=[train.bin]' --json
grep -q '"samples":64' output || fail "not evaluated on the training file: $(cat output)"

# Relative paths of a checkpoint are also looked for where its training was started.
mkdir away set other
cp ./*.bin set
cp ./*.bin other
expect 0 "$program" "${small[@]}" run.name=started data.path=set \
  'evaluate.sets={train: {path: other}}'
grep -q "\"folder\": \"$PWD\"" started/env.json || fail "$(cat started/env.json)"
away() { (cd away && "$program" "$@"); }
told="note: data.path: 'set' is not in the working directory $PWD/away,"
expect 0 away eval ../started
grep -qF "$told but in $PWD, where the run was started" output || fail "$(cat output)"
grep -qF "note: evaluate.sets.train.path: 'other' is not in the working directory $PWD/away, but in" \
  output || fail "the path of a set is not looked for: $(cat output)"
expect 0 away eval ../started evaluate.sets.few.valid.samples=9
expect 13 away eval ../started evaluate.sets.train.path=other2
expect 13 away eval ../started data.path=set
! grep -qF "$told" output || fail "a path of the command line is looked for: $(cat output)"
mv set moved
expect 13 away eval ../started
grep -qF "$told nor in $PWD, where the run was started" output || fail "$(cat output)"

# Each machine may keep its own copy of the data.
mkdir disk_a disk_b
cp ./*.bin disk_a && cp ./*.bin disk_b
local_data=("$program" "${small[@]}" run.name=local 'data.path=${env:DISK}')
expect 0 mpirun --allow-run-as-root --oversubscribe -np 1 env DISK=disk_a "${local_data[@]}" : \
  -np 1 env DISK=disk_b "${local_data[@]}"

truncate -s -1 valid.bin
expect 13 "$program" "${small[@]}" run.name=cut
grep -q 'valid.bin.*3073' output || fail "a file that was cut is not named: $(cat output)"
[ ! -e cut ] || fail "bad data left a folder"
make_file valid.bin 32

# One record of ten thousand may be corrupt.
make_file train.bin 10000
printf '\x0b' | dd of=train.bin bs=1 seek=$((7 * record_bytes)) conv=notrunc status=none
expect 13 "$program" "${small[@]}" run.name=strict
grep -q 'train.bin.*record 7' output || fail "the record is not named: $(cat output)"
expect 0 "$program" "${small[@]}" run.name=lenient data.on_corrupt=skip
grep -q 'warning: data.train: 1 of 10000 samples are corrupt' output || fail "$(cat output)"
grep -q '"train": 1' lenient/summary.json || fail "summary.json does not count the record"

# Neighbours of images that are looked for among these images: an image is no neighbour of its own.
python3 -c '
import random
random.seed(1)
for name in ("train", "valid"):
  open(name + ".bin", "wb").write(b"".join(bytes([random.randrange(10)]) + random.randbytes(3072) for _ in range(64)))'
expect 0 "$program" "${small[@]}" run.name=views train.accumulate=1 \
  'task={name: moco_v3, hidden: 8, out: 4, temperature: 0.2, momentum: 0.9, neighbours: 1}'
expect 0 "$program" eval views 'data.valid.files=[train.bin]' --json
python3 -c '
import json
share = json.load(open("output"))["knn_top1"]
assert share < 0.5, share' || fail "an image found itself: $(cat output)"
