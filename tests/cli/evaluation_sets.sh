#!/usr/bin/env bash
# Several validation sets, some of their samples and the score among them; other data than a model's
# own are prepared as in its training.
source "$(dirname "$0")/common.sh"

# value KEY...: the number below these keys of the JSON object on standard input.
value() { python3 -c 'import functools, json, sys
print(functools.reduce(lambda a, k: a[k], sys.argv[1:], json.load(sys.stdin)))' "$@"; }

sets='evaluate.sets={noisy: {noise: 0.4}, more: {seed: 5, valid: {samples: 90}}}'
train=(train "$tiny" run.root=. train.duration=20step "$sets" evaluate.samples=50
  evaluate.score=noisy.loss)
expect 0 ranks 2 "${train[@]}"
grep -q 'data.valid: 50 of 60 samples, drawn by run.seed' output || fail "the draw is not told: $(cat output)"
grep -q 'noisy top-1' output || fail "the console leaves out the set: $(cat output)"
grep -q '^step,.*,noisy.loss,noisy.top1,noisy.top5,noisy.samples,more.loss' run/metrics.csv ||
  fail "columns: $(sed -n 1p run/metrics.csv)"
value evaluation more.samples <run/summary.json | grep -x 50 >/dev/null || fail "$(cat run/summary.json)"
grep -q 'top-1, noisy' run/report.html || fail "the report has no curve of the set"

# The best checkpoint is the one with the lowest loss on the set.
"$program" ckpt ls run --json >checkpoints.json
python3 - <<'PY'
import json
losses = {}
for line in open("run/metrics.jsonl"):
    record = json.loads(line)
    if record.get("event") == "eval":
        losses[record["step"]] = record["noisy.loss"]
scores = {c["step"]: c["score"] for c in json.load(open("checkpoints.json"))["checkpoints"]}
assert scores and all(abs(score + losses[step]) < 1e-9 for step, score in scores.items()), (scores, losses)
PY

# `eval` gives the same numbers on any number of ranks.
for count in 1 2 3; do
  ranks "$count" eval run --json >evaluation.json 2>messages.txt || fail "$(cat messages.txt)"
  for key in 'samples' 'sets noisy samples' 'sets more samples'; do
    [ "$(value $key <evaluation.json)" = 50 ] || fail "$key: $(cat evaluation.json)"
  done
  python3 - <<'PY' || fail "$count ranks: other losses than in training"
import json
lines = [json.loads(line) for line in open("run/metrics.jsonl")]
logged = [line for line in lines if line.get("event") == "eval"][-1]
got = json.load(open("evaluation.json"))
assert abs(got["loss"] - logged["loss"]) < 1e-5
assert abs(got["sets"]["noisy"]["loss"] - logged["noisy.loss"]) < 1e-5
PY
done
expect 0 "$program" eval run evaluate.samples=1000
grep -q '60 of 60 samples; evaluate.samples asks for no fewer' output || fail "$(cat output)"
grep -q 'noisy top-1' output || fail "$(cat output)"

# A resume goes on with sets and score; another score is told.
expect 0 ranks 2 "${train[@]}" train.duration=30step run.on_existing=resume
grep -q 'the recipe has changed' output && fail "nothing changed: $(cat output)"
expect 0 ranks 2 "${train[@]}" train.duration=40step run.on_existing=resume evaluate.score=top5
grep -q 'evaluate.score *checkpoint: noisy.loss *recipe: top5' output || fail "$(cat output)"
grep -q 'do not compare' output || fail "$(cat output)"
expect 0 ranks 2 "${train[@]}" train.duration=50step run.on_existing=resume evaluate.score=top5 \
  evaluate.sets.noisy.noise=0.3
grep -q 'evaluate.sets.noisy.noise *checkpoint: 0.4 *recipe: 0.3' output || fail "$(cat output)"
grep -q 'do not compare' output || fail "$(cat output)"

# Mistakes have a place.
expect 10 "$program" check "$tiny" "$sets" evaluate.score=noisy.tpo1
grep -q "evaluate.score=noisy.tpo1: no metric is called" output || fail "$(cat output)"
expect 0 "$program" check "$tiny" 'evaluate.sets={lost: {source: cifar, path: nowhere}}' data.source=cifar \
  data.path=. data.classes=10
grep -q 'evaluate.sets.lost: nowhere: no such folder' output || fail "$(cat output)"

# A variable that is not set stays a variable in the sets that inherit it.
env -u ABSENT "$program" show "$tiny" 'data={source: cifar, path: "${env:ABSENT}", classes: 10}' \
  'evaluate.sets={few: {valid: {samples: 9}}}' >shown.yaml
[ "$(grep -c 'path: "${env:ABSENT}"' shown.yaml)" = 2 ] || fail "$(cat shown.yaml)"

printf 'include: %s\nevaluate:\n  sets:\n    a: {niose: 1}\n' "$tiny" >wrong.yaml
expect 10 "$program" check wrong.yaml
grep -q "wrong.yaml:4:9: evaluate.sets.a.niose: unknown key; did you mean 'noise'?" output ||
  fail "$(cat output)"

# The same images as CIFAR's records and as PNG files: as many right, the same loss.
python3 - <<'PY'
import os, random, struct, zlib
random.seed(1)
def png(path, image):  # image: 3072 bytes, channel by channel
    rows = b"".join(b"\0" + bytes(image[c * 1024 + y * 32 + x] for x in range(32) for c in range(3))
                    for y in range(32))
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)) +
                  chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
records = {"train.bin": [], "valid.bin": []}
for name, each in (("train.bin", 8), ("valid.bin", 4)):
    for label in range(10):
        for i in range(each):
            image = bytes((random.randrange(256) * (1 + label) // 10 + 9 * label) % 256 for _ in range(3072))
            records[name].append(bytes([label]) + image)
            if name == "valid.bin":
                os.makedirs(f"photos/val/{label}", exist_ok=True)
                png(f"photos/val/{label}/{i}.png", image)
for name, all in records.items():
    open(name, "wb").write(b"".join(all))
PY
cifar="data={source: cifar, path: ., train: {files: [train.bin]}, valid: {files: [valid.bin]}}"
expect 0 "$program" train "$tiny" "$cifar" run.root=. run.name=cifar parallel.expert_ranks=1 \
  train.duration=6step model.patch=16 evaluate.every=never
grep -A2 'normalise' cifar/resolved.yaml | grep '0.4914, 0.4822, 0.4465' >/dev/null ||
  fail "the normalisation is not resolved: $(grep -A2 normalise cifar/resolved.yaml)"
expect 0 "$program" eval cifar --json
cp output records.json
"$program" eval cifar --json data.source=image_folder data.path=photos >photos.json 2>messages.txt ||
  fail "$(cat messages.txt)"
grep -q 'note: data.source=image_folder keeps of the checkpoint.s data: classes, .*image_size, normalise' \
  messages.txt || fail "what is kept is not told: $(cat messages.txt)"
for key in loss top1 samples; do
  [ "$(value $key <photos.json)" = "$(value $key <records.json)" ] ||
    fail "$key is $(value $key <photos.json) of files, $(value $key <records.json) of records"
done
expect 0 "$program" eval cifar --json 'evaluate.sets.photos={source: image_folder, path: photos}'
[ "$(value sets photos loss <output)" = "$(value loss <records.json)" ] || fail "$(cat output)"
expect 13 "$program" eval cifar 'evaluate.sets.lost={source: image_folder, path: nowhere}'
grep -q 'evaluate.sets.lost: .*nowhere' output || fail "$(cat output)"
