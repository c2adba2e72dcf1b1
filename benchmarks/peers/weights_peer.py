#!/usr/bin/env python3
"""Exchanges weights with Hugging Face's transformers, with timm and with the public denoiser, and
compares outputs.

Usage: weights_peer.py SHOAL MODEL_OUTPUTS SCRATCH [--only hf|timm|adaptive_attention]

Random models of theirs are saved, imported, and give the same outputs; exported, they load again and
give the same outputs; a round trip gives the same bits. Needs torch and safetensors, for hf
transformers, for timm timm. Downloads nothing.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from safetensors.torch import load_file, save_file

FLOAT32, FLOAT64 = 1e-4, 1e-10
PICKLE = pathlib.Path(__file__).parents[2] / "launch" / "pickle_to_safetensors"
failures = []


class Shoal:
    def __init__(self, program, outputs, scratch):
        self.program, self.model_outputs, self.scratch = program, outputs, pathlib.Path(scratch)

    def run(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"shoal {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")

    def outputs(self, checkpoint, **inputs):
        source, target = self.scratch / "input.safetensors", self.scratch / "output.safetensors"
        save_file({name: value.contiguous() for name, value in inputs.items()}, source)
        subprocess.run([self.model_outputs, checkpoint, source, target], check=True)
        return load_file(target)["outputs"]


def randomise(model, std=0.2):
    """Weights all over, also where models start from zeros and ones."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn(value.shape, generator=generator) * std + (value.dim() == 1) * 0.5)
    return model.eval()


def compare(what, ours, theirs, tolerance):
    difference = (ours.double() - theirs.double()).abs().max().item()
    good = ours.shape == theirs.shape and difference <= tolerance
    print(f"{'ok  ' if good else 'FAIL'} {what}: {difference:.2e}, at most {tolerance:.0e}", flush=True)
    if not good:
        failures.append(what)


def compare_bits(what, before, after):
    """Of safetensors files, by tensors; lists what differs."""
    different = sorted(set(before) ^ set(after))
    different += [n for n in before if n in after and not (
        before[n].dtype == after[n].dtype and torch.equal(before[n], after[n]))]
    print(f"{'FAIL' if different else 'ok  '} {what}: {len(after)} tensors, bit for bit", flush=True)
    if different:
        failures.append(f"{what}: {different}")


def fresh(path):
    shutil.rmtree(path, ignore_errors=True)
    return path


def saved_tensors(folder):
    tensors = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


def check_timm(shoal, name, model, config, size):
    """A model in float32 and float64: import, export, round trip."""
    import timm
    for dtype, tolerance in ((torch.float32, FLOAT32), (torch.float64, FLOAT64)):
        model = randomise(model).to(dtype)
        case = f"timm {name} {str(dtype).removeprefix('torch.')}"
        ours, back = (fresh(shoal.scratch / part) for part in ("ours", "back"))
        theirs = save_timm(shoal, model, config)
        image = torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(3)).to(dtype)
        with torch.no_grad():
            expected = model(image)
        shoal.run("import", theirs, "--as", "timm_vit" if "vit" in name else "timm_mixer", ours)
        shoal.run("ckpt", "verify", ours)
        compare(f"{case}, imported", shoal.outputs(ours, image=image), expected, tolerance)
        shoal.run("export", ours, "--to", "timm", back)
        compare_bits(f"{case}, round trip", load_file(theirs / "model.safetensors"),
                     load_file(back / "model.safetensors"))
        written = json.loads((back / "config.json").read_text())
        if written["architecture"] == "MlpMixer":
            from timm.models.mlp_mixer import MlpMixer
            loaded = MlpMixer(num_classes=written["num_classes"], **written["model_args"])
            loaded.load_state_dict(load_file(back / "model.safetensors"))
        else:
            loaded = timm.create_model(f"local-dir:{back}", pretrained=True)
        with torch.no_grad():
            loaded = loaded.eval().to(dtype)
            if dtype == torch.float64:  # it was loaded into a model of float32
                loaded.load_state_dict(load_file(back / "model.safetensors"))
            compare(f"{case}, exported", loaded(image), expected, tolerance)


