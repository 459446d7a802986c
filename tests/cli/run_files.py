#!/usr/bin/env python3
"""run_files.py TESSERA MODEL TEXT FOLDER: --metrics, --tensorboard and --report of a run that is killed and resumed, of one
that is interrupted, and of files that may not be written. Events are read by a parser of this file's own."""
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time

TESSERA, MODEL, TEXT, WORK = sys.argv[1:]
COMMON = [TESSERA, "train", MODEL, "--data", TEXT, "--batch", "4", "--seq", "16", "--seed", "3", "--eval-fraction", "0.05",
          "--eval-batches", "2", "--overwrite"]
METRICS, EVENTS, REPORT = (f"{WORK}/{name}" for name in ("run.jsonl", "run_events", "run.html"))
FILES = ["--metrics", METRICS, "--tensorboard", EVENTS, "--report", REPORT]


def crc32c(data):
    """CRC-32C bit by bit, by the polynomial as written: x^32 + ... + 1, reflected."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def message(data):
    """{field: [values]} of a protocol buffer."""
    found, at = {}, 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        elif tag & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif tag & 7 == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        found.setdefault(tag >> 3, []).append(value)
    return found


def scalars(folder):
    """{tag: {step: value}} of all files, as TensorBoard counts them: a start of a session drops later steps."""
    found = {}
    for name in sorted(os.listdir(folder)):
        data, at = open(f"{folder}/{name}", "rb").read(), 0
        while at < len(data):
            (size,), (crc,) = struct.unpack_from("<Q", data, at), struct.unpack_from("<I", data, at + 8)
            assert crc == masked(data[at:at + 8]), f"{name}: checksum of the length at byte {at}"
            body = data[at + 12:at + 12 + size]
            assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked(body), f"{name}: checksum at byte {at}"
            at += 16 + size
            event = message(body)
            if 7 in event:
                found = {tag: {s: v for s, v in values.items() if s < event[2][0]} for tag, values in found.items()}
            for value in (message(v) for s in event.get(5, []) for v in message(s)[1]):
                if 2 in value:
                    found.setdefault(value[1][0].decode(), {})[event[2][0]] = value[2][0]
    return found


def page():
    return json.loads(re.search(r'id="run">(.*?)</script>', open(REPORT, encoding="utf-8").read(), re.S).group(1))


def lines():
    return [json.loads(line) for line in open(METRICS, encoding="utf-8")]


# Killed in the middle, with half a line more, as a kill in the middle of a write leaves it.
LAST = 200
STEPS = ["--checkpoint-every", "10", "--out", f"{WORK}/logged.tsr"]
process = subprocess.Popen([*COMMON, *STEPS, *FILES, "--quiet", "--steps", "100000"], stdout=subprocess.DEVNULL)
deadline = time.time() + 60
while not os.path.isdir(f"{WORK}/logged.tsr.checkpoint") and process.poll() is None and time.time() < deadline:
    time.sleep(0.002)
process.kill()
process.wait()
with open(METRICS, "a", encoding="utf-8") as file:
    file.write('{"kind":"step","st')
run = subprocess.run([*COMMON, *STEPS, *FILES, "--json", "--steps", str(LAST), "--resume", f"{WORK}/logged.tsr"], capture_output=True, text=True, check=True)
result = json.loads(run.stdout)
found = lines()
steps = [line for line in found if line["kind"] == "step"]
assert [line["step"] for line in steps] == list(range(1, LAST + 1)), [line["step"] for line in steps]
assert [line["loss"] for line in steps[-len(result["losses"]):]] == result["losses"]
assert found[0]["kind"] == "header" and found[0]["model"] == MODEL and found[0]["settings"]["batch"] == "4", found[0]
assert found[-1]["kind"] == "end" and found[-1]["outcome"] == "finished"
resumed = next(line["step"] for line in found if line["kind"] == "resume")
assert resumed % 10 == 0 and len(result["losses"]) == LAST - resumed > 0
evaluation = [line for line in found if line["kind"] == "evaluation"][-1]
assert evaluation["eval_loss"] == result["eval_loss"] and evaluation["step"] == LAST
values = scalars(EVENTS)
as_f32 = {line["step"]: struct.unpack("<f", struct.pack("<f", line["loss"]))[0] for line in steps}
assert values["train/loss"] == as_f32, "events and lines have other losses"
assert set(values) == {"train/loss", "train/lr", "train/grad_norm", "train/seconds", "train/tokens_per_second", "eval/loss", "eval/perplexity", "eval/accuracy"}
shown = page()
assert shown["state"] == "finished" and shown["series"]["steps"]["step"] == list(range(1, LAST + 1))
assert shown["devices"] and all(d["arena_bytes"]["predicted"] == d["arena_bytes"]["measured"] for d in shown["devices"])
assert shown["summary"]["eval_loss"] == result["eval_loss"] and 0 < result["limit"]["share"]
assert [c["step"] for c in shown["series"]["checkpoints"]][-1] == LAST
print(f"ok: metrics, events and report of a run that was killed and resumed at step {resumed}: every step once")

# The page of an interrupted run says so, and where the run stood.
os.remove(METRICS)
process = subprocess.Popen([*COMMON, "--steps", "1000000", "--checkpoint-every", "0", *FILES], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
while not (os.path.exists(METRICS) and len(open(METRICS, encoding="utf-8").readlines()) > 20) and process.poll() is None:
    time.sleep(0.005)
process.send_signal(signal.SIGINT)
_, said = process.communicate(timeout=60)
assert process.returncode == 130, said
stopped = page()
assert re.fullmatch(r"stopped at step \d+", stopped["state"]), stopped["state"]
assert lines()[-1]["outcome"] == stopped["state"]
# A folder of events may be shared, a page is replaced, a file of anything else is not touched.
open(f"{WORK}/words", "w", encoding="utf-8").write("words of somebody")
for option, path, wanted in [("--metrics", f"{WORK}/words", "is no file of metrics"), ("--report", WORK, "is a folder"), ("--tensorboard", f"{REPORT}/x", "cannot make the folder")]:
    failed = subprocess.run([*COMMON, "--steps", "1", option, path], capture_output=True, text=True)
    assert failed.returncode == 1 and wanted in failed.stderr, (option, failed.stderr)
text = subprocess.run([*COMMON, "--steps", "3", "--report", REPORT], capture_output=True, text=True, check=True).stdout
assert re.search(r"^limit      \S+ ?% of the physical limit: no step takes less than ", text, re.M), text
print("ok: an interrupted run's report says so; files of anything else are refused; the limit of a step is printed")

# Names that a run derives are not followed where somebody planted them; what is written again keeps its mode.
PLAIN = [TESSERA, "train", MODEL, "--data", TEXT, "--batch", "2", "--seq", "16", "--quiet"]
subprocess.run([*PLAIN, "--steps", "1", "--checkpoint", f"{WORK}/victim"], capture_output=True, check=True)
victim = sorted(os.listdir(f"{WORK}/victim"))
for name in ("previous", "saving", "step-2", "best", "best.linking", "step-2.removing", "lock"):
    out = f"{WORK}/planted.{name}/t.tsr"
    os.mkdir(f"{WORK}/planted.{name}")
    os.symlink(f"{WORK}/victim", f"{out}.checkpoint.{name}")
    done = subprocess.run([*PLAIN, "--steps", "3", "--checkpoint-every", "1", "--keep", "2", "--keep-best", "--eval-every", "1", "--eval-fraction", "0.05",
                           "--eval-batches", "1", "--out", out], capture_output=True, text=True)
    assert sorted(os.listdir(f"{WORK}/victim")) == victim, (name, done.stderr)
    assert done.returncode == 0 or f"checkpoint.{name.split('.')[0]}" in done.stderr, (name, done.returncode, done.stderr)
os.chmod(f"{WORK}/planted.previous/t.tsr", 0o600)
os.chmod(f"{WORK}/planted.previous/t.tsr.checkpoint", 0o700)
again = f"{WORK}/planted.previous/t.tsr"
subprocess.run([*PLAIN, "--steps", "5", "--resume", again, "--out", again, "--keep", "2", "--eval-fraction", "0.05", "--eval-batches", "1"],
               capture_output=True, check=True)
modes = {name: os.stat(f"{again}{name}").st_mode & 0o777 for name in ("", ".checkpoint", ".checkpoint.step-5")}
assert modes == {"": 0o600, ".checkpoint": 0o700, ".checkpoint.step-5": 0o700}, modes

# The last good checkpoint is one that is there.
lost = f"{WORK}/lost.checkpoint"
process = subprocess.Popen([*PLAIN, "--steps", "1000000", "--checkpoint", lost, "--checkpoint-every", "5", "--keep", "2"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True)
while not (os.path.exists(f"{lost}.step-10") and os.path.exists(lost)) and process.poll() is None:
    time.sleep(0.002)
os.rename(lost, f"{lost}.mine")
os.makedirs(lost, exist_ok=True)  # a save may have made it again
open(f"{lost}/notes.txt", "w", encoding="utf-8").close()
_, said = process.communicate(timeout=60)
named = re.search(r"the last good checkpoint is (\S+)", said)
assert process.returncode == 1 and (named is None or os.path.exists(f"{named[1]}/manifest")), said
print("ok: planted names are not followed, modes are kept, an error names a checkpoint that is there")
