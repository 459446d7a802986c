#!/usr/bin/env python3
"""tensorboard_events.py TESSERA MODEL TEXT FOLDER: TensorBoard reads the events of `tessera train --tensorboard` after a resume:
every step once, scalars equal to --metrics. Needs `pip install tensorboard`."""
import json
import math
import subprocess
import sys

from tensorboard.backend.event_processing import event_accumulator
from tensorboard.util import tensor_util

TESSERA, MODEL, TEXT, FOLDER = sys.argv[1:]
COMMON = [TESSERA, "train", MODEL, "--data", TEXT, "--batch", "4", "--seq", "16", "--eval-fraction", "0.05", "--eval-batches", "2",
          "--json", "--out", f"{FOLDER}/events.tsr", "--tensorboard", f"{FOLDER}/events", "--metrics", f"{FOLDER}/events.jsonl"]


def train(*options):
    return json.loads(subprocess.run([*COMMON, *options], check=True, capture_output=True, text=True).stdout)


# The first run stops at step 9, its last checkpoint is at step 8: the resumed run computes step 9 again.
first = train("--steps", "9", "--checkpoint-every", "8")
second = train("--steps", "12", "--resume", f"{FOLDER}/events.tsr")
events = event_accumulator.EventAccumulator(f"{FOLDER}/events", size_guidance={"scalars": 0, "tensors": 0})
events.Reload()


def scalar(tag):
    if tag in events.Tags()["scalars"]:
        return [(event.step, event.value) for event in events.Scalars(tag)]
    return [(event.step, float(tensor_util.make_ndarray(event.tensor_proto))) for event in events.Tensors(tag)]


steps = [json.loads(line) for line in open(f"{FOLDER}/events.jsonl", encoding="utf-8")]
steps = [line for line in steps if line["kind"] == "step"]
for tag, key in [("train/loss", "loss"), ("train/lr", "lr"), ("train/grad_norm", "grad_norm"), ("train/seconds", "seconds"),
                 ("train/tokens_per_second", "tokens_per_second")]:
    found = scalar(tag)
    assert [step for step, _ in found] == [line["step"] for line in steps], (tag, found)
    # Events have f32.
    assert all(math.isclose(value, line[key], rel_tol=1e-6) for (_, value), line in zip(found, steps)), tag
assert scalar("eval/loss")[-1][0] == 12 and math.isclose(scalar("eval/loss")[-1][1], second["eval_loss"], rel_tol=1e-6)
texts = [tensor_util.make_ndarray(event.tensor_proto)[0].decode() for event in events.Tensors("run/text_summary" if "run/text_summary" in events.Tags()["tensors"] else "run")]
assert any("plan: " in text and "batch: 4" in text for text in texts), texts
print(f"ok: TensorBoard reads {len(steps)} steps once each, {len(scalar('eval/loss'))} evaluations and {len(texts)} texts")
