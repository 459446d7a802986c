#!/usr/bin/env python3
"""full_disk.py TESSERA FOLDER: no room for tokens and log probabilities in a cache, for the log of a run, for exported,
merged and quantised models: a limit on files' sizes stands for the disk. What was there stays, nothing half-written is
left, and the words name the file. Checkpoints: runs.py."""
import hashlib
import json
import os
import subprocess
import sys

TESSERA, FOLDER = os.path.abspath(sys.argv[1]), f"{sys.argv[2]}/full_disk"
os.mkdir(FOLDER)
os.mkdir(f"{FOLDER}/tmp")
environment = {**os.environ, "TMPDIR": f"{FOLDER}/tmp"}
ROOM = "tokens are written there, 4 bytes each; option 'cache' or the variable TMPDIR names another folder"


def run(*words, kib=None):
    limit = f"ulimit -f {kib}; " if kib else ""  # in 1024 bytes
    return subprocess.run(["bash", "-c", f'{limit}exec "$@"', "bash", TESSERA, *map(str, words)], capture_output=True, text=True,
                          cwd=FOLDER, env=environment)


def done(*words):
    found = run(*words)
    assert found.returncode == 0, (words, found.stderr)
    return found.stdout


def files():
    found = {}
    for base, _, names in os.walk(FOLDER):
        for name in names:
            with open(os.path.join(base, name), "rb") as file:
                found[os.path.relpath(os.path.join(base, name), FOLDER)] = hashlib.sha256(file.read()).hexdigest()
    return found


def refused(says, *words, kib):
    """Fails with these words alone, and changes no file."""
    before = files()
    found = run(*words, kib=kib)
    assert found.returncode == 1, (words, found.returncode, found.stderr)
    said = [line for line in found.stderr.splitlines() if line.startswith("tessera: ")]
    assert said == [f"tessera: {says}"], (words, said, says)
    assert files() == before, (words, sorted(set(files()) ^ set(before)))


for seed in (1, 2):
    done("new", "llama:L=2,C=64,H=4,F=128,V=256,T=64", "--seed", seed, "--tokenizer", "bytes", "-o", f"{seed}.tsr")
with open(f"{FOLDER}/pairs.jsonl", "w") as file:
    for i in range(300):
        file.write(json.dumps({"prompt": f"q{i} ", "chosen": f"good {i}", "rejected": f"bad {i * 7}"}) + "\n")
COMMON = ["train", "1.tsr", "--data", "pairs.jsonl", "--seq", "32", "--batch", "2", "--overwrite"]

# Tokens: in a cache that has others, and without one.
done("data", "pairs.jsonl", "--model", "1.tsr", "--cache", "cache", "--seq", 32, "--examples", 0)
cached = os.listdir(f"{FOLDER}/cache")
words = ["data", "pairs.jsonl", "--model", "1.tsr", "--max-length", 20, "--examples", 0]
before = files()
found = run(*words, "--cache", "cache", kib=10)
name = found.stderr.split("cache/")[1].split(".tokens")[0]
assert found.returncode == 1 and found.stderr == f"tessera: cache/{name}.tokens: cannot write: File too large: {ROOM}\n", found.stderr
assert files() == before
refused(f"{FOLDER}/tmp/tessera-{os.getuid()}/data.tokens: cannot write: File too large: {ROOM}", *words, kib=10)
print("ok: no room for tokens:", found.stderr.strip())

# Log probabilities of a reference: the training does without their file.
words = [*COMMON, "--loss", "dpo", "--cache", "cache", "--steps", 2, "--checkpoint-every", 0, "--json"]
before = files()
found = run(*words, kib=2)
assert found.returncode == 0 and "its log probabilities are not kept for the next time: cache/" in found.stderr, found.stderr
assert ".reference: cannot write: File too large" in found.stderr and files() == before
assert json.loads(found.stdout)["losses"] == json.loads(done(*words))["losses"]
assert len(os.listdir(f"{FOLDER}/cache")) == len(cached) + 1
print("ok: no room for a reference's log probabilities:", [line for line in found.stderr.splitlines() if "not kept" in line][0])

# The log of a run: a warning, and at the end a failure, with all else written. It goes on from there.
TUNED = [*COMMON, "--loss", "orpo", "--cache", "cache", "--lora", 1, "--lora-on", "block.0.q", "--out", "tuned", "--metrics", "run.jsonl"]
found = run(*TUNED, "--steps", 60, kib=12)
size = os.path.getsize(f"{FOLDER}/run.jsonl")
assert found.returncode == 1 and size == 12 * 1024, (found.returncode, found.stderr, size)
warned = [line for line in found.stderr.splitlines() if "log was not written" in line]
assert warned == ["warning: the run's log was not written: run.jsonl: cannot write: File too large; the training goes on, and what is missing is "
                  "written when that works again"], found.stderr
assert found.stderr.splitlines()[-1] == "tessera: run.jsonl: cannot write: File too large; the last good checkpoint is tuned.checkpoint (option 'resume')", found.stderr
assert sorted(os.listdir(f"{FOLDER}/tuned")) == ["adapter_config.json", "adapter_model.safetensors"]
done(*TUNED, "--steps", 62, "--resume", "tuned")
steps = [line["step"] for line in map(json.loads, open(f"{FOLDER}/run.jsonl")) if line["kind"] == "step"]
assert steps[-2:] == [61, 62] and steps[:-2] == list(range(1, len(steps) - 1)) and len(steps) > 10, steps
for option, path, kib in (("--report", "run.html", 20), ("--metrics", "other.jsonl", 1)):
    with open(f"{FOLDER}/{path}", "w") as file:
        file.write("" if option == "--metrics" else "old")
    limited = run(*COMMON, "--loss", "orpo", "--cache", "cache", "--steps", 1, option, path, kib=kib)
    assert limited.returncode == 1 and limited.stderr.endswith(f"{path}: cannot write: File too large\n"), limited.stderr
    assert option == "--metrics" or open(f"{FOLDER}/{path}").read() == "old"
print("ok: no room for a run's log:", warned[0])

# Models, over older ones.
done("train", "1.tsr", "--data", "pairs.jsonl", "--loss", "orpo", "--seq", 32, "--lora", 32, "--steps", 1, "--checkpoint-every", 0, "--out", "adapted.tsr")
for out, words, at in (("out_hf", ["export", "{}.tsr", "-o", "out_hf"], "out_hf.tmp-{}/model.safetensors"),
                       ("out.gguf", ["export", "{}.tsr", "--format", "gguf", "-o", "out.gguf"], "out.gguf"),
                       ("out_peft", ["export", "adapted.tsr", "--format", "peft", "-o", "out_peft"], "out_peft.tmp-{}/adapter_model.safetensors"),
                       ("merged.tsr", ["merge", "adapted.tsr", "-o", "merged.tsr"], "merged.tsr"),
                       ("q.tsr", ["quantize", "{}.tsr", "q.tsr", "--type", "q8_0"], "q.tsr")):
    done(*(str(word).format(1) for word in words))
    before = files()
    found = run(*(str(word).format(2) for word in words), kib=50)
    start, _, end = at.partition("{}")
    said = found.stderr.splitlines()[-1]
    assert found.returncode == 1 and said.startswith("tessera: ") and start in said and said.endswith(f"{end}: cannot write: File too large"), (words, found.stderr)
    assert files() == before, (words, sorted(set(files()) ^ set(before)))
    print("ok: no room for a model:", said)
