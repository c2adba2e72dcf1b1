#!/usr/bin/env python3
"""The operations of image transforms by Pillow, as torchvision and timm use it. Needs Pillow (code 69
without), no PyTorch.

Usage: pillow_operations.py --program P [--images N] [--seed S]
           compares N random images for each operation with tests/support/image_operations_program,
           byte by byte; any difference is printed and ends this with code 1
       pillow_operations.py --table
           prints the expected bytes of tests/runtime/data/transforms/pixel_operation_test.cpp
       pillow_operations.py
           the peer of image_transform_bench
"""
import argparse
import json
import random
import struct
import subprocess
import sys
import time

try:
    from PIL import Image, ImageEnhance, ImageFilter, ImageOps, __version__
except ModuleNotFoundError as error:
    if error.name != "PIL":
        raise
    sys.exit(69)

FILTERS = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR,
           "bicubic": Image.Resampling.BICUBIC}
FILL = (128, 128, 128)


def hue(image, turn):
    """torchvision's adjust_hue."""
    h, s, v = image.convert("HSV").split()
    return Image.merge("HSV", (h.point(lambda byte: (byte + int(turn * 255)) % 256), s, v)).convert("RGB")


def solarise_add(image, amount):
    """timm's solarize_add."""
    return image.point([min(255, i + int(amount)) if i < 128 else i for i in range(256)] * 3)


def affine(image, matrix, interpolation):
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resample=FILTERS[interpolation],
                           fillcolor=FILL)


OPERATIONS = {
    "auto_contrast": lambda image, a, i: ImageOps.autocontrast(image),
    "equalise": lambda image, a, i: ImageOps.equalize(image),
    "invert": lambda image, a, i: ImageOps.invert(image),
    "grey": lambda image, a, i: image.convert("L").convert("RGB"),
    "rotate": lambda image, a, i: image.rotate(a, resample=FILTERS[i], fillcolor=FILL),
    "posterise": lambda image, a, i: ImageOps.posterize(image, int(a)),
    "solarise": lambda image, a, i: ImageOps.solarize(image, int(a)),
    "solarise_add": lambda image, a, i: solarise_add(image, a),
    "colour": lambda image, a, i: ImageEnhance.Color(image).enhance(a),
    "contrast": lambda image, a, i: ImageEnhance.Contrast(image).enhance(a),
    "brightness": lambda image, a, i: ImageEnhance.Brightness(image).enhance(a),
    "sharpness": lambda image, a, i: ImageEnhance.Sharpness(image).enhance(a),
    "hue": lambda image, a, i: hue(image, a),
    "blur": lambda image, a, i: image.filter(ImageFilter.GaussianBlur(a)),
    "shear_x": lambda image, a, i: affine(image, (1, a, 0, 0, 1, 0), i),
    "shear_y": lambda image, a, i: affine(image, (1, 0, 0, a, 1, 0), i),
    "translate_x": lambda image, a, i: affine(image, (1, 0, a * image.width, 0, 1, 0), i),
    "translate_y": lambda image, a, i: affine(image, (1, 0, 0, 0, 1, a * image.height), i),
}
WARPS = {"rotate", "shear_x", "shear_y", "translate_x", "translate_y"}


def planes(image):
    """Its bytes, channel by channel."""
    return b"".join(band.tobytes() for band in image.split())


def image_of(data, height, width):
    size = height * width
    bands = [Image.frombytes("L", (width, height), data[c * size:(c + 1) * size]) for c in range(3)]
    return Image.merge("RGB", bands)


def random_argument(name):
    number = random.uniform
    arguments = {"rotate": number(-200, 200), "posterise": random.randint(1, 8),
                 "solarise": random.randint(0, 256), "solarise_add": random.randint(0, 255),
                 "hue": number(-0.5, 0.5), "blur": random.choice([number(0.01, 2), number(0.01, 15)])}
    if name in arguments:
        return arguments[name]
    return number(-0.7, 0.7) if name in WARPS else random.choice([0.0, 1.0, number(0, 1), number(1, 3)])


def random_image():
    """Noise, a narrow range, a ramp with noise, or one colour; also of one pixel, row or column."""
    side = random.randint
    height, width = random.choice([(1, 1), (1, side(2, 40)), (side(2, 40), 1), (2, 2), (3, 3), (64, 61),
                                   (side(1, 70), side(1, 70)), (side(1, 70), side(1, 70))])
    low = side(0, 200)
    high = low + side(0, 55)
    steps = [side(0, 9) for _ in range(6)]
    make = random.choice([lambda c, y, x: side(0, 255),
                          lambda c, y, x: side(low, high),
                          lambda c, y, x: (steps[c] * y + steps[c + 3] * x + side(0, 3)) % 256,
                          lambda c, y, x: (low + 17 * steps[c]) % 256])
    return bytes(make(c, y, x) for c in range(3) for y in range(height) for x in range(width)), height, width


