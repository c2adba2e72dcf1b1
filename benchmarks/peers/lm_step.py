#!/usr/bin/env python3
"""A training step of GPT-2, dense or with experts, in PyTorch eager: the peer of lm_step_bench, which
starts it.

An object describes the model and names a file with its weights and a batch of tokens; the answer is
the loss of that batch. `step` trains one step, and answers the loss anew. {"form": FORM} chooses how
experts are computed, `loop` (over unbound weights) or `grouped_mm`, and answers the loss anew. A number
is a number of training steps; the answer is the microseconds of one. `peak` asks for the most memory
that the process has held, in bytes.
"""
import resource
import time

from serve import read_tensors, serve, torch
import torch.nn.functional as F
from torch import nn

EPS = 1e-5


def below(prefix, tensors):
    """Those whose names begin with the prefix, by the rest of them."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


class Experts(nn.Module):
    """Top-1 experts behind a softmax router, dropless, with Switch's balance loss by sample."""

    def __init__(self, given, weight):
        super().__init__()
        self.weight, self.form = weight, "loop"
        self.router = nn.Parameter(given["router.weight"])
        self.w1, self.b1 = (nn.Parameter(given[f"experts.*.fc1.{part}"]) for part in ("weight", "bias"))
        self.w2, self.b2 = (nn.Parameter(given[f"experts.*.fc2.{part}"]) for part in ("weight", "bias"))

    def loop(self, rows, counts):
        return torch.cat([
            torch.addmm(b2, F.gelu(torch.addmm(b1, part, w1), approximate="tanh"), w2)
            for part, w1, b1, w2, b2 in zip(rows.split(counts.tolist()), self.w1.unbind(),
                                            self.b1.unbind(), self.w2.unbind(), self.b2.unbind())])

    def grouped_mm(self, rows, counts):
        offsets = counts.cumsum(0).to(torch.int32)
        expert = torch.repeat_interleave(counts)
        hidden = F.grouped_mm(rows, self.w1, offs=offsets) + self.b1[expert]
        return F.grouped_mm(F.gelu(hidden, approximate="tanh"), self.w2, offs=offsets) + self.b2[expert]

    def forward(self, x):
        batch, rows, width = x.shape
        experts = self.w1.shape[0]
        flat = x.reshape(-1, width)
        prob = torch.softmax(flat @ self.router, -1)
        weight, unit = prob.max(-1)
        order = unit.argsort(stable=True)
        y = getattr(self, self.form)(flat[order], unit.bincount(minlength=experts))
        out = torch.zeros_like(flat).index_add(0, order, y * weight[order].unsqueeze(1))
        share = F.one_hot(unit, experts).view(batch, rows, experts).to(prob.dtype).mean(1)
        loss = experts * (share * prob.view(batch, rows, experts).mean(1)).sum(-1).mean()
        return out.view(batch, rows, width), self.weight * loss


class Block(nn.Module):
    def __init__(self, given, heads, balance_weight):
        super().__init__()
        self.heads = heads

        def linear(name):
            weight = given[f"{name}.weight"]
            layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
            layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(given[f"{name}.bias"])
            return layer

        def norm(name):
            layer = nn.LayerNorm(given[f"{name}.weight"].shape[0], EPS, device="meta")
            layer.weight = nn.Parameter(given[f"{name}.weight"])
            layer.bias = nn.Parameter(given[f"{name}.bias"])
            return layer

        self.attention_norm, self.mlp_norm = norm("attention_norm"), norm("mlp_norm")
        self.qkv, self.proj = linear("attention.qkv"), linear("attention.proj")
        self.is_sparse = "moe.router.weight" in given
        if self.is_sparse:
            self.experts = Experts(below("moe.", given), balance_weight)
        else:
            self.fc1, self.fc2 = linear("mlp.fc1"), linear("mlp.fc2")

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(self.attention_norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        h = self.mlp_norm(x)
        if self.is_sparse:
            y, loss = self.experts(h)
        else:
            y, loss = self.fc2(F.gelu(self.fc1(h), approximate="tanh")), 0.0
        return x + y, loss


class Gpt2(nn.Module):
    def __init__(self, o, tensors):
        super().__init__()
        top = below("backbone.", tensors)
        self.tokens, self.positions = nn.Parameter(top["tokens"]), nn.Parameter(top["positions"])
        self.blocks = nn.ModuleList(Block(below(f"blocks.{i}.", top), o["heads"], o["balance_weight"])
                                    for i in range(o["depth"]))
        self.norm = nn.LayerNorm(self.tokens.shape[1], EPS)
        self.norm.weight, self.norm.bias = nn.Parameter(top["norm.weight"]), nn.Parameter(top["norm.bias"])

    def forward(self, token, label):
        x = F.embedding(token, self.tokens) + self.positions[:token.shape[1]]
        loss = 0.0
        for block in self.blocks:
            x, extra = block(x)
            loss = loss + extra
        logits = F.linear(self.norm(x), self.tokens)
        return F.cross_entropy(logits.flatten(0, 1), label.flatten()) + loss


class Training:
    def __init__(self, o):
        tensors = read_tensors(o["file"])
        self.token, self.label, self.clip_norm = tensors["token"], tensors["label"], o["clip_norm"]
        self.model = Gpt2(o, tensors)
        # Of a stack of experts, biases have two dimensions too.
        matrices, others = [], []
        for name, parameter in self.model.named_parameters():
            is_matrix = parameter.dim() >= 2 and not name.endswith((".b1", ".b2"))
            (matrices if is_matrix else others).append(parameter)
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": o["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
            lr=o["lr"], betas=tuple(o["betas"]), eps=o["eps"], fused=True)

    def loss(self):
        with torch.no_grad():
            return self.model(self.token, self.label).item()

    def choose(self, form):
        for module in self.model.modules():
            if isinstance(module, Experts):
                module.form = form
        return self.loss()

    def step(self):
        loss = self.model(self.token, self.label)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.step()

    def time_us(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        return 1e6 * (time.perf_counter() - start) / steps


def main():
    training = None

    def answer(question):
        nonlocal training
        if question == "peak":
            return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if question == "step":
            training.step()
            return training.loss()
        if not isinstance(question, dict):
            return training.time_us(question)
        if "form" in question:
            return training.choose(question["form"])
        training = Training(question)
        return training.loss()

    serve(answer)


if __name__ == "__main__":
    main()
