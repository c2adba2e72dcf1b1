"""What a user of the wheel reads in Python: an export computes what `shoal predict` prints, and a run's metrics are
those that its training printed.

Usage: read_export.py RUN EXPORT LOG      RUN: a run's folder; EXPORT: its safetensors file; LOG: its training's output
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib

import shoal
import torch

CLASSES = 10


def drawn(i, side):
    """A disc on a gradient of colours, uint8 [side, side, 3]."""
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    image_HWC = torch.stack([7 * x, 7 * y, torch.full_like(x, 20 * i)], 2)
    is_disc_HW1 = ((x - 10 - i) ** 2 + (y - 16) ** 2 < (4 + i) ** 2).unsqueeze(2)
    return torch.where(is_disc_HW1, 255 - image_HWC, image_HWC).to(torch.uint8)


def png(image_HWC):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    height, width, _ = image_HWC.shape
    rows = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in image_HWC)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def predicted(run, images):
    """Log-probabilities of images by `shoal predict`, [images, classes]."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{i}.png") for i in range(len(images))]
        for path, image in zip(paths, images):
            with open(path, "wb") as file:
                file.write(png(image))
        lines = subprocess.run(["shoal", "predict", run, *paths, "--top-k", str(CLASSES), "--json"],
                               check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    tops = [{entry["class"]: entry["probability"] for entry in json.loads(line)["top"]} for line in lines]
    return torch.tensor([[top[label] for label in range(CLASSES)] for top in tops], dtype=torch.float64).log()


def check_logits(run, export):
    """Probabilities tell logits but for what softmax takes away, which is the same for all classes."""
    model = shoal.load(export)
    transform = shoal.transform(model)
    # Some have another size than the model reads.
    images = [drawn(i, 32 if i < 6 else 40) for i in range(8)]
    wanted = predicted(run, images)
    with torch.no_grad():
        logits = model(torch.stack([transform(image) for image in images]))
    assert logits.dtype == torch.float32 and logits.shape == wanted.shape == (len(images), CLASSES), logits
    difference = (logits.double().log_softmax(1) - wanted).abs().max().item() / logits.abs().max().item()
    print(f"logits: at most {difference:.1e} of the largest one apart from those of `shoal predict`")
    assert difference <= 1e-5, (logits, wanted)
    assert (wanted[0] - wanted[1:]).abs().amax(1).min() > 1e-3, f"all images alike: {wanted}"


def check_metrics(run, log):
    with open(log, encoding="utf-8") as lines:
        last = [line for line in lines if "  evaluation: " in line][-1]
    (metrics,) = shoal.runs(run).values()
    top1 = metrics["evaluate"]["top1"][-1]
    assert f"top-1 {100 * top1:.2f}%" in last, f"top-1 {top1} in Python, printed: {last}"
    assert top1 >= 0.95, f"top-1 {top1}"
    print(last.strip())


if __name__ == "__main__":
    check_metrics(sys.argv[1], sys.argv[3])
    check_logits(sys.argv[1], sys.argv[2])
