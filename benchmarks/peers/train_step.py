#!/usr/bin/env python3
"""A training step of Sparse-MLP or ViT in PyTorch eager: the peer of train_step_bench, which starts
it.

An object describes the model and names a device; the answer is the numbers of parameters. Each line
after is a number of training steps; the answer is the microseconds of one. The model and the kinds
of its losses and of its optimizer are those of the recipe; rates and factors are constants, which
change no time. Experts run as a loop over unbound weights, the fastest eager form measured on CPUs.
"""
import math
import time

from serve import serve, synchronise, torch
import torch.nn.functional as F
from torch import nn

EPS = 1e-6


def mlp(width, hidden):
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class MixerBlock(nn.Module):
    def __init__(self, tokens, width, token_hidden, channel_hidden):
        super().__init__()
        self.token_norm, self.token_mlp = nn.LayerNorm(width, EPS), mlp(tokens, token_hidden)
        self.channel_norm, self.channel_mlp = nn.LayerNorm(width, EPS), mlp(width, channel_hidden)

    def forward(self, x):
        x = x + self.token_mlp(self.token_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mlp(self.channel_norm(x)), 0.0


class Moe(nn.Module):
    """Top-k routing with noise 1/E, no limit, importance and load losses by group. In eval mode, that of
    a momentum encoder, without noise, losses and drops."""

    def __init__(self, width, hidden, experts, k, drop, weight, group):
        super().__init__()
        self.experts, self.k, self.drop, self.weight, self.group = experts, k, drop, weight, group
        self.router = nn.Parameter(torch.randn(width, experts) / math.sqrt(width))
        self.w1 = nn.Parameter(torch.empty(experts, width, hidden))
        self.b1 = nn.Parameter(torch.zeros(experts, hidden))
        self.w2 = nn.Parameter(torch.empty(experts, hidden, width))
        self.b2 = nn.Parameter(torch.zeros(experts, width))
        bound = math.sqrt(6 / (width + hidden))
        nn.init.uniform_(self.w1, -bound, bound)
        nn.init.uniform_(self.w2, -bound, bound)

    def balance(self, logits, noisy, value, groups):
        def cv2(v):
            return (v * v).mean(-1) / v.mean(-1) ** 2 - 1

        importance = torch.softmax(logits, -1).view(groups, -1, self.experts).sum(1)
        threshold = noisy.gather(1, value[:, -1:])
        chance = 0.5 * torch.erfc((threshold - logits) * self.experts / math.sqrt(2))
        load = chance.view(groups, -1, self.experts).sum(1)
        return self.weight * (cv2(importance) + cv2(load)).mean()

    def forward(self, x):
        batch, rows, width = x.shape
        flat = x.reshape(-1, width)
        groups = batch // self.group
        logits = flat @ self.router
        noisy = logits + torch.randn_like(logits) / self.experts if self.training else logits
        weight, unit = torch.softmax(noisy, -1).topk(self.k, -1)
        loss = self.balance(logits, noisy, unit, groups) if self.training else 0.0
        token = torch.arange(flat.shape[0], device=x.device).repeat_interleave(self.k)
        weight, unit = weight.flatten(), unit.flatten()
        if self.drop > 0 and self.training:  # importance-score routing, k = 1
            score = weight.view(groups, -1)
            num_kept = score.shape[1] - math.floor(self.drop * score.shape[1])
            kept = score.topk(num_kept, 1).indices
            kept = (kept + torch.arange(groups, device=x.device).unsqueeze(1) * score.shape[1]).flatten()
            token, weight, unit = token[kept], weight[kept], unit[kept]
        order = unit.argsort(stable=True)
        token, weight = token[order], weight[order]
        counts = unit.bincount(minlength=self.experts).tolist()
        parts = []
        for rows_e, w1, b1, w2, b2 in zip(flat[token].split(counts), self.w1.unbind(),
                                          self.b1.unbind(), self.w2.unbind(), self.b2.unbind()):
            parts.append(torch.addmm(b2, F.gelu(torch.addmm(b1, rows_e, w1)), w2))
        out = torch.zeros_like(flat).index_add(0, token, torch.cat(parts) * weight.unsqueeze(1))
        return out.view(batch, rows, width), loss


class SparseBlock(nn.Module):
    def __init__(self, tokens, width, sparse, group):
        super().__init__()
        s1, c1 = sparse["tokens"], sparse["width"]
        self.channels_in, self.tokens_in = nn.Linear(width, c1), nn.Linear(tokens, s1)
        self.token_norm, self.moe_s = nn.LayerNorm(c1, EPS), Moe(s1, **sparse["token_moe"], group=group)
        self.channel_norm, self.moe_c = nn.LayerNorm(c1, EPS), Moe(c1, **sparse["channel_moe"], group=group)
        self.tokens_out, self.channels_out = nn.Linear(s1, tokens), nn.Linear(c1, width)
        self.outer_residual = sparse["outer_residual"]

    def forward(self, x):
        h = self.tokens_in(self.channels_in(x).transpose(1, 2)).transpose(1, 2)
        token_mix, token_loss = self.moe_s(self.token_norm(h).transpose(1, 2))
        y = h + token_mix.transpose(1, 2)
        channel_mix, channel_loss = self.moe_c(self.channel_norm(y))
        y = y + channel_mix
        y = self.channels_out(self.tokens_out(y.transpose(1, 2)).transpose(1, 2))
        return y + x if self.outer_residual else y, token_loss + channel_loss


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv, self.proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).flatten(2))


