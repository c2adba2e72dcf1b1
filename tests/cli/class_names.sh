#!/usr/bin/env bash
# Classes keep their names from a folder to shards, a training, its resume, an export and an import:
# labels follow the names in data of another order, and a class with another name is refused.
source "$(dirname "$0")/common.sh"
shows() { grep -qF -- "$1" output || fail "no '$1' in: $(cat output)"; }

# Images of 16 x 16 in four colours, a little noisy.
python3 - <<'PYTHON'
import os, random, struct, zlib
def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
draw = random.Random(3)
colours = {"blue": (30, 30, 220), "green": (30, 220, 30), "red": (220, 30, 30), "yellow": (220, 220, 30)}
for split, count in (("train", 16), ("val", 8)):
    for name, colour in colours.items():
        os.makedirs(f"folder/{split}/{name}")
        for i in range(count):
            rows = b"".join(b"\0" + bytes(c + draw.randrange(-25, 26) for _ in range(16) for c in colour)
                            for _ in range(16))
            with open(f"folder/{split}/{name}/{i}.png", "wb") as file:
                file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)) +
                           chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
PYTHON
mkdir shards
expect 0 answered data pack folder/train --classes --out shards/train
expect 0 answered data pack folder/val --classes-of shards/train --out shards/val
expect 0 answered data verify shards/train shards/val
cp -r folder renamed && mv renamed/val/red renamed/val/crimson
expect 13 answered data pack renamed/val --classes-of shards/train --out shards/none
shows "renamed/val: its class 'crimson' is not in data.class_names"
[ ! -e shards/none ] || fail 'shards of other classes were written'

# A recipe finds number and names; without the data the head is not counted.
data() { echo "data={source: $1, path: $2, image_size: 16, train: {crop: {name: random}}, valid: {crop: {name: center}}}"; }
expect 0 answered show "$tiny" "$(data tar_shards shards)"
grep -q 'classes: 4 .*# found in the data' output || fail "$(cat output)"
grep -q 'class_names: \[blue, green, red, yellow\] .*# found in the data' output || fail "$(cat output)"
expect 0 answered check "$tiny" "$(data image_folder folder)" --json
cp output with_head
expect 0 answered check "$tiny" "$(data image_folder nowhere)" --json
python3 - <<'PYTHON' || fail 'the head is counted without data'
import json
known, unknown = (json.loads(open(name).read().splitlines()[-1]) for name in ("with_head", "output"))
assert unknown["parameters"] == unknown["parameters_headless"] == known["parameters_headless"] < known["parameters"]
PYTHON
expect 0 answered check "$tiny" "$(data image_folder nowhere)"
shows 'the head is not counted'
expect 10 answered check "$tiny" "$(data image_folder folder)" data.classes=5
shows 'data.classes=5: folder/train: 4 class names, and data.classes is 5'
expect 0 answered new --backbone mixer --path folder
shows 'source: image_folder'
shows 'classes: auto   # 4 found: blue to yellow'
shows 'image_size: 16   # shorter side of the images: 16 pixels'
shows 'patch: 4 '
expect 0 answered new --backbone mixer --path shards
shows 'source: tar_shards'
shows 'image_size: 16   # shorter side of the images: 16 pixels'
cp -r folder 'my: photos # 3'
expect 0 answered new --backbone mixer --path 'my: photos # 3'
shows 'source: image_folder'
cp output spaced.yaml
expect 0 answered check spaced.yaml
[ "$(tail -n 1 output)" = good ] || fail "$(cat output)"
expect 10 answered check "$tiny" "$(data tar_shards shards)" data.classes=5
shows 'shard-000000.tar: 4 class names, and data.classes is 5'
expect 10 answered check "$tiny" "$(data image_folder folder)" 'data.class_names=[blue, green, red]'
shows "folder/train: its class 'yellow' is not in data.class_names"
expect 2 answered new --backbone mixer --path renamed/val
shows "no data source knows the files in 'renamed/val'"
shows 'by shoal data split renamed/val --valid 10%'

# The recipe's order is not that of the data; a resume without it keeps it.
order='[yellow, red, green, blue]'
train() { # train SOURCE FOLDER KEY=VALUE…
  ranks 2 train "$tiny" "$(data "$1" "$2")" run.root=. run.name=run checkpoint.every=10step \
    evaluate.every=10step "${@:3}"
}
expect 75 train tar_shards shards "data.class_names=$order" run.stop_after=10step train.duration=30step
shows 'in another order than data.class_names'
grep -qF "class_names: $order" run/resolved.yaml || fail "$(cat run/resolved.yaml)"
mv shards/train apart
expect 0 answered data pack renamed/val --classes --out shards/train
expect 13 train tar_shards shards run.on_existing=resume train.duration=30step
shows "shards/train/shard-000000.tar: its class 'crimson' is not in data.class_names"
rm -r shards/train && mv apart shards/train
expect 0 train tar_shards shards run.on_existing=resume train.duration=30step
shows 'in another order than data.class_names'
grep -qF "class_names: $order" run/resolved.yaml || fail "$(cat run/resolved.yaml)"

