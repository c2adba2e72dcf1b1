"""The preprocessing of images in an evaluation: resize, crop, normalize."""
import torch

from .layers import Error, number

BITS = 22  # weights of the filter are multiples of 2^-22


def bilinear(size, resized, begin, wanted):
    """Pillow's bilinear filter from `size` pixels to `resized` as a matrix [wanted, size] of integers, for the
    outputs from `begin` on: a triangle, widened to the size of an output pixel when downscaling."""
    scale = size / resized
    support = max(scale, 1.0)
    matrix = torch.zeros(wanted, size, dtype=torch.float64)
    for row in range(wanted):
        centre, total = (begin + row + 0.5) * scale, 0.0
        first, end = max(0, int(centre - support + 0.5)), min(size, int(centre + support + 0.5))
        share = [max(0.0, 1.0 - abs((x - centre + 0.5) * (1.0 / support))) for x in range(first, end)]
        for value in share:  # sum() rounds otherwise from Python 3.12 on
            total += value
        matrix[row, first:end] = torch.tensor([int(value / total * 2**BITS + 0.5) for value in share])
    return matrix


def cropped(pixel_CHW, size, resize):
    """Resizes the shorter side to `resize` pixels, and crops the square in the center."""
    sides = pixel_CHW.shape[1:]
    target = number(resize, max(min(sides), size))
    resized = [target * side // min(sides) for side in sides]
    down, across = (bilinear(side, to, round((to - size) / 2), size) for side, to in zip(sides, resized))
    for matrix in (across, down):  # weighted sums of bytes, rounded to bytes; float64 holds them exactly
        pixel_CHW = ((matrix @ pixel_CHW.mT + 2 ** (BITS - 1)) / 2**BITS).floor().clamp(0, 255)
    return pixel_CHW


def transform(model):
    """Returns a function that converts a photograph, uint8 [H, W, channels], to the model's input [channels, height,
    width], as evaluations and `shoal predict` do. Raises Error for a model without images, and for random crops."""
    samples, crop = model.samples, model.recipe["data"].get("valid", {}).get("crop")
    if not samples["image"]:
        raise Error("the model reads no images")
    if crop and crop["name"] != "center":
        raise Error(f"data.valid.crop '{crop['name']}' is not covered by this package, which has center")
    channels, height, width = samples["image"]
    if model.recipe["data"]["source"] == "cifar" and number(crop["resize"], 32) == height == 32:
        crop = None  # its images are used as they are
    mean, std = (torch.tensor(samples[name], dtype=torch.float64).view(-1, 1, 1) for name in ("mean", "std"))

    def apply(image_HWC):
        if image_HWC.dtype != torch.uint8 or image_HWC.dim() != 3 or image_HWC.shape[2] != channels:
            raise Error(f"expected uint8 [H, W, {channels}], got {image_HWC.dtype} {list(image_HWC.shape)}")
        pixel_CHW = image_HWC.permute(2, 0, 1).double()
        if crop or list(pixel_CHW.shape[1:]) != [height, width]:  # as in `shoal predict`, for sources without a crop
            pixel_CHW = cropped(pixel_CHW, height, crop["resize"] if crop else height)
        return ((pixel_CHW / 255 - mean) / std).to(next(model.parameters()))

    return apply
