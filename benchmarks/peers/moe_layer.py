#!/usr/bin/env python3
"""A MoE layer in Python PyTorch, or with the experts of transformers: the peer of moe_layer_bench,
which starts it.

A line `versions` asks what there is. An object names a file with a layer's tokens, weights, output
and gradients; the answer lists the forms that compute the same layer. {"compare": FORM} asks how far
a form's numbers are from the file's, relative to the largest of each tensor; any other line names a
form, and the answer is the microseconds of its forward and backward pass.

Plain experts with biases are written out here; transformers has none, but gated experts
(MixtralExperts) and plain ones (NemotronHExperts) without.
"""
import math
import time

from serve import serve, torch
from torch.nn.functional import gelu, grouped_mm, linear

try:
    import transformers
    from transformers import MixtralConfig, NemotronHConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts
    from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHExperts
except ImportError as error:
    transformers, absent = None, str(error)


def available_bytes():
    with open("/proc/meminfo", encoding="ascii") as lines:
        kib = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
    return 1024 * int(kib)


class WrittenOut:
    """Plain experts with biases, stacks [E, in, out]."""

    names = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")

    def __init__(self, given):
        self.stacks = [given[name].clone().requires_grad_() for name in self.names]
        self.forms = {f"python_{form.__name__}": form
                      for form in (self.eager, self.unbind, self.grouped_mm)}
        self.left_out = {}

    def parameters(self):
        return self.stacks

    def grads(self):
        return {name: stack.grad for name, stack in zip(self.names, self.stacks, strict=True)}

    @staticmethod
    def loop(x, unit, weight, experts):
        y = torch.zeros_like(x)
        for e, (w1, b1, w2, b2) in enumerate(experts):
            token, choice = torch.where(unit == e)
            if token.numel() == 0:
                continue
            hidden = gelu(torch.addmm(b1, x[token], w1))
            rows = torch.addmm(b2, hidden, w2) * weight[token, choice, None]
            y.index_add_(0, token, rows)
        return y

    def eager(self, x, unit, weight):
        experts = range(self.stacks[0].shape[0])
        return self.loop(x, unit, weight, ([stack[e] for stack in self.stacks] for e in experts))

    def unbind(self, x, unit, weight):
        return self.loop(x, unit, weight, zip(*(stack.unbind(0) for stack in self.stacks)))

    def grouped_mm(self, x, unit, weight):
        w1, b1, w2, b2 = self.stacks
        k = unit.shape[1]
        expert, order = unit.flatten().sort(stable=True)
        ends = expert.bincount(minlength=w1.shape[0]).cumsum(0).to(torch.int32)
        hidden = gelu(grouped_mm(x.index_select(0, order // k), w1, offs=ends) + b1[expert])
        rows = grouped_mm(hidden, w2, offs=ends) + b2[expert]
        rows = rows * weight.flatten()[order, None]
        return rows.index_select(0, order.argsort()).view(x.shape[0], k, -1).sum(1)


class Transformers:
    """Experts without biases: those of Mixtral with a gate, those of Nemotron-H without."""

    def __init__(self, given, rows):
        experts, width, hidden = given["fc1.weight"].shape
        self.has_gate = "gate.weight" in given
        up = given["fc1.weight"]
        if self.has_gate:
            self.config = MixtralConfig(hidden_size=width, intermediate_size=hidden,
                                        num_local_experts=experts, hidden_act="silu")
            self.experts = MixtralExperts(self.config)
            self.up = self.experts.gate_up_proj
            up = torch.cat([given["gate.weight"], up], -1)
        else:
            self.config = NemotronHConfig(hidden_size=width, moe_intermediate_size=hidden,
                                          n_routed_experts=experts, mlp_hidden_act="gelu")
            self.experts = NemotronHExperts(self.config)
            self.up = self.experts.up_proj
        with torch.no_grad():
            self.up.copy_(up.transpose(1, 2))
            self.experts.down_proj.copy_(given["fc2.weight"].transpose(1, 2))
        self.forms, self.left_out = {}, {}
        for name in ("eager", "grouped_mm", "batched_mm"):
            self.forms[f"transformers_{name}"] = self.form(name)
        # A copy of its expert's weights for each row, and the gradients of those.
        copied = 2 * 4 * rows * sum(t[0].numel() for t in self.parameters())
        if copied > available_bytes() / 4:
            del self.forms["transformers_batched_mm"]
            self.left_out["transformers_batched_mm"] = (
                f"copies weights for each row, {copied / 2**30:.0f} GiB with their gradients")

    def form(self, name):
        def call(x, unit, weight):
            self.config._experts_implementation = name
            return self.experts(x, unit, weight)
        return call

    def parameters(self):
        return list(self.experts.parameters())

    def grads(self):
        up = self.up.grad.transpose(1, 2)
        grads = {"fc2.weight": self.experts.down_proj.grad.transpose(1, 2)}
        if self.has_gate:
            grads["gate.weight"], grads["fc1.weight"] = up.chunk(2, -1)
        else:
            grads["fc1.weight"] = up
        return grads


class Layer:
    """Softmax of the router's scores, the k largest as weights, and experts."""

    def __init__(self, path, tensors, k):
        sizes = [math.prod(shape) for _, shape in tensors]
        parts = torch.from_file(path, size=sum(sizes)).split(sizes)
        self.given = {name.replace("experts.*.", ""): part.view(shape).clone()
                      for (name, shape), part in zip(tensors, parts, strict=True)}
        self.k = k
        self.x = self.given["x"].clone().requires_grad_()
        self.router = self.given["router.weight"].t().contiguous().requires_grad_()
        if "fc1.bias" in self.given:
            self.experts = WrittenOut(self.given)
        else:
            self.experts = Transformers(self.given, self.x.shape[0] * k) if transformers else None

    def forms(self):
        if self.experts is None:
            return {"forms": [], "left_out": {}}
        return {"forms": list(self.experts.forms), "left_out": self.experts.left_out}

    def step(self, form):
        weight, unit = torch.softmax(linear(self.x, self.router), -1).topk(self.k, -1)
        y = self.experts.forms[form](self.x, unit, weight)
        y.backward(self.given["upstream"])
        return y.detach()

    def clear(self):
        for tensor in (self.x, self.router, *self.experts.parameters()):
            tensor.grad = None

    def compare(self, form):
        made = {"y": self.step(form), "grad x": self.x.grad,
                "grad router.weight": self.router.grad.t()}
        made |= {f"grad {name}": grad for name, grad in self.experts.grads().items()}
        self.clear()
        return {name: ((tensor - self.given[name]).abs().max()
                       / self.given[name].abs().max()).item() for name, tensor in made.items()}

    def time_us(self, form):
        start = time.perf_counter()
        self.step(form)
        self.clear()
        return 1e6 * (time.perf_counter() - start)


def main():
    layer = None

    def answer(question):
        nonlocal layer
        if question == "versions":
            if transformers is None:
                return {"torch": torch.__version__, "absent": absent}
            return {"torch": torch.__version__, "transformers": transformers.__version__}
        if not isinstance(question, dict):
            return layer.time_us(question)
        if "compare" in question:
            return layer.compare(question["compare"])
        layer = Layer(**question)
        return layer.forms()

    serve(answer)


if __name__ == "__main__":
    main()
