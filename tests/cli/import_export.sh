#!/usr/bin/env bash
# Weights of other programs become checkpoints that every command takes, and go back bit for bit.
# $1 is the program, the working directory an empty scratch.
source "$(dirname "$0")/common.sh"

# A tiny Mixer as timm saves it, made without torch.
mkdir theirs
python3 - <<'END'
import json, struct
shapes = {"stem.proj.weight": [6, 3, 8, 8], "stem.proj.bias": [6], "norm.weight": [6],
          "norm.bias": [6], "head.weight": [5, 6], "head.bias": [5]}
for norm in ("norm1", "norm2"):
    shapes[f"blocks.0.{norm}.weight"] = shapes[f"blocks.0.{norm}.bias"] = [6]
for mlp, width, hidden in (("mlp_tokens", 4, 3), ("mlp_channels", 6, 10)):
    shapes |= {f"blocks.0.{mlp}.fc1.weight": [hidden, width], f"blocks.0.{mlp}.fc1.bias": [hidden],
               f"blocks.0.{mlp}.fc2.weight": [width, hidden], f"blocks.0.{mlp}.fc2.bias": [width]}
header, data = {}, b""
for name in sorted(shapes):
    count = 1
    for size in shapes[name]:
        count *= size
    begin = len(data)
    data += struct.pack(f"<{count}f", *(0.01 * (i % 37) - 0.2 for i in range(count)))
    header[name] = {"dtype": "F32", "shape": shapes[name], "data_offsets": [begin, len(data)]}
text = json.dumps(header).encode()
open("theirs/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
END

expect 12 answered import theirs --as timm_mixer ours
grep -qF "append model.gelu=" output || fail "model.gelu is not asked for: $(cat output)"
expect 0 answered import theirs --as timm_mixer bare model.gelu=erf
expect 10 answered eval bare
for told in 'data.path: imported weights have no data; give data.source and data.path' \
  'imported weights do not tell data.normalise'; do
  grep -qF "$told" output || fail "its data are not asked for: $(cat output)"
done
expect 0 answered import theirs --as timm_mixer ours model.gelu=erf data.source=shapes
expect 0 answered ckpt verify ours
expect 0 answered inspect ours --tensors
expect 0 "$program" eval ours --json data.valid.samples=16
expect 0 answered check ours/resolved.yaml
expect 0 "$program" train ours/resolved.yaml model.init_from=ours run.root=. run.name=tuned \
  train.duration=1step data.train.samples=32 data.valid.samples=16
expect 0 answered export tuned --to timm tuned_back --dtype bfloat16
expect 0 answered export ours --to timm back
grep -q '"architecture": "MlpMixer"' back/config.json || fail "config.json: $(cat back/config.json)"
python3 - <<'END' || fail 'the round trip changed the weights'
import json, struct
def tensors(path):
    raw = open(path, "rb").read()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    return {n: (e["dtype"], e["shape"], raw[8 + length:][slice(*e["data_offsets"])])
            for n, e in header.items()}
assert tensors("theirs/model.safetensors") == tensors("back/model.safetensors")
END

# Any model in Shoal's own layout: trained on two ranks that share its experts, exported whole, read
# here without torch, and imported.
expect 0 ranks 2 train "$tiny" run.root=. run.name=experts parallel.expert_ranks=2 \
  train.duration=2step data.train.samples=32 data.valid.samples=16 evaluate.every=2step
expect 12 answered export experts --to timm own
grep -qF ", or --to safetensors" output || fail "the own layout is not offered: $(cat output)"
expect 0 answered export experts --to safetensors own
python3 - <<'END' || fail 'the export is not what the checkpoint holds'
import glob, json, struct
def tensors(path):
    raw = open(path, "rb").read()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    return metadata, {n: (e["dtype"], e["shape"], raw[8 + length:][slice(*e["data_offsets"])])
                      for n, e in header.items()}
metadata, exported = tensors("own/model.safetensors")
saved = {}
for shard in glob.glob("experts/ckpt/step-00000002/*.safetensors"):
    saved |= tensors(shard)[1]
weights = {n: t for n, t in saved.items() if not n.startswith("optimizer.")}
assert exported == weights, set(exported) ^ set(weights)
for unit in range(4):
    name = f"backbone.blocks.1.moe_c.experts.{unit}.fc1.weight"
    assert exported[name][:2] == ("F32", [16, 32]), exported[name][:2]
assert metadata["shoal_step"] == "2" and metadata["format"] == "pt", metadata
assert metadata["shoal_recipe"] == open("own/recipe.yaml").read()
assert "backbone: sparse_mlp" in metadata["shoal_recipe"] and metadata["shoal_version"]
END
python3 - <<'END' || fail "recipe.json: $(cat own/recipe.json)"
import json
described = json.load(open("own/recipe.json"))
recipe, samples = described["recipe"], described["samples"]
assert recipe["model"]["backbone"] == "sparse_mlp" and recipe["train"]["group"] == 4, "the recipe"
assert recipe["model"]["sparse"]["channel_moe"]["router"]["weights"]["scale"] == 1, "its defaults"
assert recipe["model"]["sparse"]["outer_residual"] is False and recipe["model"]["init_from"] == "none"
assert samples["image"] == [3, 16, 16] and len(samples["mean"]) == len(samples["std"]) == 3, samples
END
expect 0 answered check own/recipe.yaml
expect 0 answered import own/model.safetensors --as safetensors again
for run in experts again; do
  "$program" eval $run --json 2>/dev/null | python3 -c 'import json, sys
r = json.load(sys.stdin); print(r["loss"], r["top1"], r["samples"])' >$run.txt
done
cmp experts.txt again.txt || fail "read back, it computes something else: $(cat experts.txt again.txt)"
expect 0 "$program" train again/resolved.yaml model.init_from=again run.root=. run.name=more \
  train.duration=1step parallel.expert_ranks=1

before=$(ls -A)
expect 21 answered import theirs --as timm_mixer ours
expect 2 answered import theirs --as timm_mixr other
grep -qF "did you mean 'timm_mixer'?" output || fail "no suggestion: $(cat output)"
expect 2 answered import theirs other
expect 12 answered import theirs --as timm_vit other
expect 12 answered export ours --to hf other
head -c 1000 theirs/model.safetensors >cut.safetensors
expect 20 answered import cut.safetensors --as timm_mixer other
rm cut.safetensors
[ "$(ls -A)" = "$before" ] || fail "a refusal left something: $(ls -A)"
