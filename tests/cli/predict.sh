#!/usr/bin/env bash
# Predictions of files are those of an evaluation, on any number of ranks; confusions are counted by
# scikit-learn's definitions; what cannot be read or done is told.
source "$(dirname "$0")/common.sh"

# Noisy pictures of four colours, of several sizes: SPLIT/COLOUR/NUMBER.png.
python3 - <<'END'
import os, random, struct, zlib
def write_png(path, width, height, pixel):
    rows = b"".join(b"\0" + bytes(v for _ in range(width) for v in pixel()) for _ in range(height))
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) +
                   chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
colours = {"blue": (60, 60, 160), "green": (60, 160, 60), "red": (160, 60, 60), "violet": (150, 60, 150)}
for split, count in (("train", 30), ("val", 9)):
    for name, colour in colours.items():
        os.makedirs(f"{split}/{name}")
        for i in range(count):
            draw = random.Random(f"{split} {name} {i}")
            tint = [c + draw.randint(-60, 60) for c in colour]
            write_png(f"{split}/{name}/{i}.png", 16 + i % 3 * 8, 16 + i % 2 * 10,
                      lambda: [max(0, min(255, int(draw.gauss(c, 40)))) for c in tint])
END
cat >recipe.yaml <<'END'
run: {name: run, root: ., threads: 1}
data: {source: image_folder, path: ., classes: 4, image_size: 16, valid: {crop: {name: center, resize: 16}}}
model:
  backbone: vit
  patch: 4
  width: 16
  depth: 2
  heads: 2
  hidden: 16
  moe: {router: {name: expert_choice, k: 1}, experts: {count: 3, hidden: 16}}
task: {name: classify}
optimizer: {name: adamw, lr: 3e-3}
train: {duration: 12step, batch: 16, group: 4, precision: float64}
END
cat >check.py <<'END'
import json
def near(a, b):
    """Equal, numbers but for rounding."""
    if isinstance(a, dict):
        assert list(a) == list(b), (a, b)
        a, b = list(a.values()), list(b.values())
    if isinstance(a, list):
        assert len(a) == len(b), (a, b)
        for one, other in zip(a, b):
            near(one, other)
    else:
        assert a == b or isinstance(a, float) and abs(a - b) < 1e-12, (a, b)
def lines(path):
    return [json.loads(line) for line in open(path)]
END
expect 0 "$program" train recipe.yaml

# The lines and counts of an evaluation, and a note, as this router compares the tokens of a group.
for count in 1 2 3; do
  ranks "$count" eval run --json --confusion --predictions "deep/er/$count.jsonl" >"$count.json" \
    2>messages.txt || fail "$(cat messages.txt)"
  grep -q 'note: router expert_choice of blocks.1.moe compares samples' messages.txt ||
    fail "no note: $(cat messages.txt)"
done
python3 - <<'END' || fail "predictions: $(sed -n 1,3p deep/er/1.jsonl) $(cat 1.json)"
import json, os
from check import lines, near
names = ["blue", "green", "red", "violet"]
rows, result = lines("deep/er/1.jsonl"), json.load(open("1.json"))
for count in (2, 3):
    near(rows, lines(f"deep/er/{count}.jsonl"))
    near(result["confusion"], json.load(open(f"{count}.json"))["confusion"])
assert [row["sample"] for row in rows] == list(range(36))
assert os.path.normpath(rows[10]["file"]) == "val/green/1.png", rows[10]
for row in rows:
    assert row["label"] == row["sample"] // 9 and row["label_name"] == names[row["label"]], row
    classes, chance = ([top[key] for top in row["top"]] for key in ("class", "probability"))
    assert sorted(classes) == [0, 1, 2, 3] and [top["name"] for top in row["top"]] == [
        names[c] for c in classes], row
    assert chance == sorted(chance, reverse=True) and abs(sum(chance) - 1) < 1e-12, row
    assert row["probability"] == chance[classes.index(row["label"])], row
# sklearn.metrics: confusion_matrix, recall_score, precision_score, f1_score with zero_division=0.
label, guess = [row["label"] for row in rows], [row["top"][0]["class"] for row in rows]
assert result["top1"] == sum(map(int.__eq__, label, guess)) / 36, result
got = result["confusion"]
matrix = [[list(zip(label, guess)).count((a, b)) for b in range(4)] for a in range(4)]
assert got["matrix"] == matrix, got
pairs = sorted((-matrix[a][b], a, b) for a in range(4) for b in range(4) if a != b and matrix[a][b])
assert pairs, "without mistakes nothing is tested"
assert [(-row["samples"], row["label"], row["predicted"]) for row in got["worst"]] == pairs[:10]
def ratio(a, b):
    return a / b if b else 0.0
for c, row in enumerate(got["classes"]):
    hits = sum(l == g == c for l, g in zip(label, guess))
    recall, precision = ratio(hits, label.count(c)), ratio(hits, guess.count(c))
    near(row, {"class": c, "class_name": names[c], "samples": label.count(c), "recall": recall,
               "precision": precision, "f1": ratio(2 * precision * recall, precision + recall)})
