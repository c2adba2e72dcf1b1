"""Loads models written by `shoal export RUN --to safetensors OUT`."""
import json
import os
import re

import torch
from safetensors import safe_open

from .adaptive_attention import adaptive_attention
from .convnext import convnext
from .gpt2 import gpt2
from .hspmn import hspmn
from .layers import Context, Error, Weights
from .mixer import mixer
from .sparse_mlp import sparse_mlp
from .tasks import TASKS
from .vit import vit

BACKBONES = {"adaptive_attention": adaptive_attention, "convnext": convnext, "gpt2": gpt2, "hspmn": hspmn,
             "mixer": mixer, "sparse_mlp": sparse_mlp, "vit": vit,
             "flat_pixels": lambda w, image_BCHW, options, context: image_BCHW.flatten(1)}  # a baseline
# Used only in training: noise of routers and gates, the momentum encoder.
OF_TRAINING = re.compile(r"noise_weight|noisy_threshold|num_updates|log_temperature|^key_(backbone|projector)\.")


class Model(Weights):
    """An exported model: the file's tensors as parameters, under the same names. They have no gradients unless
    `requires_grad_()` is called. `recipe`, `samples`: the contents of recipe.json."""

    def __init__(self, tensors, recipe, samples):
        super().__init__(tensors)
        self.recipe, self.samples = recipe, samples
        self.backbone_name, self.task_name = recipe["model"]["backbone"], recipe["task"]["name"]
        for name in {self.backbone_name, self.task_name} - {*BACKBONES, *TASKS}:
            raise Error(f"'{name}' is not covered by this package")
        if recipe["model"].get("depth") == 0 and "blocks" not in self.backbone:
            self.backbone.add_module("blocks", Weights({}))

    def features(self, x, lengths=None, kind="mean"):
        """Features of images [B, channels, H, W] or vocabulary IDs [B, S]: for each sample, the "mean" of its tokens
        (or its class token), the "last" token, or all "tokens". `lengths` [B]: number of tokens before padding."""
        context = Context(kind, self.recipe["train"]["group"], self.recipe["run"]["seed"], self.samples["sequence"],
                          None if x.is_floating_point() else x)
        if lengths is not None:
            context.is_token_BS = torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(1)
        return BACKBONES[self.backbone_name](getattr(self, "backbone", None), x, self.recipe["model"], context)

    def forward(self, x, lengths=None):
        """Outputs of the task, see tasks.py; `x` and `lengths` as in `features`."""
        return TASKS[self.task_name](self, x, lengths)


def load(path):
    """Returns the exported model in eval mode, in float64 if its weights are float64, otherwise in float32. `path`:
    the file, or its folder, which also contains recipe.json. Raises Error for models that are not supported."""
    path = os.path.join(path, "model.safetensors") if os.path.isdir(path) else path
    beside = os.path.join(os.path.dirname(path), "recipe.json")
    for name in (path, beside):
        if not os.path.exists(name):
            raise Error(f"'{name}' does not exist; `shoal export RUN --to safetensors OUT` writes it")
    with open(beside, encoding="utf-8") as text, safe_open(path, "pt") as file:
        described, tensors = json.load(text), {name: file.get_tensor(name) for name in file.keys()}
    tensors = {name: own.float() if own.itemsize == 2 else own for name, own in tensors.items()}
    model = Model(tensors, described["recipe"], described["samples"]).eval()
    # A blank sample reads every tensor of the recipe's model.
    image, dtype = model.samples["image"], next(model.parameters()).dtype
    model(torch.zeros(1, *image, dtype=dtype) if image else torch.zeros(1, 1, dtype=torch.int64))
    unread = [f"{part.name}.{name}" for part in model.modules() for name in part._parameters if name not in part.read]
    unread = [name for name in unread if not OF_TRAINING.search(name)]
    if unread:
        raise Error(f"'{path}': {len(unread)} tensors are not covered by this package, the first is {unread[0]}")
    return model
