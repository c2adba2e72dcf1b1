#!/usr/bin/env python3
"""Greedy generation by Hugging Face's GPT2LMHeadModel, with its cache and in float32: the peer of
generate_bench, which starts it.

A line `versions` asks what there is. An object with a `config` and a `file` of weights describes the
model; the answer is the number of its parameters. {"generate": PROMPTS, "tokens": N} continues prompts
of equal length by N tokens each, and answers those; `time` does so again, and answers the microseconds
of it. {"gap": TEXTS, "prompt": N} answers how far the logits of the texts' tokens, but for the first N
of each, are below the highest ones at most.
"""
import os
import time

from serve import read_tensors, serve, torch

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import transformers
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel
except ImportError as error:
    transformers, absent = None, str(error)


def make(config, file):
    # Texts have the length that is asked for: no token ends one.
    model = GPT2LMHeadModel(GPT2Config(**{**config, "bos_token_id": None, "eos_token_id": None}))
    missing, unexpected = model.load_state_dict(read_tensors(file), strict=False)
    if missing != ["lm_head.weight"] or unexpected:
        raise ValueError(f"weights are missing, {missing}, or unexpected, {unexpected}")
    return model.eval()


def gap(model, texts, prompt):
    logits = model(texts[:, :-1]).logits[:, prompt - 1:]
    own = logits.gather(2, texts[:, prompt:, None]).squeeze(2)
    return (logits.amax(2) - own).max().item()


def main():
    model = prompts = config = None

    def generate():
        # All tokens of a prompt count, also those that a tokenizer would pad with.
        return model.generate(prompts, attention_mask=torch.ones_like(prompts), generation_config=config)

    @torch.inference_mode()
    def answer(question):
        nonlocal model, prompts, config
        if question == "versions":
            return {"torch": torch.__version__,
                    **({"transformers": transformers.__version__} if transformers else {"absent": absent})}
        if question == "time":
            start = time.perf_counter()
            generate()
            return 1e6 * (time.perf_counter() - start)
        if "config" in question:
            model = make(question["config"], question["file"])
            return model.num_parameters()
        if "gap" in question:
            return gap(model, torch.tensor(question["gap"]), question["prompt"])
        prompts = torch.tensor(question["generate"])
        config = GenerationConfig(do_sample=False, use_cache=True, max_new_tokens=question["tokens"])
        return generate()[:, prompts.shape[1]:].tolist()

    serve(answer)


if __name__ == "__main__":
    main()