wrong = [row for row in rows if row["top"][0]["class"] != row["label"]]
wrong.sort(key=lambda row: -row["top"][0]["probability"])
near(got["mistakes"], [
    {key: row[key] for key in ("sample", "file", "label", "label_name")} |
    {"predicted": row["top"][0]["class"], "predicted_name": row["top"][0]["name"],
     "probability": row["top"][0]["probability"]} for row in wrong[:10]])
END
expect 0 "$program" eval run --confusion
for part in 'Most confident mistakes' 'val/.*\.png' '^ *label *blue *gree *red *viol' '^ *3 violet ' 'precision' \
  'predicted class (columns)'; do
  grep -q "$part" output || fail "no $part: $(cat output)"
done
expect 0 "$program" report run
for part in 'Confusions of classes' 'Most frequent confusions' 'val/' 'alt="[^"]*val/[^"]*" src="data:image/png' ' taken for '; do
  grep -q "$part" run/report.html || fail "the report has no $part"
done

# Files, folders and standard input give the rows of the evaluation, alone and together.
expect 0 "$program" predict run val/red/3.png --top-k 2
grep -q '^val/red/3.png  1\. [a-z]* [0-9.]*%  2\. [a-z]* [0-9.]*%$' output || fail "$(cat output)"
"$program" predict run val --json >folder.jsonl || fail "predict of a folder"
"$program" predict run val/violet/8.png --json >alone.jsonl || fail "predict of a file"
printf 'val/green/2.png\nval/red\n\n' | "$program" predict run - --json >stdin.jsonl || fail "predict -"
ranks 3 predict run val train.batch=8 --json >ranks.jsonl 2>messages.txt || fail "$(cat messages.txt)"
python3 - <<'END' || fail "other predictions"
import os
from check import lines, near
wanted = {os.path.normpath(row["file"]): row["top"] for row in lines("deep/er/1.jsonl")}
def compare(path, files):
    near(lines(path), [{"file": file, "top": wanted[file]} for file in files])
compare("folder.jsonl", list(wanted))
compare("ranks.jsonl", list(wanted))
compare("alone.jsonl", ["val/violet/8.png"])
compare("stdin.jsonl", ["val/green/2.png"] + [f"val/red/{i}.png" for i in range(9)])
END

# What cannot be read is told and left out; the rest is predicted.
printf 'no picture' >bad.png
head -c 60 val/red/0.png >cut.png
for count in 1 2; do
  code=0
  ranks "$count" predict run val/red/1.png bad.png missing.png val/red/2.png cut.png >good.txt \
    2>messages.txt || code=$?
  [ "$code" = 13 ] || fail "unreadable files end with $code: $(cat messages.txt)"
  [ "$(cut -d' ' -f1 good.txt | tr '\n' ' ')" = 'val/red/1.png val/red/2.png ' ] ||
    fail "$(cat good.txt messages.txt)"
  for name in bad missing cut; do
    grep -q "^left out: $name.png: " messages.txt || fail "$name.png is not told: $(cat messages.txt)"
  done
  grep -q 'error\[E13\] 3 of 5 inputs could not be read' messages.txt || fail "$(cat messages.txt)"
done
mkdir empty
printf 'empty\nval/red/2.png\n' >paths.txt
for count in 1 2; do
  code=0
  ranks "$count" predict run val/red/1.png empty - <paths.txt >good.txt 2>messages.txt || code=$?
  [ "$code" = 13 ] || fail "a folder without images ends with $code: $(cat messages.txt)"
  [ "$(cut -d' ' -f1 good.txt | tr '\n' ' ')" = 'val/red/1.png val/red/2.png ' ] ||
    fail "$(cat good.txt messages.txt)"
  grep -q '^left out: empty: no image' messages.txt || fail "$(cat messages.txt)"
  grep -q 'error\[E13\] 2 of 4 inputs could not be read' messages.txt || fail "$(cat messages.txt)"
done
expect 13 "$program" predict run empty
grep -q '1 of 1 input could not be read' output || fail "$(cat output)"
python3 "$here/socket_input.py" paths.txt "$program" predict run - >good.txt 2>messages.txt || true
grep -q '^val/red/2.png ' good.txt || fail "no paths from a socket: $(cat messages.txt)"
expect 2 "$program" predict run
grep -q 'name image files, folders of them' output || fail "$(cat output)"
expect 2 "$program" predict run - </dev/null
expect 13 "$program" predict run - <.
grep -q '^left out: -: cannot be read' output || fail "$(cat output)"
expect 2 "$program" predict run val/red/1.png --top-k 0
expect 2 answered predict run val/red/1.png --topk 2
grep -q "; did you mean '--top-k'?" output || fail "$(cat output)"
expect 10 "$program" predict run val/red/1.png data.imagesize=4
expect 10 "$program" predict run val/red/1.png --save-images restored
grep -q 'a task that restores images, and classify does not' output || fail "$(cat output)"
expect 2 "$program" eval run --predictions /dev/null
expect 0 "$program" predict run val/red/1.png 'task={name: classify}'
printf 'no picture' >'a=b.png'
expect 13 "$program" predict run 'a=b.png'
grep -q 'left out: a=b.png: neither a JPEG nor a PNG' output || fail "$(cat output)"