def save_timm(shoal, model, config):
    """In a folder as timm's models are."""
    theirs = fresh(shoal.scratch / "theirs")
    theirs.mkdir(parents=True)
    save_file({n: t.contiguous() for n, t in model.state_dict().items()}, theirs / "model.safetensors")
    (theirs / "config.json").write_text(json.dumps(config))
    return theirs


def refuse(shoal, case, model, config, format, reason):
    """An import that names its reason."""
    try:
        shoal.run("import", save_timm(shoal, model, config), "--as", format, fresh(shoal.scratch / "ours"))
        failures.append(f"{case}: not refused")
    except RuntimeError as error:
        if reason not in str(error):
            failures.append(f"{case}: {error}")


def run_timm(shoal):
    import timm
    from timm.models.mlp_mixer import MlpMixer
    from timm.models.vision_transformer import VisionTransformer
    sizes = dict(img_size=32, patch_size=8, embed_dim=48, num_heads=4, depth=3, mlp_ratio=3.0)
    for extra in ({}, dict(class_token=False, global_pool="avg", fc_norm=False), dict(act_layer="gelu_tanh")):
        arguments = dict(sizes, **extra)
        config = dict(architecture="vit_base_patch16_224", num_classes=11, model_args=arguments,
                      pretrained_cfg=dict(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]))
        check_timm(shoal, "vit " + " ".join(extra), VisionTransformer(num_classes=11, **arguments), config, 32)
    refuse(shoal, "vit gap without heads", VisionTransformer(num_classes=11, **arguments),
           dict(architecture="vit_base_patch16_gap_224"), "timm_vit", "model.heads")
    named = timm.create_model("vit_tiny_patch16_224", num_classes=5)
    check_timm(shoal, "vit_tiny_patch16_224", named, dict(architecture="vit_tiny_patch16_224"), 224)
    sizes = dict(img_size=32, patch_size=8, embed_dim=40, num_blocks=2, mlp_ratio=(0.7, 3.0))
    refuse(shoal, "mixer of the tanh GELU", MlpMixer(num_classes=7, **sizes),
           dict(architecture="MlpMixer", model_args=dict(act_layer="gelu_tanh")), "timm_mixer", "act_layer")
    check_timm(shoal, "mixer", MlpMixer(num_classes=7, **sizes), dict(architecture="MlpMixer"), 32)
    check_timm(shoal, "mixer_s32_224", timm.create_model("mixer_s32_224", num_classes=6, img_size=64),
               dict(architecture="mixer_s32_224", model_args=dict(img_size=64)), 64)


