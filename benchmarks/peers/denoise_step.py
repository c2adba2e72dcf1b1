#!/usr/bin/env python3
"""Training steps and evaluations of the denoiser in PyTorch eager: the peer of denoise_bench, which
starts it.

An object with a file describes the model; the file has weights, a batch of clean and noisy images,
what the program restores from it, `restored`, and, after one training step on it,
`restored_after_step`. The answer is, by each form of attention, the loss of the batch and how far its
own outputs are from both, as the norm of the difference over the norm. {"form": FORM, "pass": PASS,
"calls": N} answers the microseconds of one of N calls of `step` or `evaluation`; both draw fresh noise.
A step's loss is the mean squared error of clamped images and the weighted balance losses.
"""
import time

from serve import read_tensors, serve, torch
import torch.nn.functional as F
from torch import nn

from denoiser import FORMS, Denoiser, load


def difference(own, other):
    return ((own - other).norm() / other.norm()).item()


class Training:
    def __init__(self, o, form):
        self.options, self.tensors = o, read_tensors(o["file"])
        self.clean = self.tensors["clean"]
        self.model = Denoiser(self.clean.shape[-1], **o["model"], attend=FORMS[form])
        load(self.model, self.tensors)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=o["lr"], betas=tuple(o["betas"]),
                                           eps=o["eps"], weight_decay=o["weight_decay"], fused=True)

    def noisy(self):
        return (self.clean + self.options["sigma"] * torch.randn_like(self.clean)).clamp(0, 1)

    def loss(self, noisy):
        error = F.mse_loss(self.model(noisy).clamp(0, 1), self.clean)
        return error + self.options["balance_weight"] * self.model.balance

    def train(self, noisy):
        loss = self.loss(noisy)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.options["clip_norm"])
        self.optimizer.step()
        return loss

    @torch.no_grad()
    def restore(self, noisy):
        return self.model(noisy)

    def compare(self):
        noisy = self.tensors["noisy"]
        answer = {"difference": difference(self.restore(noisy), self.tensors["restored"])}
        answer["loss"] = self.train(noisy).item()
        answer["difference_after_step"] = difference(self.restore(noisy),
                                                     self.tensors["restored_after_step"])
        return answer

    def time_us(self, name, calls):
        call = {"step": self.train, "evaluation": self.restore}[name]
        start = time.perf_counter()
        for _ in range(calls):
            call(self.noisy())
        return 1e6 * (time.perf_counter() - start) / calls


def main():
    trainings = {}

    def answer(question):
        if "file" not in question:
            return trainings[question["form"]].time_us(question["pass"], question["calls"])
        torch.manual_seed(1)
        for form in FORMS:
            trainings[form] = Training(question, form)
        return {form: training.compare() for form, training in trainings.items()}

    serve(answer)


if __name__ == "__main__":
    main()
