#!/usr/bin/env python3
"""resume.py TESSERA MODEL TEXT FOLDER: kill -9 in mid-training and go on: same last loss to the bit on equal devices,
within 1e-5 relative on others. What is resumed stays as it is, unless the run goes on in its place."""
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

tessera, model, text, folder = sys.argv[1:5]
STEPS = 40
COMMON = [tessera, "train", model, "--data", text, "--steps", str(STEPS), "--batch", "8", "--seq", "32", "--lr", "1e-3",
          "--schedule", "cosine", "--seed", "3", "--checkpoint-every", "3", "--eval-fraction", "0.1",
          "--json", "--overwrite"]


def result(command):
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {run.returncode}: {run.stderr.strip()}")
    return json.loads(run.stdout.splitlines()[-1])


def digest(folder):
    return {name: hashlib.sha256(open(f"{folder}/{name}", "rb").read()).hexdigest() for name in sorted(os.listdir(folder))}


whole = result([*COMMON, "--out", f"{folder}/whole.tsr", "--devices", "cpu:2"])
checkpoint = f"{folder}/killed.tsr.checkpoint"
process = subprocess.Popen([*COMMON, "--out", f"{folder}/killed.tsr", "--devices", "cpu:2"], stdout=subprocess.DEVNULL)
deadline = time.time() + 60
while not os.path.isdir(checkpoint) and process.poll() is None and time.time() < deadline:
    time.sleep(0.002)
process.send_signal(signal.SIGKILL)
process.wait()
if os.path.exists(f"{folder}/killed.tsr"):
    sys.exit("the run ended before it could be killed: nothing was shown")
before = digest(checkpoint)
same = result([*COMMON, "--out", f"{folder}/resumed.tsr", "--devices", "cpu:2", "--resume", checkpoint])
if len(same["losses"]) >= STEPS:
    sys.exit("resuming began from the first step")
if same["losses"] != whole["losses"][-len(same["losses"]):] or same["eval_loss"] != whole["eval_loss"]:
    sys.exit(f"resumed run differs: {same['losses'][-1]!r} against {whole['losses'][-1]!r}")
if open(f"{folder}/resumed.tsr", "rb").read() != open(f"{folder}/whole.tsr", "rb").read():
    sys.exit("the resumed model's file differs from the uninterrupted one's")
if digest(checkpoint) != before or same["checkpoint"] != f"{folder}/resumed.tsr.checkpoint":
    sys.exit(f"--resume X --out Y: checkpoints went to {same['checkpoint']}, X changed: {digest(checkpoint) != before}")
print(f"ok: killed after checkpoint, resumed for {len(same['losses'])} steps: same losses and model to the bit")
other = result([*COMMON, "--out", f"{folder}/other.tsr", "--devices", "cpu:3", "--resume", checkpoint])
worst = max(abs(a - b) / abs(b) for a, b in zip(other["losses"], whole["losses"][-len(other["losses"]):]))
print(f"ok: resumed on cpu:3: worst relative difference {worst:.1e}")
if worst > 1e-5:
    sys.exit("that is too much")

# --init takes the parameters alone: a whole run with other settings follows, which begins where the other one ended.
init = [tessera, "train", model, "--data", text, "--seq", "32", "--batch", "3", "--optimizer", "lion", "--steps", "2", "--json"]
started = result([*init, "--checkpoint-every", "0", "--init", f"{folder}/whole.tsr.checkpoint"])
if len(started["losses"]) != 2 or started["losses"][0] > (whole["losses"][0] + whole["losses"][-1]) / 2:
    sys.exit(f"--init: losses {started['losses']} after {whole['losses'][0]} to {whole['losses'][-1]}")
if subprocess.run([*init, "--init", checkpoint, "--resume", checkpoint], capture_output=True).returncode == 0:
    sys.exit("--init and --resume were taken together")

# Resumed alone, a run goes on in its folder, and says so; a run that keeps nothing says that before its first step.
alone = result([*COMMON, "--devices", "cpu:2", "--resume", checkpoint])
if alone["checkpoint"] != checkpoint or digest(checkpoint) != digest(f"{folder}/whole.tsr.checkpoint"):
    sys.exit(f"--resume X alone ended in {alone['checkpoint']}, not as the uninterrupted run's checkpoint")
for options, kept in ((["--checkpoint-every", "0"], False), (["--checkpoint", f"{folder}/alone"], True), ([], False)):
    run = subprocess.run([tessera, "train", model, "--data", text, "--seq", "32", "--steps", "3", "--json", *options],
                         capture_output=True, text=True)
    if run.returncode != 0 or ("nothing of this run is kept" in run.stderr) == kept or len(run.stdout.splitlines()) != 1:
        sys.exit(f"train {options}: exit {run.returncode}, says {run.stderr!r}, result {run.stdout!r}")
    if kept and digest(f"{folder}/alone").keys() != {"manifest", "shard-00000"}:
        sys.exit("a run with --checkpoint alone left no checkpoint")
print("ok: what is resumed stays, what is kept is said")

# The same command again is refused, with the step and both ways, and leaves everything as it is; each way is taken.
again = [word for word in COMMON if word != "--overwrite"]
before = digest(f"{folder}/whole.tsr.checkpoint")
for out, checkpoint_folder, words in (("whole.tsr", None, ["of step 40", "option 'resume'", "option 'overwrite'"]), ("fresh.tsr", "whole.tsr.checkpoint", ["of step 40"]),
                                      ("whole.tsr", "fresh", ["whole.tsr is there", "option 'overwrite'"])):
    more = ["--checkpoint", f"{folder}/{checkpoint_folder}"] if checkpoint_folder else []
    refused = subprocess.run([*again, "--out", f"{folder}/{out}", *more], capture_output=True, text=True)
    if refused.returncode != 1 or not all(word in refused.stderr for word in words) or digest(f"{folder}/whole.tsr.checkpoint") != before:
        sys.exit(f"train --out {out} {more} again: exit {refused.returncode}, wanted {words} in {refused.stderr}")
result([*again, "--out", f"{folder}/whole.tsr", "--resume", f"{folder}/whole.tsr"])
print("ok: an earlier run is lost by --overwrite alone")

# Asked to stop, by Ctrl-C or as jobs are ended: the step in progress is finished and kept where anything is.
for number, every in ((signal.SIGINT, "1000000"), (signal.SIGTERM, "1000000"), (signal.SIGINT, "0")):
    out = f"{folder}/stopped-{number}-{every}.tsr"
    asked = [tessera, "train", model, "--data", text, "--seq", "32", "--steps", "1000000", "--checkpoint-every", every]
    process = subprocess.Popen([*asked, "--out", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not process.stderr.readline().startswith(("plan ", "tessera:")):  # the plan is said just before the first step
        pass
    time.sleep(0.3)
    process.send_signal(number)
    said = process.stderr.read()
    kept = os.path.exists(f"{out}.checkpoint/manifest")
    hint = f"go on with --resume {out}.checkpoint" if every != "0" else "nothing of it is kept"
    if process.wait() != 130 or kept != (every != "0") or hint not in said or os.path.exists(out):
        sys.exit(f"signal {number}, --checkpoint-every {every}: exit {process.returncode}, checkpoint {kept}: {said}")
    print(f"ok: signal {number}, --checkpoint-every {every}: {said.strip()}")