def make_gpt2(**config):
    from transformers import GPT2Config, GPT2LMHeadModel
    sizes = dict(n_embd=48, n_layer=3, n_head=4, n_positions=40, vocab_size=256, bos_token_id=None,
                 eos_token_id=None, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
    return randomise(GPT2LMHeadModel(GPT2Config(**{**sizes, **config})))


def check_gpt2(shoal, name, model, dtype, tolerance, save={}, files=()):
    """`dtype`: of the saved numbers; Shoal computes in float32, float64 for float64."""
    from transformers import GPT2LMHeadModel
    case = f"gpt2 {name} {str(dtype).removeprefix('torch.')}"
    theirs, ours, back = (fresh(shoal.scratch / part) for part in ("theirs", "ours", "back"))
    model.to(dtype).save_pretrained(theirs, **save)
    for file in files:
        shutil.copy(file, theirs)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    model = model.to(wide)
    token = torch.randint(0, model.config.vocab_size, (3, model.config.n_positions),
                          generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = model(token).logits
    shoal.run("import", theirs, "--as", "gpt2", ours)
    shoal.run("ckpt", "verify", ours)
    compare(f"{case}, imported", shoal.outputs(ours, token=token), expected, tolerance)
    shoal.run("export", ours, "--to", "hf", back, "--dtype", str(dtype).removeprefix("torch."))
    compare_bits(f"{case}, round trip", saved_tensors(theirs), saved_tensors(back))
    loaded, report = GPT2LMHeadModel.from_pretrained(back, dtype=wide, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[kind]:
            failures.append(f"{case}: {kind} {report[kind]}")
    with torch.no_grad():
        compare(f"{case}, exported", loaded.eval()(token).logits, expected, tolerance)


def rolling_windows(tokens, prefix, length):
    """Input and scored tokens of lm-evaluation-harness's rolling windows, disjoint, with a context of 1."""
    done = min(length, len(tokens))
    yield [prefix] + tokens[:done - 1], tokens[:done]
    while done < len(tokens):
        end = min(done + length, len(tokens))
        yield tokens[end - length - 1:end - 1], tokens[done:end]
        done = end


def expected_score(model, encode, line):
    """As lm-evaluation-harness's loglikelihood, without a context loglikelihood_rolling."""
    context, continuation = line.get("context", ""), line["continuation"]
    length = model.config.n_positions
    if not context:
        windows = list(rolling_windows(encode(continuation), model.config.eos_token_id, length))
    else:
        if isinstance(context, str):
            blanks = len(context) - len(context.rstrip())
            whole, context = encode(context + continuation), encode(context[:len(context) - blanks])
            continuation = whole[len(context):]
        windows = [((context + continuation)[-(length + 1):][:-1], continuation)]
    logprob, greedy = 0.0, True
    for tokens, scored in windows:
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0, -len(scored):].double()
        scored = torch.tensor(scored)
        logprob += logits.log_softmax(1)[torch.arange(len(scored)), scored].sum().item()
        greedy = greedy and bool((logits.argmax(1) == scored).all())
    return logprob, greedy, sum(len(scored) for _, scored in windows)


def check_scores(shoal, name, model, encode, lines, tolerance, files=()):
    """`shoal score` of an imported model beside the harness's rules over transformers' logits."""
    theirs, ours = (fresh(shoal.scratch / part) for part in ("theirs", "ours"))
    model.save_pretrained(theirs)
    for file in files:
        shutil.copy(file, theirs)
    shoal.run("import", theirs, "--as", "gpt2", ours)
    source, target = shoal.scratch / "lines.jsonl", shoal.scratch / "scores.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    target.unlink(missing_ok=True)
    shoal.run("score", ours, source, "--out", target, *(["data.special_tokens=encode"] if files else []))
    found = [json.loads(line) for line in target.read_text().splitlines()]
    expected = [expected_score(model, encode, line) for line in lines]
    compare(f"scores {name}", torch.tensor([answer["logprob"] for answer in found], dtype=torch.float64),
            torch.tensor([logprob for logprob, _, _ in expected], dtype=torch.float64), tolerance)
    if [[answer["greedy"], answer["tokens"]] for answer in found] != [rest for _, *rest in expected]:
        failures.append(f"scores {name}: greedy or tokens of {found}, not {expected}")


def score_lines(texts):
    """Pairs of texts, texts alone, contexts that are cut, and lists of ids."""
    long = " ".join(texts)
    lines = [{"context": texts[0], "continuation": " " + texts[1]}, {"context": texts[1] + "  ", "continuation": texts[2]},
             {"context": texts[2], "continuation": "!"}, {"context": long, "continuation": " " + texts[0][:9]}]
    return lines + [{"context": [1, 2, 3], "continuation": [4]}, {"context": list(range(90)), "continuation": [7, 8]}]


def run_hf(shoal):
    texts = ["The cat sat on the mat.", "It didn't rain; 12 dogs ran.", "Caf\u00e9 \u4f60\u597d\n\nEnd"]
    check_scores(shoal, "bytes", make_gpt2().double(), lambda text: list(text.encode()), score_lines(texts), 1e-9)
    check_gpt2(shoal, "tiny", make_gpt2(), torch.float32, FLOAT32)
    check_gpt2(shoal, "tiny", make_gpt2(), torch.float64, FLOAT64)
    check_gpt2(shoal, "tiny", make_gpt2(), torch.float16, FLOAT32)
    check_gpt2(shoal, "tiny", make_gpt2(), torch.bfloat16, FLOAT32)
    check_gpt2(shoal, "sharded", make_gpt2(), torch.float32, FLOAT32, save=dict(max_shard_size="40KB"))
    check_gpt2(shoal, "scaled by layer", make_gpt2(scale_attn_by_inverse_layer_idx=True), torch.float64, FLOAT64)
    check_gpt2(shoal, "exact GELU", make_gpt2(activation_function="gelu", n_inner=100), torch.float64, FLOAT64)
    bpe = os.environ.get("GPT2_BPE")
    if not bpe:
        print("left out: the vocabulary of GPT-2, as GPT2_BPE names no folder of its files")
        return
    files = [pathlib.Path(bpe) / name for name in ("encoder.json", "vocab.bpe")]
    check_gpt2(shoal, "GPT-2's vocabulary", make_gpt2(vocab_size=50257), torch.float32, FLOAT32, files=files)
    from transformers import GPT2Tokenizer
    for file, name in zip(files, ("vocab.json", "merges.txt")):
        shutil.copy(file, shoal.scratch / name)
    tokenizer = GPT2Tokenizer(str(shoal.scratch / "vocab.json"), str(shoal.scratch / "merges.txt"))
    model = make_gpt2(vocab_size=50257, eos_token_id=50256).double()
    greedy = {"context": [5, 6], "continuation": model.generate(
        torch.tensor([[5, 6]]), max_new_tokens=5, do_sample=False, pad_token_id=50256)[0, 2:].tolist()}
    alone = [{"continuation": text} for text in (*texts, " ".join(texts * 9), "ends<|endoftext|>begins")]
    check_scores(shoal, "GPT-2's vocabulary", model, lambda text: tokenizer(text)["input_ids"],
                 score_lines(texts) + alone + [greedy], 1e-9, files)


def check_denoiser(shoal, name, sizes, keys, dtype, tolerance):
    """From a pickle as the public program saves it, without a config.json."""
    from denoiser import Denoiser
    case = f"denoiser {name} {str(dtype).removeprefix('torch.')}"
    theirs, ours, back = (fresh(shoal.scratch / part) for part in ("theirs", "ours", "back"))
    theirs.mkdir(parents=True)
    model = randomise(Denoiser(**sizes), std=0.1).to(dtype)
    torch.save(model.state_dict(), theirs / "model.pt")
    subprocess.run([sys.executable, PICKLE, theirs / "model.pt", theirs / "model.safetensors"], check=True,
                   stdout=subprocess.DEVNULL)
    shoal.run("import", theirs / "model.safetensors", "--as", "adaptive_attention", ours, "task.sigma=0", *keys)
    shoal.run("ckpt", "verify", ours)
    size = sizes.get("image_size", 32)
    image = torch.rand(3, 3, size, size, generator=torch.Generator().manual_seed(3)).to(dtype)
    with torch.no_grad():
        expected = model(image).flatten(1)
    tolerance *= expected.abs().max().item()
    compare(f"{case}, imported", shoal.outputs(ours, image=image), expected, tolerance)
    shoal.run("export", ours, "--to", "adaptive_attention", back)
    written = load_file(back / "model.safetensors")
    compare_bits(f"{case}, round trip", model.state_dict(), written)
    config = json.loads((back / "config.json").read_text())
    if (config.pop("architecture"), config.pop("num_experts")) != ("SmallViT", len(config["k_budgets"])):
        failures.append(f"{case}: config.json")
    loaded = Denoiser(**config).to(dtype)
    loaded.load_state_dict(written)
    with torch.no_grad():
        compare(f"{case}, exported", loaded(image).flatten(1), expected, tolerance)


def run_denoiser(shoal):
    tiny = dict(image_size=24, patch_size=4, embed_dim=24, depth=3, num_heads=3, k_budgets=[2, 30, 100, 7])
    keys = ["model.heads=3", "model.attention.experts=[{k: 2}, {k: 30}, {k: 100}, {k: 7}]"]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        check_denoiser(shoal, "published sizes", {}, [], dtype, tolerance)
        check_denoiser(shoal, "tiny", tiny, keys, dtype, tolerance)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("shoal", "model_outputs", "scratch"):
        parser.add_argument(name)
    parser.add_argument("--only", choices=("hf", "timm", "adaptive_attention"))
    arguments = parser.parse_args()
    shoal = Shoal(arguments.shoal, arguments.model_outputs, arguments.scratch)
    shoal.scratch.mkdir(parents=True, exist_ok=True)
    for name, run in (("timm", run_timm), ("hf", run_hf), ("adaptive_attention", run_denoiser)):
        if arguments.only in (None, name):
            run(shoal)
    print(f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
