#!/usr/bin/env python3
"""A training step of MoCo v3 in PyTorch eager: the peer of train_step_bench for such recipes, which
starts it.

An object describes the model and names a file with its weights, in the order of the modules, and a
batch of two views; the answer is the numbers of parameters. `loss` answers the loss of the batch. A
number is a number of training steps; the answer is the microseconds of one. Encoders take each view by
itself, as in the published code; both at once took up to 4 % longer on CPUs.
"""
import copy

from serve import read_tensors, serve, torch
import torch.nn.functional as F
from torch import nn

from train_step import Encoder, Training


def head(*widths):
    """Linear layers without bias, each with a batch norm, the last of which is not affine."""
    layers = []
    for i, (width, out) in enumerate(zip(widths, widths[1:])):
        is_last = i + 2 == len(widths)
        layers += [nn.Linear(width, out, bias=False), nn.BatchNorm1d(out, affine=not is_last)]
        layers += [] if is_last else [nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class MocoV3(nn.Module):
    def __init__(self, o):
        super().__init__()
        width, hidden, out = o["width"], o["hidden"], o["out"]
        self.encoder = Encoder(o)
        self.projector, self.predictor = head(width, hidden, hidden, out), head(out, hidden, out)
        tensors = read_tensors(o["file"])
        self.views = [view.contiguous().to(o["device"]) for view in tensors.pop("image").unbind(1)]
        with torch.no_grad():
            for own, given in zip(self.parameters(), tensors.values(), strict=True):
                own.copy_(given.view_as(own))
        self.key_encoder = copy.deepcopy(self.encoder).eval()  # its routers: without noise and losses
        self.key_projector = copy.deepcopy(self.projector)
        self.queries = [*self.encoder.parameters(), *self.projector.parameters()]
        self.keys = [*self.key_encoder.parameters(), *self.key_projector.parameters()]
        for key in self.keys:
            key.requires_grad_(False)
        self.temperature, self.momentum = o["temperature"], o["momentum"]

    @torch.no_grad()
    def make_keys(self):
        torch._foreach_lerp_(self.keys, self.queries, 1 - self.momentum)
        return [F.normalize(self.key_projector(self.key_encoder(view)[0])) for view in self.views]

    def forward(self):
        keys, loss = self.make_keys(), 0.0
        own = torch.arange(len(self.views[0]), device=self.views[0].device)
        for view, key in zip(self.views, reversed(keys)):
            feature, extra = self.encoder(view)
            query = F.normalize(self.predictor(self.projector(feature)))
            entropy = F.cross_entropy(query @ key.t() / self.temperature, own)
            loss = loss + 2 * self.temperature * entropy + extra / 2
        return loss


def main():
    training = None

    def answer(question):
        nonlocal training
        if question == "loss":
            with torch.no_grad():
                return training.model().item()
        if not isinstance(question, dict):
            return training.time_us(question)
        torch.manual_seed(1)
        training = Training(MocoV3(question), question)
        return training.num_parameters()

    serve(answer)


if __name__ == "__main__":
    main()