class VitBlock(nn.Module):
    def __init__(self, width, heads, hidden, moe, group):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width, EPS), nn.LayerNorm(width, EPS)
        self.attention = Attention(width, heads)
        self.has_experts = moe is not None
        self.mlp = Moe(width, **moe, group=group) if self.has_experts else mlp(width, hidden)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        y = self.mlp(self.mlp_norm(x))
        y, loss = y if self.has_experts else (y, 0.0)
        return x + y, loss


class SparseMlp(nn.Module):
    def __init__(self, o):
        super().__init__()
        tokens = (o["image"] // o["patch"]) ** 2
        self.stem = nn.Conv2d(3, o["width"], o["patch"], o["patch"])
        blocks = [MixerBlock(tokens, o["width"], o["token_hidden"], o["channel_hidden"])
                  for _ in range(o["dense_blocks"])]
        blocks += [SparseBlock(tokens, o["width"], o["sparse"], o["group"])
                   for _ in range(o["sparse_blocks"])]
        self.blocks = nn.ModuleList(blocks)

    def embed(self, image):
        return self.stem(image).flatten(2).transpose(1, 2)

    def pool(self, x):
        return x.mean(1)


class Vit(nn.Module):
    def __init__(self, o):
        super().__init__()
        tokens = (o["image"] // o["patch"]) ** 2
        self.stem = nn.Conv2d(3, o["width"], o["patch"], o["patch"])
        self.cls = nn.Parameter(0.02 * torch.randn(o["width"])) if o["has_cls"] else None
        self.positions = nn.Parameter(0.02 * torch.randn(tokens + o["has_cls"], o["width"]))
        self.blocks = nn.ModuleList(
            VitBlock(o["width"], o["heads"], o["hidden"], moe, o["group"]) for moe in o["moe"])

    def embed(self, image):
        x = self.stem(image).flatten(2).transpose(1, 2)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(x.shape[0], 1, -1), x], 1)
        return x + self.positions

    def pool(self, x):
        return x.mean(1) if self.cls is None else x[:, 0]


class Encoder(nn.Module):
    """A backbone's features of images, pooled, and its balance losses."""

    def __init__(self, o):
        super().__init__()
        self.backbone = {"sparse_mlp": SparseMlp, "vit": Vit}[o["backbone"]](o)
        self.backbone.stem.requires_grad_(not o["freezes_stem"])
        self.norm = nn.LayerNorm(o["width"], EPS)

    def forward(self, image):
        x = self.backbone.embed(image)
        loss = 0.0
        for block in self.backbone.blocks:
            x, extra = block(x)
            loss = loss + extra
        return self.backbone.pool(self.norm(x)), loss


class Classifier(nn.Module):
    """The loss of an encoder with a linear head for a batch of noise."""

    def __init__(self, o):
        super().__init__()
        self.encoder, self.head = Encoder(o), nn.Linear(o["width"], o["classes"])
        self.image = torch.randn(o["batch"], 3, o["image"], o["image"], device=o["device"])
        self.label = torch.randint(o["classes"], (o["batch"],), device=o["device"])
        self.label_smoothing = o["label_smoothing"]

    def forward(self):
        feature, extra = self.encoder(self.image)
        return F.cross_entropy(self.head(feature), self.label,
                               label_smoothing=self.label_smoothing) + extra


class Training:
    """Steps of a model whose forward pass is its loss."""

    def __init__(self, model, o):
        self.model, self.device, self.clip_norm = model.to(o["device"]), o["device"], o["clip_norm"]
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=o["lr"], weight_decay=o["weight_decay"],
                                           fused=True)

    def num_parameters(self):
        trained = sum(p.numel() for p in self.trained)
        return {"trained": trained, "others": sum(p.numel() for p in self.model.parameters()) - trained}

    def step(self):
        loss = self.model()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.clip_norm > 0:
            nn.utils.clip_grad_norm_(self.trained, self.clip_norm)
        self.optimizer.step()

    def time_us(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        synchronise(self.device)
        return 1e6 * (time.perf_counter() - start) / steps


def main():
    training = None

    def answer(question):
        nonlocal training
        if not isinstance(question, dict):
            return training.time_us(question)
        torch.manual_seed(1)
        training = Training(Classifier(question), question)
        training.step()
        return training.num_parameters()

    serve(answer)


if __name__ == "__main__":
    main()
