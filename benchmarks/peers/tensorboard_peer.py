#!/usr/bin/env python3
"""Compares a run's tb/ as the package tensorboard reads it with what the run logged beside it.

A small run is stopped, and resumed from an older checkpoint, so that it writes some steps twice:
every number of metrics.jsonl, and no other, is to be there once; of experts.jsonl the loads as
histograms; and a picture for each evaluation.

Usage: tensorboard_peer.py SHOAL SCRATCH
"""
import json
import math
import os
import shutil
import struct
import subprocess
import sys
from collections import defaultdict

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

RECIPE = os.path.join(os.path.dirname(__file__), "..", "..", "configs", "quickstart.yaml")
PNG = b"\x89PNG\r\n\x1a\n"


def train(shoal, code, *overrides):
    command = [shoal, "train", RECIPE, "run.name=run", "run.root=.", "run.device=cpu",
               "parallel.expert_ranks=1", "train.duration=12step", "train.batch=16",
               "data.valid.samples=32", "train.log_every=2step", "evaluate.every=4step",
               "checkpoint.every=4step", "checkpoint.keep_last=9", *overrides]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr


def lines_of(name):
    with open(os.path.join("run", name), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def as_float32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def scalars_of(records):
    """{tag: [(step, value)]} as they are to be read."""
    wanted = defaultdict(list)
    for record in records:
        group = "evaluate/" if record.get("event") == "eval" else "train/"
        for key, value in record.items():
            if key != "step" and isinstance(value, (int, float)):
                wanted[group + key].append((record["step"], as_float32(value)))
    return wanted


def check_scalars(board):
    wanted = scalars_of(lines_of("metrics.jsonl"))
    numbers = ("load_entropy", "dead_experts", "dropped")
    for record in lines_of("experts.jsonl"):
        group = f"experts/{record['layer']}/"
        for key in numbers:
            wanted[group + key].append((record["step"], as_float32(record[key])))
        ratio = record["load_max"] / record["load_mean"]
        wanted[group + "load_max_over_mean"].append((record["step"], as_float32(ratio)))
    assert set(board.Tags()["scalars"]) == set(wanted), set(board.Tags()["scalars"]) ^ set(wanted)
    count = 0
    for tag, values in wanted.items():
        read = [(event.step, event.value) for event in board.Scalars(tag)]
        assert read == values, f"{tag}: {read}, wanted {values}"
        count += len(read)
    return count


def check_histograms(board):
    records = lines_of("experts.jsonl")
    layers = {record["layer"] for record in records}
    assert set(board.Tags()["histograms"]) == {f"experts/{layer}/load" for layer in layers}
    for layer in layers:
        read = board.Histograms(f"experts/{layer}/load")
        wanted = [record for record in records if record["layer"] == layer]
        assert [event.step for event in read] == [record["step"] for record in wanted]
        for event, record in zip(read, wanted):
            loads = [load / record["load_mean"] for load in record["load"]]
            histogram = event.histogram_value
            assert histogram.num == len(loads) == sum(histogram.bucket)
            assert (histogram.min, histogram.max) == (min(loads), max(loads))
            assert math.isclose(histogram.sum, sum(loads))


def check_pictures(board):
    evaluated = [record["step"] for record in lines_of("metrics.jsonl") if "event" in record]
    pictures = board.Images("experts/load")
    assert [picture.step for picture in pictures] == evaluated, (pictures, evaluated)
    for picture in pictures:
        assert picture.encoded_image_string.startswith(PNG)
        width, height = struct.unpack(">II", picture.encoded_image_string[16:24])
        assert (picture.width, picture.height) == (width, height)


def main():
    shoal, scratch = os.path.abspath(sys.argv[1]), sys.argv[2]
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    os.chdir(scratch)
    train(shoal, 75, "run.stop_after=11step")
    for step in (8, 11):  # steps 5 to 11 are trained again
        shutil.rmtree(f"run/ckpt/step-{step:08}", ignore_errors=True)
    train(shoal, 0, "run.on_existing=resume")
    files = sorted(os.listdir("run/tb"))
    assert len(files) == 2, files
    board = EventAccumulator("run/tb", size_guidance={"scalars": 0, "histograms": 0, "images": 0})
    board.Reload()
    count = check_scalars(board)
    check_histograms(board)
    check_pictures(board)
    train(shoal, 0, "run.name=without", "run.tensorboard=false")
    assert not os.path.exists("without/tb")
    print(f"{count} numbers in {len(board.Tags()['scalars'])} tags are those of metrics.jsonl and "
          "experts.jsonl")


if __name__ == "__main__":
    main()
