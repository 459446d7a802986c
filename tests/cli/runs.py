#!/usr/bin/env python3
"""runs.py TESSERA TEXT FOLDER: evaluations while training, the newest and the best checkpoints, early stopping, adapters as
PEFT's folder, disks that are full, pauses, folders in use, and options that contradict each other."""
import json
import os
import signal
import subprocess
import sys
import time

tessera, text, top = sys.argv[1:4]
folder = f"{top}/runs"
os.mkdir(folder)
model = f"{folder}/new.tsr"
subprocess.run([tessera, "new", "llama:L=2,C=64,H=8,KV=4,F=172,V=256,T=256,tied=1", "--seed", "1", "--tokenizer", "bytes", "-o", model], check=True,
               capture_output=True)
with open(text, "rb") as file, open(f"{folder}/text.txt", "wb") as short:
    short.write(file.read(12000))
text = f"{folder}/text.txt"
COMMON = [tessera, "train", model, "--data", text, "--batch", "2", "--seq", "16", "--seed", "3", "--devices", "cpu:1", "--overwrite"]
HELD_OUT = ["--eval-fraction", "0.1", "--eval-batches", "2"]


def run(*words, before=""):
    command = [*COMMON, *map(str, words)]
    if before:
        command = ["bash", "-c", f'{before}; exec "$@"', "bash", *command]
    return subprocess.run(command, capture_output=True, text=True)


