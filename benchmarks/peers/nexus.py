#!/usr/bin/env python3
"""The Nexus layer as its paper's pseudo-code has it: the peer of nexus_bench, which starts it.

A line that is an object builds a layer, or gives it weights and tokens and wants its output; any
other names a form, `step` or `forward`, and the answer is the microseconds of it. Only the first
values differ from the pseudo-code: its standard normal ones make both softmaxes one-hot, and denormal
numbers slow.
"""
import math
import time

from serve import serve, torch
import torch.nn.functional as F
from torch import einsum, nn


def normal(*sizes):
    """By the fan-in of each matrix."""
    return nn.Parameter(torch.randn(*sizes) / math.sqrt(sizes[-2]))


class MultiExpertBlock(nn.Module):
    def __init__(self, dim, num_experts, mlp_ratio=4):
        super().__init__()
        hidden_dim = int(dim * mlp_ratio)
        self.w1 = normal(num_experts, dim, hidden_dim)
        self.w2 = normal(num_experts, hidden_dim, dim)

    def forward(self, x):
        x = einsum("b e s d, e d h -> b e s h", x, self.w1)
        x = F.relu(x)
        return einsum("b e s h, e h d -> b e s d", x, self.w2)


class MemoryRetrievalBlock(nn.Module):
    def __init__(self, dim, num_units, num_keys, topk):
        super().__init__()
        self.topk, self.num_keys = topk, num_keys
        self.mem_keys = nn.Parameter(torch.randn(num_units, num_keys, dim) / math.sqrt(dim))
        self.value_bag = nn.EmbeddingBag(num_units * num_keys, dim, mode="sum")

    def forward(self, x):
        scores = einsum("b e s d, e k d -> b e s k", x, self.mem_keys)
        topk_weights, topk_indices = torch.topk(scores, k=self.topk, dim=-1)
        topk_weights = torch.softmax(topk_weights, dim=-1)
        offset = torch.arange(x.shape[1], device=x.device) * self.num_keys
        topk_indices = topk_indices + offset.view(1, -1, 1, 1)
        out = self.value_bag(topk_indices.view(-1, self.topk),
                             per_sample_weights=topk_weights.view(-1, self.topk))
        return out.view(x.shape)


class NexusLayer(nn.Module):
    def __init__(self, dim, num_experts, num_memory_units, slots_per_unit, num_keys, topk):
        super().__init__()
        self.num_experts = num_experts
        units = num_experts + num_memory_units
        self.router_queries = nn.Parameter(
            torch.randn(units, slots_per_unit, dim) / math.sqrt(dim))
        self.router_temp = nn.Parameter(torch.tensor([1.0, 1.0]))
        self.experts = MultiExpertBlock(dim, num_experts)
        self.memory = MemoryRetrievalBlock(dim, num_memory_units, num_keys, topk)

    def forward(self, x):
        affinity = einsum("b n d, e s d -> b n e s", x, self.router_queries)
        D = torch.softmax(affinity / self.router_temp[0], dim=1)
        combine_logits = affinity / self.router_temp[1]
        B = torch.softmax(combine_logits.flatten(start_dim=-2), dim=-1).view_as(affinity)
        z_in = einsum("b n e s, b n d -> b e s d", D, x)
        z_exp_out = self.experts(z_in[:, :self.num_experts, ...])
        z_mem_out = self.memory(z_in[:, self.num_experts:, ...])
        z_out = torch.cat([z_exp_out, z_mem_out], dim=1)
        return einsum("b n e s, b e s d -> b n d", B, z_out)


class Problem:
    def __init__(self, images, tokens, dim, **layer):
        torch.manual_seed(1)
        self.layer = NexusLayer(dim, **layer)
        self.x = torch.randn(images, tokens, dim, requires_grad=True)
        self.upstream = torch.randn(images, tokens, dim)

    def step(self):
        self.layer(self.x).backward(self.upstream)
        self.layer.zero_grad(set_to_none=True)
        self.x.grad = None

    @torch.no_grad()
    def forward(self):
        self.layer(self.x)

    @torch.no_grad()
    def output(self, weights, x):
        for parameter, numbers in zip(self.layer.parameters(), weights, strict=True):
            parameter.copy_(torch.tensor(numbers).view_as(parameter))
        return self.layer(torch.tensor(x).view_as(self.x)).flatten().tolist()

    def time_us(self, form):
        start = time.perf_counter()
        getattr(self, form)()
        return 1e6 * (time.perf_counter() - start)


def main():
    problem = None

    def answer(question):
        nonlocal problem
        if not isinstance(question, dict):
            return problem.time_us(question)
        if "weights" in question:
            return problem.output(**question)
        problem = Problem(**question)
        return torch.__version__

    serve(answer)


if __name__ == "__main__":
    main()