expect 10 answered eval run 'data.class_names=[blue, green, red, yellow]'
shows 'data.class_names: the model was trained with these classes in another order; leave data.class_names out'
expect 10 answered predict run folder/val/red 'data.class_names=[blue, green, red, yellow]'

# A set is evaluated only, so that it needs no training images.
mkdir only && cp -r folder/val only/val
with_set() { answered check "$tiny" "$(data image_folder folder)" "evaluate.sets={only: {path: $1}}"; }
expect 0 with_set only
[ "$(tail -n 1 output)" = good ] || fail "$(cat output)"
expect 0 with_set none
shows 'evaluate.sets.only: none: no such folder'
rm -r only

# A run that starts from its head labels by its order, or is told that the classes are others.
start() { # start NAME KEY=VALUE…
  train image_folder folder model.init_from=run train.duration=1step run.name="$@"
}
expect 0 start ordered
shows 'in another order than data.class_names'
grep -qF "class_names: $order" ordered/resolved.yaml || fail "$(cat ordered/resolved.yaml)"
expect 0 start by_recipe 'data.class_names=[blue, green, red, yellow]'
shows 'in another order than data.class_names; leave data.class_names out'
other='warning: model.init_from takes a head that was trained for other classes'
mv folder/train/red folder/train/crimson && mv folder/val/red folder/val/crimson
expect 0 start renamed_one
shows "$other than data.class_names, without 'crimson'"
expect 0 start without_head 'model.init_from={from: run, take: [backbone.*]}'
grep -qF "$other" output && fail "warned of a head that is not taken: $(cat output)"
mv folder/train/crimson folder/train/red && mv folder/val/crimson folder/val/red
cp -r folder three && rm -r three/*/red
three() { train image_folder three train.duration=1step run.name=of_three "model.init_from=$1"; }
expect 12 three run
shows "$other than data.class_names; model.init_from.take"
[ ! -e of_three ] || fail 'a refusal left a run'
expect 0 three '{from: run, take: [backbone.*]}'

# A run that began without names, as those of older versions, goes on with the same labels.
cp -r shards nameless && rm nameless/*/*.index
expect 75 train tar_shards nameless data.classes=4 run.name=older run.stop_after=10step \
  train.duration=20step
expect 0 train tar_shards shards data.classes=4 run.name=older run.on_existing=resume \
  train.duration=20step
expect 0 train tar_shards shards data.classes=4 run.name=newer train.duration=20step
[ "$(digest older)" = "$(digest newer)" ] || fail 'labels changed with the names'
expect 0 train tar_shards nameless data.classes=4 run.name=given model.init_from=run \
  train.duration=1step
grep -qF "class_names: $order" given/resolved.yaml || fail "$(cat given/resolved.yaml)"

# Exported and imported, its names are those of the checkpoint, whatever the data's order is.
expect 0 answered export run --to safetensors exported
expect 0 answered import exported --as safetensors imported
top1() { # top1 LOW HIGH: accuracy in stdout
  python3 -c "
import json, sys
found = json.loads(open('stdout').read())['top1']
sys.exit(0 if $1 <= found <= $2 else f'top1 is {found}, not from $1 to $2')" || fail "$(cat stderr)"
}
evaluate() { answer eval imported --json "$@"; }
expect 0 evaluate
top1 0.9 1
as_folder=('~data.train.shards' '~data.valid.shards' data.source=image_folder)
expect 0 evaluate "${as_folder[@]}" data.path=folder
top1 0.9 1
cp -r folder fewer && rm -r fewer/*/blue fewer/*/red
expect 0 evaluate "${as_folder[@]}" data.path=fewer
top1 0.9 1
grep -qF 'fewer/val: has 2 of the 4 classes' stderr || fail "$(cat stderr)"
expect 0 evaluate --predictions predictions.jsonl \
  'evaluate.sets.few={source: image_folder, path: fewer}'
grep -qF 'note: evaluate.sets.few: fewer/val: has 2 of the 4 classes' stderr || fail "$(cat stderr)"
grep -qF '"file":"green/3.png"' predictions.jsonl || fail "$(head -3 predictions.jsonl)"
expect 13 evaluate "${as_folder[@]}" data.path=renamed
grep -qF "renamed/val: its class 'crimson' is not in data.class_names" stderr || fail "$(cat stderr)"
expect 0 ranks 2 eval imported --json
tail -n 1 output >stdout
top1 0.9 1

# Without names the labels are numbers, here of another order: told, and wrong.
expect 0 evaluate data.path=nameless
grep -qF 'names no classes; its labels are taken for places in data.class_names' stderr ||
  fail "$(cat stderr)"
top1 0 0.3
