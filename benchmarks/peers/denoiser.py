"""The adaptive sparse-attention denoiser with soft mixing in PyTorch eager, with the parameter names
of its public program.

Every expert attends with every query to the k keys of its highest logits; the router's softmax mixes
the experts' outputs. Used by weights_peer.py and denoise_step.py.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn


def gather(query, key, value, kept):
    """The published program's way: the kept keys' values of each query, as a tensor of their own."""
    logits = query @ key.mT / math.sqrt(query.shape[-1])
    batch, heads, tokens, width = value.shape
    highest, index = logits.topk(kept, -1)
    of_each_query = value.unsqueeze(2).expand(batch, heads, tokens, tokens, width)
    chosen = of_each_query.gather(3, index.unsqueeze(-1).expand(-1, -1, -1, -1, width))
    return (highest.softmax(-1).unsqueeze(-2) @ chosen).squeeze(-2)


def masked(query, key, value, kept):
    """Logits below the last kept one have no weight; without ties the same keys as by `gather`."""
    logits = query @ key.mT / math.sqrt(query.shape[-1])
    if kept < logits.shape[-1]:
        least = logits.detach().topk(kept, -1).values[..., -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    return logits.softmax(-1) @ value


def masked_or_fused(query, key, value, kept):
    """PyTorch's fused attention where all keys are kept."""
    if kept < key.shape[-2]:
        return masked(query, key, value, kept)
    return F.scaled_dot_product_attention(query, key, value)


FORMS = {"gather": gather, "masked": masked, "masked_or_fused": masked_or_fused}


class TopKExpert(nn.Module):
    """Multi-head attention of each query to its k best keys."""

    def __init__(self, width, heads, k):
        super().__init__()
        self.heads, self.k = heads, k
        for name in ("W_q", "W_k", "W_v", "W_out"):
            self.add_module(name, nn.Linear(width, width))

    def forward(self, x, attend):
        query, key, value = (layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for layer in (self.W_q, self.W_k, self.W_v))
        y = attend(query, key, value, min(self.k, x.shape[1]))
        return self.W_out(y.transpose(1, 2).flatten(2))


class Router(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.routing_net = nn.Sequential(nn.Linear(width, width // 2), nn.ReLU(),
                                         nn.Linear(width // 2, experts))

    def forward(self, x):
        return self.routing_net(x).softmax(-1)


class ExpertAttention(nn.Module):
    """All experts on all tokens, mixed by the router."""

    def __init__(self, width, heads, budgets):
        super().__init__()
        self.router = Router(width, len(budgets))
        self.experts = nn.ModuleList(TopKExpert(width, heads, k) for k in budgets)
        self.merge_proj = nn.Linear(width, width)

    def forward(self, x, attend):
        """The mixture, and the balance loss: KL of the even distribution from the mean scores."""
        prob = self.router(x)
        outputs = torch.stack([expert(x, attend) for expert in self.experts], 2)
        mean = prob.mean((0, 1))
        even = torch.full_like(mean, 1 / mean.numel())
        balance = F.kl_div(mean.log(), even, reduction="sum") / mean.numel()
        return self.merge_proj((outputs * prob.unsqueeze(-1)).sum(2)), balance


class Block(nn.Module):
    def __init__(self, width, heads, hidden, budgets):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = ExpertAttention(width, heads, budgets)
        self.ffn = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x, attend):
        y, balance = self.attn(self.norm1(x), attend)
        x = x + y
        return x + self.ffn(self.norm2(x)), balance


class Denoiser(nn.Module):
    """Images before the clamp to [0, 1]; `balance` has the last call's sum of the balance losses."""

    def __init__(self, image_size=32, patch_size=4, embed_dim=128, depth=2, num_heads=4,
                 k_budgets=(32, 64, 128), hidden=None, attend=masked):
        super().__init__()
        hidden = hidden or 2 * embed_dim
        self.attend, self.balance = attend, None
        self.patch_embed = nn.Conv2d(3, embed_dim, patch_size, stride=patch_size)
        self.pos_embed = nn.Parameter(torch.randn(1, (image_size // patch_size) ** 2, embed_dim) * 0.02)
        self.blocks = nn.ModuleList(Block(embed_dim, num_heads, hidden, k_budgets)
                                    for _ in range(depth))
        self.patch_unembed = nn.ConvTranspose2d(embed_dim, 3, patch_size, stride=patch_size)

    def forward(self, image):
        embedded = self.patch_embed(image)
        x = embedded.flatten(2).mT + self.pos_embed
        self.balance = 0.0
        for block in self.blocks:
            x, balance = block(x, self.attend)
            self.balance = self.balance + balance
        return self.patch_unembed(x.mT.reshape(embedded.shape))


@torch.no_grad()
def load(model, given):
    """Copies Shoal's tensors, by its names; stacks of experts are input first."""

    def copy(layer, name, expert=None):
        weight, bias = given[f"{name}.weight"], given[f"{name}.bias"]
        if expert is not None:
            weight, bias = weight[expert].t(), bias[expert]
        layer.weight.copy_(weight.reshape(layer.weight.shape))
        layer.bias.copy_(bias)

    copy(model.patch_embed, "backbone.stem")
    model.pos_embed.copy_(given["backbone.positions"])
    copy(model.patch_unembed, "head")
    for i, block in enumerate(model.blocks):
        own, router = f"backbone.blocks.{i}", block.attn.router.routing_net
        for name, layer in {"attention_norm": block.norm1, "mlp_norm": block.norm2,
                            "attention.router.fc1": router[0], "attention.router.fc2": router[2],
                            "merge": block.attn.merge_proj, "mlp.fc1": block.ffn[0],
                            "mlp.fc2": block.ffn[2]}.items():
            copy(layer, f"{own}.{name}")
        for e, expert in enumerate(block.attn.experts):
            for name, layer in {"query": expert.W_q, "key": expert.W_k, "value": expert.W_v,
                                "out": expert.W_out}.items():
                copy(layer, f"{own}.attention.experts.*.{name}", e)