class Ours:
    """The C++ program."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, name, argument, interpolation, data, height, width):
        bits = struct.pack(">d", argument).hex()
        self.process.stdin.write(f"{name} {bits} {interpolation} {height} {width}\n".encode() + data)
        self.process.stdin.flush()
        return self.process.stdout.read(len(data))


def compare(ours, case, data, height, width):
    """Whether both make the same of an image."""
    name, argument, interpolation = case
    wanted = planes(OPERATIONS[name](image_of(data, height, width), argument, interpolation))
    found = ours(name, argument, interpolation, data, height, width)
    if found == wanted:
        return True
    unequal = sum(a != b for a, b in zip(found, wanted))
    print(f"{name} of {argument!r}, {interpolation}: {unequal} of {len(data)} bytes differ of an image "
          f"of {height} x {width}")
    return False


def compare_all(program, num_images):
    ours, num_unequal = Ours(program), 0
    for name in OPERATIONS:
        for _ in range(num_images):
            interpolation = random.choice(list(FILTERS)) if name in WARPS else "nearest"
            num_unequal += not compare(ours, (name, random_argument(name), interpolation), *random_image())
    # Every colour there is.
    ramp = bytes(range(256))
    cube = b"".join(bytes([i]) * 65536 for i in range(256)) + \
        b"".join(bytes([i]) * 256 for i in range(256)) * 256 + ramp * 65536
    for case in [("grey", 0, "nearest"), ("colour", 1.37, "nearest"), ("hue", 0.1, "nearest"),
                 ("hue", -0.07, "nearest")]:
        num_unequal += not compare(ours, case, cube, 4096, 4096)
    print(f"Pillow {__version__}: {len(OPERATIONS)} operations, {num_images} images each, every colour "
          f"of three; {num_unequal} images differ")
    return num_unequal


def print_table():
    """Of the image that the test makes, 4 x 4."""
    cases = [("auto_contrast", 0, ""), ("equalise", 0, ""), ("invert", 0, ""), ("grey", 0, ""),
             ("posterise", 3, ""), ("solarise", 100, ""), ("solarise_add", 60, ""), ("colour", 0.4, ""),
             ("colour", 1.7, ""), ("contrast", 0.3, ""), ("contrast", 1.9, ""), ("brightness", 0.7, ""),
             ("brightness", 1.6, ""), ("sharpness", 0.1, ""), ("sharpness", 1.9, ""), ("hue", 0.1, ""),
             ("hue", -0.3, ""), ("blur", 0.3, ""), ("blur", 1.7, ""), ("blur", 6.5, "")]
    cases += [("rotate", 30, i) for i in FILTERS] + [("rotate", -18, "bilinear")]
    cases += [("shear_x", 0.3, i) for i in FILTERS] + [("shear_y", -0.2, "bilinear")]
    cases += [("translate_x", 0.3, i) for i in FILTERS] + [("translate_y", -0.4, "bilinear")]
    data = bytes((37 * y + 11 * x * x + 5 * y * x + 70 * c + 13 * c * x) % 256
                 for c in range(3) for y in range(4) for x in range(4))
    for name, argument, interpolation in cases:
        interpolation = interpolation or "nearest"
        made = planes(OPERATIONS[name](image_of(data, 4, 4), argument, interpolation))
        constant = "".join(word.capitalize() for word in name.split("_"))
        print(f"{{PixelOperation::k{constant}, {argument}, Interpolation::k{interpolation.capitalize()}, "
              f"{{{', '.join(map(str, made))}}}}},")


def serve():
    """Takes an image first, then answers operations with the microseconds of a call."""
    print("ready", flush=True)
    question = json.loads(sys.stdin.readline())
    with open(question["image"], "rb") as file:
        image = image_of(file.read(), question["height"], question["width"])
    print(json.dumps(__version__), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        operation, calls = OPERATIONS[question["operation"]], question["calls"]
        start = time.perf_counter()
        for _ in range(calls):
            operation(image, question["argument"], question["interpolation"])
        print(json.dumps(1e6 * (time.perf_counter() - start) / calls), flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--program")
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    if arguments.table:
        return print_table()
    if arguments.program is None:
        return serve()
    return 1 if compare_all(arguments.program, arguments.images) else 0


if __name__ == "__main__":
    sys.exit(main())