def result(*words, **more):
    done = run(*words, "--json", **more)
    if done.returncode != 0:
        sys.exit(f"train {' '.join(map(str, words))}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def refused(says, *words):
    done = run(*words)
    if done.returncode not in (1, 2) or says not in done.stderr:
        sys.exit(f"train {' '.join(map(str, words))}: exit {done.returncode}, wanted '{says}' in: {done.stderr.strip()}")


def check(what, is_true):
    if not is_true:
        sys.exit(f"FAILED: {what}")


def step_of(name):
    # A run that has nothing left to do says so.
    done = run(*HELD_OUT, "--steps", 1, "--resume", name, "--checkpoint-every", 0)
    check(f"no step of {name}: exit {done.returncode}: {done.stderr}", "the checkpoint is at step " in done.stderr)
    return int(done.stderr.split("the checkpoint is at step ")[1].split()[0])


def contents(name):
    # The manifest also has the number of steps that were wanted.
    return {file: open(f"{name}/{file}", "rb").read() for file in sorted(os.listdir(name)) if file != "manifest"}


# A rate that soon harms: the best evaluation is kept and written, and the run says why it ends.
out = f"{folder}/best.tsr"
early = result(*HELD_OUT, "--steps", 40, "--lr", 0.05, "--warmup", 0, "--eval-every", 2, "--patience", 3, "--checkpoint-every", 3,
               "--keep", 2, "--out", out)
rows = early["evaluations"]
best = min(rows, key=lambda row: row["loss"])
check(f"best step {early['best_step']}, wanted {best['step']}", early["best_step"] == best["step"] and early["best_loss"] == best["loss"])
check("the run did not stop early", early["stopped_early"] and early["steps"] < 40 and early["steps"] == rows[-1]["step"])
check("--out has not the best values", early["eval_loss"] == best["loss"])
check("accuracy is no share", all(row["accuracy"] == row["correct"] / row["labels"] for row in rows))
kept = sorted(name for name in os.listdir(folder) if name.startswith("best.tsr."))
steps = sorted(int(name.rsplit("-", 1)[1]) for name in kept if ".step-" in name)
check(f"kept {kept}", len(steps) == 2 and steps[-1] == early["steps"] and kept[0] == "best.tsr.checkpoint" and len(kept) == 4)
check("folders do not share their files", os.stat(f"{out}.checkpoint/shard-00000").st_nlink == 2)
check("the best checkpoint is of another step", step_of(f"{out}.checkpoint.best") == best["step"])
print(f"ok: best step {best['step']} of {[row['step'] for row in rows]} kept and written, stopped at {early['steps']}")

# A run interrupted anywhere ends in the same bits: the best, the step of the stop, the kept checkpoints.
words = [*HELD_OUT, "--steps", 40, "--lr", 0.05, "--warmup", 0, "--eval-every", 2, "--patience", 3, "--checkpoint-every", 3, "--keep", 2]
result(*HELD_OUT, "--steps", 4, "--lr", 0.05, "--warmup", 0, "--eval-every", 2, "--keep-best", "--checkpoint-every", 3, "--out",
       f"{folder}/part.tsr")
again = result(*words, "--resume", f"{folder}/part.tsr", "--out", f"{folder}/again.tsr")
check("a resumed run differs", again["losses"] == early["losses"][4:] and again["eval_loss"] == early["eval_loss"] and
      again["best_step"] == early["best_step"] and again["steps"] == early["steps"])
for name in ("", ".best", *(f".step-{step}" for step in steps)):
    check(f"a resumed run's checkpoint{name} differs",
          contents(f"{out}.checkpoint{name}") == contents(f"{folder}/again.tsr.checkpoint{name}"))
check("a resumed run's model differs", open(out, "rb").read() == open(f"{folder}/again.tsr", "rb").read())
done = run(*words, "--resume", f"{folder}/again.tsr", "--out", f"{folder}/again.tsr")
check(f"a run that stopped goes on: {done.stderr}", done.returncode == 0 and "nothing is left to do: the held-out loss" in done.stderr)
print("ok: early stopping, the best and the kept ones are the same after a resume")

# Samples are what the weights write at each evaluation; the last are those of what is written.
sampled = result(*HELD_OUT, "--steps", 4, "--lr", 0.05, "--warmup", 0, "--eval-every", 2, "--sample", "Once", "--sample", "The ", "--sample-tokens", 6,
                 "--metrics", f"{folder}/samples.jsonl", "--out", f"{folder}/sampled.tsr")
lines = [json.loads(line) for line in open(f"{folder}/samples.jsonl")]
samples = [(line["step"], line["prompt"], line["text"]) for line in lines if line["kind"] == "sample"]
check(f"samples {samples}", [each[:2] for each in samples] == [(2, "Once"), (2, "The "), (4, "Once"), (4, "The ")])
for _, prompt, written in samples[2:]:
    alone = subprocess.run([tessera, "generate", f"{folder}/sampled.tsr", "--prompt", prompt, "--temp", "0", "-n", "6", "--json"],
                           capture_output=True, text=True)
    check(f"a sample differs from the model's text: {written!r}, {alone.stdout} {alone.stderr}",
          json.loads(alone.stdout.splitlines()[-1])["text"] == written)
refused("option 'sample_tokens' is 0", "--steps", 1, "--sample", "a", "--sample-tokens", 0)
print("ok: samples at evaluations are the texts of the weights at that step")

# Adapters: as PEFT's folder, in a model's file, merged. All three are one model, and go on from the checkpoint.
lora = ["--steps", 4, "--lora", 16, "--lr", 0.01, "--warmup", 0, *HELD_OUT]
peft = result(*lora, "--out", f"{folder}/adapter")
check("no folder as PEFT has it", set(os.listdir(f"{folder}/adapter")) == {"adapter_config.json", "adapter_model.safetensors"})
merged = result(*lora, "--out", f"{folder}/merged.tsr", "--merge")
result(*lora, "--out", f"{folder}/adapted.tsr")
subprocess.run([tessera, "export", f"{folder}/adapted.tsr", "--format", "peft", "-o", f"{folder}/exported"], check=True, capture_output=True)
# A model's file does not say what base it was made from; the folder that a training wrote does.
def config_and_values(name):
    config = json.load(open(f"{folder}/{name}/adapter_config.json"))
    data = open(f"{folder}/{name}/adapter_model.safetensors", "rb").read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    base = config.pop("base_model_name_or_path"), header["__metadata__"].pop("base_model", None)
    return base, (config, header, data[8 + size:])


bases, values = zip(config_and_values("adapter"), config_and_values("exported"))
check(f"bases {bases}", bases == ((os.path.realpath(model), os.path.relpath(model, f"{folder}/adapter")), (None, None)))
check("the folder is not what an export of the model writes", values[0] == values[1])


def loss_of(name, *words):
    words = [tessera, "eval", name, "--data", text, "--seq", "16", "--batch", "2", "--json", *words]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    check(f"eval says {sorted(found)}", {"eval_loss", "perplexity", "accuracy", "labels"} <= found.keys())
    return found["eval_loss"]


one, two = loss_of(model, "--adapter", f"{folder}/adapter"), loss_of(f"{folder}/merged.tsr")
check(f"adapters {one}, merged {two}", abs(one - two) < 1e-4 * one)  # the sum W + s B A is rounded to f32
check("the adapters change nothing", abs(one - loss_of(model)) > 1e-4)
size = sum(os.stat(f"{folder}/adapter.checkpoint/{name}").st_size for name in os.listdir(f"{folder}/adapter.checkpoint"))
weights = os.stat(f"{folder}/adapter/adapter_model.safetensors").st_size
check(f"a checkpoint of {size} bytes for adapters of {weights}", size < 3 * 1.1 * weights)  # values and two moments
more = result(*[*lora[:1], 6, *lora[2:]], "--resume", f"{folder}/adapter", "--out", f"{folder}/adapter")
check("the folder of adapters did not go on", len(more["losses"]) == 2)
print(f"ok: adapters of {weights} bytes as PEFT has them, a checkpoint of {size}; merged, the same loss")

# A full disk is reported, with the last whole checkpoint; the next one is tried, the old one stays, the last one must be written.
result("--steps", 3, "--checkpoint-every", 3, "--out", f"{folder}/full.tsr")
before = contents(f"{folder}/full.tsr.checkpoint")
full = run("--steps", 8, "--checkpoint-every", 2, "--resume", f"{folder}/full.tsr", "--checkpoint", f"{folder}/full.tsr.checkpoint",
           before="ulimit -f 100")
said = full.stderr
check(f"a full disk: exit {full.returncode}: {said}", full.returncode == 1 and said.count("the next one is tried") == 2 and
      f"the last good checkpoint is {folder}/full.tsr.checkpoint" in said)
check("a full disk: the old checkpoint changed", contents(f"{folder}/full.tsr.checkpoint") == before)
check(f"a full disk: left {os.listdir(folder)}", not [name for name in os.listdir(folder) if name.endswith((".saving", ".lock"))])
print("ok: a full disk:", said.split("warning: ")[1].splitlines()[0].replace(folder, "..."))

# A pause longer than the watchdog, and a second training that would write to the same place.
process = subprocess.Popen([*COMMON[:-2], "cpu:2", "--overwrite", "--steps", "1000000", "--watchdog", "0.5", "--out", f"{folder}/paused.tsr"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
while not process.stderr.readline().startswith("plan"):
    pass
time.sleep(0.2)
refused("another training writes its checkpoints there", "--steps", 1, "--out", f"{folder}/paused.tsr")
process.send_signal(signal.SIGSTOP)
time.sleep(1.5)
check("it was not paused", open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T")
process.send_signal(signal.SIGCONT)
time.sleep(0.5)
check("a paused training ended", process.poll() is None)
process.send_signal(signal.SIGINT)
said = process.stderr.read()
check(f"a paused training: exit {process.wait()}: {said}", process.returncode == 130 and "go on with --resume" in said)
print("ok: paused, continued, ended; its folder was its own")

# Options that say nothing, or contradict each other.
one = ["--steps", 1, "--out", f"{folder}/never.tsr"]
for says, *words in (("option 'keep' is 0, wanted at least 1", *one, "--keep", 0),
                     ("option 'patience' needs option 'eval_every'", *one, *HELD_OUT, "--patience", 2),
                     ("option 'keep_best' needs option 'eval_every'", *one, *HELD_OUT, "--keep-best"),
                     ("option 'eval_every' needs held-out rows", *one, "--eval-every", 2),
                     ("option 'min_delta' belongs to option 'patience'", *one, *HELD_OUT, "--eval-every", 1, "--min-delta", 0.1),
                     ("option 'patience' is -1", *one, *HELD_OUT, "--eval-every", 1, "--patience", -1),
                     ("option 'min_delta' is ", *one, *HELD_OUT, "--eval-every", 1, "--patience", 1, "--min-delta", "nan"),
                     ("keep a checkpoint, and none is written", *one, *HELD_OUT, "--eval-every", 1, "--keep-best", "--checkpoint-every", 0),
                     ("option 'keep' is of a checkpoint, and none is written", "--steps", 1, "--keep", 2),
                     ("this model has none", *one, "--merge"), ("option 'out' is missing", "--steps", 1, "--lora", 2, "--merge")):
    refused(says, *words)
print("ok: words that contradict each other are refused by name")
