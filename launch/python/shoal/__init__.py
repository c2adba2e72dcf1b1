"""Reads models and runs of Shoal, in plain PyTorch that is written to be read, one file a backbone.

    model = shoal.load("out/model.safetensors")      # what `shoal export RUN --to safetensors out` wrote
    image = shoal.transform(model)(photograph)       # uint8 [H, W, 3] -> [3, height, width]
    logits = model(image.unsqueeze(0))
    losses = shoal.runs("runs")["quickstart"]["train"]["loss"]

Models compute what an evaluation computes, on one device: for reading, checking and trying, not for speed."""
from .layers import Error
from .load import load
from .runs import runs
from .transform import transform
