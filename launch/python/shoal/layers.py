"""The tensors of a file, and the layers shared by all models.

Capitals in names and comments are sizes: B samples, S or N tokens of a sample, T of all samples, C or D their
width, N heads of width H, U units (experts or memory units), R rows."""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


class Error(Exception):
    """Raised for a file that this package cannot read, and for input that does not fit the model."""


class MissingTensor(Error, AttributeError):
    """Raised if the file lacks a tensor of the recipe's model."""


class Weights(nn.Module):
    """Tensors of a file, accessed by name: w.norm.weight, w.blocks[0], "bias" in w.norm, for block in w.blocks."""

    def __init__(self, tensors, name=""):
        super().__init__()
        self.name, self.read, parts = name, set(), {}
        for path, tensor in tensors.items():
            first, _, rest = path.partition(".")
            if rest:
                parts.setdefault(first, {})[rest] = tensor
            else:
                self.register_parameter(first, nn.Parameter(tensor, requires_grad=False))
        for first, part in parts.items():
            self.add_module(first, Weights(part, f"{name}.{first}".strip(".")))

    def __contains__(self, name):
        return name in self._parameters or name in self._modules

    def __getitem__(self, name):
        return getattr(self, str(name))

    def __iter__(self):
        return iter([self[index] for index in range(len(self._modules))])

    def __getattr__(self, name):
        if name in self.__dict__.get("_parameters", {}):
            self.read.add(name)
        elif name not in self.__dict__.get("_modules", {}):
            raise MissingTensor(f"the file has no tensor '{self.__dict__.get('name', '')}.{name}'")
        return super().__getattr__(name)


@dataclass
class Context:
    """What layers receive in addition to activations and their options."""
    features: str  # "mean" or "last" of a sample's tokens, or all "tokens"
    group: int  # samples whose tokens compete: train.group of the recipe
    seed: int  # run.seed of the recipe
    sequence: int  # maximum number of tokens per sample in the training data
    token_BS: torch.Tensor = None  # vocabulary IDs, for models of tokens
    is_token_BS: torch.Tensor = None  # False: padding; None: no padding


def number(value, default):
    """A number of the recipe, or the default if it is auto, none or null."""
    return value if isinstance(value, (int, float)) else default


def linear(w, x):
    """x Wᵀ + b, W [out, in]. Masked weights are zeros. A low-rank product may be added,
    (1 - g) W x + g U V x with g = sigmoid(w x + b): Pixelated Butterfly (Chen et al. 2022), section 3."""
    y = F.linear(x, w.weight)
    if "low_rank" in w:
        gate = F.linear(x, w.low_rank.gate_weight.unsqueeze(0), w.low_rank.gate_bias).sigmoid()
        y = y + gate * (F.linear(F.linear(x, w.low_rank.v), w.low_rank.u) - y)
    return y + w.bias if "bias" in w else y


def layer_norm(w, x, eps=1e-6):
    """(x - mean) / sqrt(variance + eps) * weight + bias."""
    return F.layer_norm(x, x.shape[-1:], w.weight, w.bias if "bias" in w else None, eps)


def rms_norm(w, x, eps):
    """x / sqrt(mean of x² + eps) * weight. Zhang and Sennrich 2019."""
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * w.weight


ACTIVATIONS = {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu,
               "silu": F.silu, "squared_relu": lambda x: F.relu(x).square()}


def mlp(w, x, gelu):
    """fc2(gelu(fc1(x))); with a gate, SwiGLU: fc2(silu(gate(x)) * fc1(x)). gelu: "erf" is exact."""
    if "gate" in w:
        return linear(w.fc2, F.silu(linear(w.gate, x)) * linear(w.fc1, x))
    return linear(w.fc2, ACTIVATIONS["gelu" if gelu == "erf" else "gelu_tanh"](linear(w.fc1, x)))


def patch_embed(w, image_BCHW, patch):
    """A patch x patch convolution with stride patch: [B, S, C], patches row by row."""
    return linear(w, F.unfold(image_BCHW, patch, stride=patch).mT)


def rotate(x_BNSH, rotation):
    """RoPE: rotates the pairs of elements (i, i + H / 2) of each head by the cosines and sines in `rotation`."""
    (cos, sin), (first, second) = rotation, x_BNSH.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def attend(query, key, value, heads, rotation=None, **options):
    """softmax(q kᵀ / sqrt(H)) v of N heads, [B, S, N H]. Query head n uses key and value head n M / N of M."""
    width = query.shape[-1] // heads
    query, key, value = (part.unflatten(-1, (-1, width)).transpose(1, 2) for part in (query, key, value))
    if rotation is not None:
        query, key = rotate(query, rotation), rotate(key, rotation)
    key, value = (part.repeat_interleave(heads // part.shape[1], 1) for part in (key, value))
    return F.scaled_dot_product_attention(query, key, value, **options).transpose(1, 2).flatten(2)


def pool(x_BSD, context):
    """A sample's features: the mean of its tokens, the last token, or all tokens."""
    mask_BS = context.is_token_BS
    if context.features == "tokens":
        return x_BSD
    if context.features == "last":
        return x_BSD[:, -1] if mask_BS is None else x_BSD[torch.arange(len(x_BSD)), mask_BS.sum(1) - 1]
    if mask_BS is None:
        return x_BSD.mean(1)
    return x_BSD.masked_fill(~mask_BS.unsqueeze(2), 0).sum(1) / mask_BS.sum(1, keepdim=True)
