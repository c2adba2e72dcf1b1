#!/usr/bin/env python3
"""A MoE layer in Python PyTorch, or with the experts of transformers: the peer of moe_layer_bench,
which starts it.

A line `versions` asks what there is. An object names a file with a layer's tokens, weights, output
and gradients, and a device; the answer lists the forms that compute the same layer. {"compare": FORM}
asks how far a form's numbers are from the file's, by the norm of each tensor; any other line names a
form, and the answer is the microseconds of its forward and backward pass, as the mean of `calls`.

All experts are written out here; those without biases transformers has, too: gated ones
(MixtralExperts) and plain ones (NemotronHExperts).
"""
import math
import time

from serve import serve, synchronise, torch
from torch.nn.functional import gelu, grouped_mm, linear, silu

try:
    import transformers
    from transformers import MixtralConfig, NemotronHConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts
    from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHExperts
except ImportError as error:
    transformers, absent = None, str(error)

DTYPES = {"Float": torch.float32, "BFloat16": torch.bfloat16}


def available_bytes(device):
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    with open("/proc/meminfo", encoding="ascii") as lines:
        kib = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
    return 1024 * int(kib)


class WrittenOut:
    """Experts as one writes them, plain or gated, with biases or without; stacks [E, in, out]."""

    names = ("fc1.weight", "fc1.bias", "gate.weight", "fc2.weight", "fc2.bias")

    def __init__(self, given):
        self.stacks = [given[name].detach().requires_grad_() if name in given else None
                       for name in self.names]
        self.forms = {f"python_{form.__name__}": form
                      for form in (self.eager, self.unbind, self.grouped_mm)}
        self.left_out = {}

    def parameters(self):
        return [stack for stack in self.stacks if stack is not None]

    def grads(self):
        return {name: stack.grad for name, stack in zip(self.names, self.stacks, strict=True)
                if stack is not None}

    @staticmethod
    def mlp(rows, weights, affine):
        w1, b1, gate, w2, b2 = weights
        hidden = affine(rows, w1, b1)
        hidden = gelu(hidden) if gate is None else silu(affine(rows, gate, None)) * hidden
        return affine(hidden, w2, b2)

    def loop(self, x, unit, weight, experts):
        def affine(rows, w, b):
            return rows @ w if b is None else torch.addmm(b, rows, w)

        y = torch.zeros_like(x)
        for e, weights in enumerate(experts):
            token, choice = torch.where(unit == e)
            if token.numel() == 0:
                continue
            rows = self.mlp(x[token], weights, affine) * weight[token, choice, None]
            y.index_add_(0, token, rows.to(x.dtype))
        return y

    def eager(self, x, unit, weight):
        experts = range(self.stacks[0].shape[0])
        return self.loop(x, unit, weight, ([None if stack is None else stack[e]
                                            for stack in self.stacks] for e in experts))

    def unbind(self, x, unit, weight):
        none = [None] * self.stacks[0].shape[0]
        return self.loop(x, unit, weight, zip(*(none if stack is None else stack.unbind(0)
                                                for stack in self.stacks)))

    def grouped_mm(self, x, unit, weight):
        k = unit.shape[1]
        expert, order = unit.flatten().sort(stable=True)
        experts = torch.arange(self.stacks[0].shape[0], device=x.device)
        ends = torch.searchsorted(expert, experts, right=True, out_int32=True)  # no wait for a GPU

        def affine(rows, w, b):
            rows = grouped_mm(rows, w, offs=ends)
            # The gradient of what was indexed adds up in its type: too coarse a one in bfloat16.
            return rows if b is None else rows + b.float()[expert].to(rows.dtype)

        rows = self.mlp(x.index_select(0, order // k), self.stacks, affine)
        rows = (rows * weight.flatten()[order, None]).to(x.dtype)
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
            self.experts = MixtralExperts(self.config).to(up)
            self.up = self.experts.gate_up_proj
            up = torch.cat([given["gate.weight"], up], -1)
        else:
            self.config = NemotronHConfig(hidden_size=width, moe_intermediate_size=hidden,
                                          n_routed_experts=experts, mlp_hidden_act="gelu")
            self.experts = NemotronHExperts(self.config).to(up)
            self.up = self.experts.up_proj
        with torch.no_grad():
            self.up.copy_(up.transpose(1, 2))
            self.experts.down_proj.copy_(given["fc2.weight"].transpose(1, 2))
        self.forms, self.left_out = {}, {}
        for name in ("eager", "grouped_mm", "batched_mm"):
            self.forms[f"transformers_{name}"] = self.form(name)
        # A copy of its expert's weights for each row, and the gradients of those.
        copied = 2 * up.element_size() * rows * sum(t[0].numel() for t in self.parameters())
        if copied > available_bytes(up.device) / 4:
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


def difference(made, given):
    norm = torch.linalg.vector_norm
    return (norm(made - given) / norm(given)).item()


class Layer:
    """Softmax of the router's scores, the k largest as weights, and experts."""

    def __init__(self, path, tensors, k, device, calls):
        sizes = [math.prod(shape) * DTYPES[dtype].itemsize for _, shape, dtype in tensors]
        parts = torch.from_file(path, size=sum(sizes), dtype=torch.uint8).split(sizes)
        self.given = {name.replace("experts.*.", ""):
                      part.clone().view(DTYPES[dtype]).view(shape).to(device)
                      for (name, shape, dtype), part in zip(tensors, parts, strict=True)}
        self.k, self.device, self.calls = k, device, calls
        self.x = self.given["x"].clone().requires_grad_()
        self.router = self.given["router.weight"].t().contiguous().requires_grad_()
        written_out = WrittenOut(self.given)
        self.experts = dict.fromkeys(written_out.forms, written_out)
        self.left_out = {}
        if transformers and "fc1.bias" not in self.given:
            given_to = Transformers(self.given, self.x.shape[0] * k)
            self.experts |= dict.fromkeys(given_to.forms, given_to)
            self.left_out = given_to.left_out

    def forms(self):
        return {"forms": list(self.experts), "left_out": self.left_out}

    def step(self, form):
        """Router and weights are of float32, whatever the experts are of."""
        weight, unit = torch.softmax(linear(self.x.float(), self.router), -1).topk(self.k, -1)
        y = self.experts[form].forms[form](self.x, unit, weight)
        y.backward(self.given["upstream"])
        return y.detach()

    def clear(self, form):
        for tensor in (self.x, self.router, *self.experts[form].parameters()):
            tensor.grad = None

    def compare(self, form):
        made = {"y": self.step(form), "grad x": self.x.grad,
                "grad router.weight": self.router.grad.t()}
        made |= {f"grad {name}": grad for name, grad in self.experts[form].grads().items()}
        self.clear(form)
        return {name: difference(tensor.float(), self.given[name].float())
                for name, tensor in made.items()}

    def time_us(self, form):
        start = time.perf_counter()
        for _ in range(self.calls):
            self.step(form)
            self.clear(form)
        synchronise(self.device)
        return 1e6 * (time.perf_counter() - start) / self.calls


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
        layer = None  # frees the last one's memory
        layer = Layer(**question)
        return layer.forms()

    serve(answer)


if __name__ == "__main__":
    main()
