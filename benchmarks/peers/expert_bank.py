#!/usr/bin/env python3
"""Expert layers in Python PyTorch: the peer of expert_bank_bench, which starts it.

A line that is an object describes a layer: rows of each expert, width, hidden width. Any other
names a form; the answer is the microseconds of its forward and backward pass.
"""
import time

from serve import serve, torch
from torch.nn.functional import gelu, grouped_mm


class Layer:
    """Stacked experts [E, in, out], rows sorted by expert; and one dense MLP of equal FLOPs."""

    def __init__(self, rows, width, hidden):
        torch.manual_seed(1)
        experts, total = len(rows), sum(rows)
        self.rows = rows
        self.ends = torch.tensor(rows, dtype=torch.int32).cumsum(0).to(torch.int32)
        self.x = torch.randn(total, width, requires_grad=True)
        self.upstream = torch.randn(total, width)
        self.stacks = [t.requires_grad_() for t in (
            torch.randn(experts, width, hidden) / width**0.5, torch.randn(experts, hidden),
            torch.randn(experts, hidden, width) / hidden**0.5, torch.randn(experts, width))]
        self.single = [t[0].detach().clone().requires_grad_() for t in self.stacks]

    def dense(self):
        w1, b1, w2, b2 = self.single
        return torch.addmm(b2, gelu(torch.addmm(b1, self.x, w1)), w2)

    def unbind(self):
        stacks = zip(self.x.split(self.rows), *(t.unbind(0) for t in self.stacks))
        return torch.cat([torch.addmm(b2, gelu(torch.addmm(b1, x, w1)), w2)
                          for x, w1, b1, w2, b2 in stacks])

    def indexing(self):
        w1, b1, w2, b2 = self.stacks
        return torch.cat([torch.addmm(b2[e], gelu(torch.addmm(b1[e], x, w1[e])), w2[e])
                          for e, x in enumerate(self.x.split(self.rows))])

    def grouped_mm(self):
        w1, b1, w2, b2 = self.stacks
        expert = torch.repeat_interleave(torch.arange(len(self.rows)), torch.tensor(self.rows))
        hidden = gelu(grouped_mm(self.x, w1, offs=self.ends) + b1[expert])
        return grouped_mm(hidden, w2, offs=self.ends) + b2[expert]

    def time_us(self, form):
        start = time.perf_counter()
        getattr(self, form)().backward(self.upstream)
        for tensor in (self.x, *self.stacks, *self.single):
            tensor.grad = None
        return 1e6 * (time.perf_counter() - start)


def main():
    layer = None

    def answer(question):
        nonlocal layer
        if not isinstance(question, dict):
            return layer.time_us(question)
        layer = Layer(**question)
        return torch.__version__

    serve(answer)


if __name__ == "__main__":
    main()