# Those of other samples are not the run's.
cp run/confusion.json before.json
expect 0 "$program" eval run --confusion evaluate.samples=3
cmp before.json run/confusion.json || fail "an evaluation of other samples changed the run's confusions"
# A run with confusions can be begun anew.
expect 0 "$program" train recipe.yaml run.on_existing=overwrite train.duration=1step
[ ! -e run/confusion.json ] || fail "confusions of weights that are gone"

# A model of images of one size takes images of any size.
expect 0 "$program" train "$tiny" run.root=. run.name=shapes train.duration=1step \
  parallel.expert_ranks=1
ranks 2 predict shapes val/red --json >shapes.jsonl 2>messages.txt || fail "$(cat messages.txt)"
[ "$(grep -c 'note: images that are not 16 x 16 are resized' messages.txt)" = 1 ] || fail "$(cat messages.txt)"
[ "$(wc -l <shapes.jsonl)" = 9 ] || fail "$(cat shapes.jsonl)"

# A denoiser restores images.
expect 0 "$program" train recipe.yaml run.name=denoise 'task={name: denoise}' model.pool=mean \
  '~model.moe' 'data.normalise={mean: [0, 0, 0], std: [1, 1, 1]}' train.duration=1step
for count in 1 2; do
  code=0
  ranks "$count" predict denoise val/red bad.png --save-images "restored$count" --json \
    >images.jsonl 2>messages.txt || code=$?
  [ "$code" = 13 ] || fail "ended with $code: $(cat messages.txt)"
  [ "$(ls "restored$count" | wc -l)" = 9 ] || fail "$(ls "restored$count")"
  cmp restored1/000004-4.png "restored$count/000004-4.png" || fail "other images"
done
grep -q '{"file":"val/red/4.png","image":"restored2/000004-4.png"}' images.jsonl ||
  fail "$(cat images.jsonl)"
expect 2 "$program" predict denoise val/red --save-images restored1
for what in 'predict denoise val/red' 'eval denoise --confusion' \
  'eval denoise --predictions x.jsonl'; do
  expect 10 "$program" $what
  grep -q 'needs a task that predicts classes, and denoise does not' output || fail "$(cat output)"
done

# Lines of text.
for i in $(seq 40); do
  printf '0\tgood %s fine\n1\tbad %s awful\n' "$i" "$i"
done >reviews.tsv
sed -n 1,20p reviews.tsv >valid.tsv
cat >text.yaml <<'END'
run: {name: text, root: ., threads: 1}
data: {source: lra_text, max_length: 32, train: {files: [reviews.tsv]}, valid: {files: [valid.tsv]}}
model: {backbone: gpt2, width: 16, depth: 1, heads: 2, context: 32}
task: {name: classify}
optimizer: {name: adamw, lr: 1e-3}
train: {duration: 3step, batch: 16, precision: float64}
END
expect 0 "$program" train text.yaml
expect 0 "$program" eval text --predictions text.jsonl
cut -f2 valid.tsv >lines.txt
ranks 2 predict text lines.txt --json >predicted.jsonl 2>messages.txt || fail "$(cat messages.txt)"
python3 - <<'END' || fail "$(cat predicted.jsonl)"
from check import lines, near
near(lines("predicted.jsonl"), [{"file": "lines.txt", "line": i + 1, "top": row["top"]}
                                for i, row in enumerate(lines("text.jsonl"))])
END
printf 'good\r\n\nbad' >some.txt
expect 0 "$program" predict text - <some.txt
grep -q '^-:3  1\. class [01] ' output || fail "$(cat output)"
expect 13 "$program" predict text missing.txt lines.txt
grep -q '^left out: missing.txt: cannot be read' output || fail "$(cat output)"
expect 0 "$program" train text.yaml run.name=pixels model.context=64 train.duration=1step \
  'data={source: pixels, images: {source: shapes, image_size: 8}}'
expect 10 "$program" predict pixels lines.txt
grep -q 'reads images or lines of text, and pixels makes no samples of either' output ||
  fail "$(cat output)"
"$program" new --data pathfinder --backbone vit >gray.yaml
expect 0 "$program" train gray.yaml run.root=. run.name=gray model.{width,hidden}=16 model.depth=1 \
  model.heads=2 train.duration=1step train.batch=8 data.{train,valid}.samples=8
expect 2 "$program" predict gray photograph.png
grep -q 'predict reads images with 3 channels' output || fail "$(cat output)"
