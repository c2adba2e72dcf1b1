#!/usr/bin/env python3
"""The peer of photograph_bench: JPEG files decoded and made into views by torchvision, in two ways,
`pillow`, on images of Pillow, and `tensor`, on bytes in tensors. Needs torchvision (code 69 without)."""
import random
import sys
import time

import serve
import torch

try:
    import PIL
    import torchvision
    from PIL import Image, ImageFilter, ImageOps
    from torchvision import io, transforms
    from torchvision.transforms import v2
except ModuleNotFoundError as error:
    if error.name not in ("torchvision", "PIL"):
        raise
    sys.exit(69)

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CROP = {"size": 224, "scale": (0.08, 1.0)}
JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.2, "hue": 0.1}
# The probabilities of blur and solarise, view by view.
VIEWS = [(1.0, 0.0), (0.1, 0.2)]
SIGMA = (0.1, 2.0)
# Taps of a blur on tensors, as in DINO; Pillow's has no such number.
TAPS = 9


def blurred(image):
    """MoCo v3's blur."""
    return image.filter(ImageFilter.GaussianBlur(radius=random.uniform(*SIGMA)))


def pillow_view(blur, solarise):
    return transforms.Compose([
        transforms.RandomResizedCrop(**CROP),
        transforms.RandomApply([transforms.ColorJitter(**JITTER)], p=0.8),
        transforms.RandomGrayscale(p=0.2),
        transforms.RandomApply([blurred], p=blur),
        transforms.RandomApply([ImageOps.solarize], p=solarise),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD)])


def tensor_view(blur, solarise):
    return v2.Compose([
        v2.RandomResizedCrop(**CROP, antialias=True),
        v2.RandomApply([v2.ColorJitter(**JITTER)], p=0.8),
        v2.RandomGrayscale(p=0.2),
        v2.RandomApply([v2.GaussianBlur(TAPS, SIGMA)], p=blur),
        v2.RandomSolarize(128, p=solarise),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD)])


class Pillow:
    views = [pillow_view(*view) for view in VIEWS]
    evaluation = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224),
                                     transforms.ToTensor(), transforms.Normalize(MEAN, STD)])

    @staticmethod
    def decode(path):
        return Image.open(path).convert("RGB")


class Tensor:
    views = [tensor_view(*view) for view in VIEWS]
    evaluation = v2.Compose([v2.Resize(256, antialias=True), v2.CenterCrop(224),
                             v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])

    @staticmethod
    def decode(path):
        return io.decode_jpeg(io.read_file(path), mode=io.ImageReadMode.RGB)


WAYS = {"pillow": Pillow, "tensor": Tensor}
WORK = {"decode": lambda way, path: way.decode(path),
        "evaluation": lambda way, path: way.evaluation(way.decode(path)),
        "views": lambda way, path: [view(image) for image in [way.decode(path)] for view in way.views]}


class Photographs:
    """Takes a list of paths first. Then answers {way, work} with the microseconds of an image, the mean
    over all, and {way, work, image, file} with the shape of one result, whose values go into the file."""

    def __init__(self):
        self.paths = []

    def __call__(self, question):
        if "paths" in question:
            self.paths = question["paths"]
            return {"torchvision": torchvision.__version__, "pillow": PIL.__version__}
        way, work = WAYS[question["way"]], WORK[question["work"]]
        if "file" in question:
            return self.write(work(way, self.paths[question["image"]]), question["file"])
        start = time.perf_counter()
        for path in self.paths:
            work(way, path)
        return 1e6 * (time.perf_counter() - start) / len(self.paths)

    @staticmethod
    def write(image, file):
        if isinstance(image, Image.Image):
            image = v2.functional.pil_to_tensor(image)
        with open(file, "wb") as stream:
            stream.write(image.contiguous().numpy().tobytes())
        return list(image.shape)


if __name__ == "__main__":
    serve.serve(Photographs())
