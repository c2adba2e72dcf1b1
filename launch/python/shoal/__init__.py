"""Loads models and metrics of Shoal, in plain PyTorch written to be read: one file per backbone.

    model = shoal.load("out/model.safetensors")      # written by `shoal export RUN --to safetensors out`
    image = shoal.transform(model)(photograph)       # uint8 [H, W, 3] -> [3, height, width]
    logits = model(image.unsqueeze(0))
    losses = shoal.runs("runs")["quickstart"]["train"]["loss"]

Models compute what an evaluation computes, on one device: for reading, checks and experiments, not for speed."""
from .layers import Error
from .load import load
from .runs import runs
from .transform import transform
