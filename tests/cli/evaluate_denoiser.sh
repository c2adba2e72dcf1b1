#!/usr/bin/env bash
# Evaluating a denoiser gives baselines beside its own numbers, equal on any number of ranks, and
# pictures.
source "$(dirname "$0")/common.sh"

# Smooth images in CIFAR's format.
python3 - <<'END'
import math
for name, count, shift in (("train.bin", 60, 0), ("valid.bin", 12, 1000)):
    with open(name, "wb") as file:
        for i in range(shift, shift + count):
            file.write(bytes([i % 10]))
            file.write(bytes(int(127 + 60 * math.sin(i + c + x / 9) + 60 * math.cos(2 * i + y / 7))
                             for c in range(3) for y in range(32) for x in range(32)))
END
cat >recipe.yaml <<'END'
run: {name: run, root: ., device: cpu}
data: {source: cifar, path: ., train: {files: [train.bin]}, valid: {files: [valid.bin]},
       normalise: {mean: [0, 0, 0], std: [1, 1, 1]}}
model: {backbone: vit, patch: 8, width: 16, depth: 1, heads: 2, hidden: 16, pool: mean}
task: {name: denoise}
train: {duration: 2step, batch: 8}
END
expect 0 "$program" train recipe.yaml
for count in 1 2; do
  ranks "$count" eval run --json --images "images$count" --count 9 >"$count.json" 2>messages.txt ||
    fail "$(cat messages.txt)"
  cmp images1/contact_sheet.png "images$count/contact_sheet.png" || fail "other pictures"
done
python3 - <<'END' || fail "baselines: $(cat 1.json 2.json)"
import json
one, two = (json.load(open(f"{count}.json")) for count in (1, 2))
assert one["samples"] == 12 and one["images"]["count"] == 9, one
assert list(one["baselines"]) == ["noisy", "gaussian_blur", "patch_affine", "linear_mmse"]
for name, entry in one["baselines"].items():
    for key, value in entry.items():
        assert abs(value - two["baselines"][name][key]) < 1e-9, (name, key)
assert one["baselines"]["patch_affine"]["training_images"] == 60
assert one["baselines"]["gaussian_blur"]["psnr"] > one["baselines"]["noisy"]["psnr"] + 3
END
[ "$(ls images1 | wc -l)" -eq 10 ] || fail "pictures: $(ls images1)"
expect 2 "$program" eval run --images images1
grep -qF "'images1': is not an empty folder" output || fail "the folder: $(cat output)"

expect 0 "$program" eval run
grep -q 'linear MMSE of whole images, fitted on 60 images' output || fail "$(cat output)"
expect 0 "$program" eval run --no-baselines
! grep -q 'noisy input' output || fail "baselines: $(cat output)"

# What is fitted needs the training images.
rm train.bin
"$program" eval run --json >without.json 2>messages.txt || fail "$(cat messages.txt)"
grep -q 'warning: .*data.train cannot be read: .*train.bin' messages.txt ||
  fail "$(cat messages.txt)"
python3 -c 'import json; assert list(json.load(open("without.json"))["baselines"]) == ["noisy"]' ||
  fail "$(cat without.json)"
expect 2 "$program" eval run --count 3
