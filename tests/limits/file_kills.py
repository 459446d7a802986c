#!/usr/bin/env python3
"""file_kills.py BUILD [COUNT]: kills COUNT (100) writers of files at random moments: of tokens and of a reference's log
probabilities in a cache, of merged, exported and quantised models, and of a training's merged result. After each kill a
name has its whole file, the one before or none; the next start ends in the same bits as one that was not killed, and
nothing is left over."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from file_hashes import file_hashes

tessera = f"{os.path.abspath(sys.argv[1])}/cli/tessera"
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 100
environment = {**os.environ, "TESSERA_PROFILE": "none"}
draw = random.Random(25)
TRAIN = ["--seq", "16", "--steps", "1", "--checkpoint-every", "0", "--quiet", "--overwrite"]
# name: words for a model of two, in a folder of their own. A cache keeps what other models put into it.
JOBS = {
    "tokens": lambda top, model: ["data", f"{top}/rows.jsonl", "--model", f"{top}/{model}.tsr", "--cache", "cache", "--examples", "0"],
    "reference": lambda top, model: ["train", f"{top}/{model}.tsr", "--data", f"{top}/pairs.jsonl", "--loss", "dpo", "--cache", "cache", *TRAIN],
    "merge": lambda top, model: ["merge", f"{top}/{model}.adapted.tsr", "-o", "out.tsr"],
    "export hf": lambda top, model: ["export", f"{top}/{model}.tsr", "--shard-bytes", "1000000", "-o", "out"],
    "export gguf": lambda top, model: ["export", f"{top}/{model}.tsr", "--format", "gguf", "-o", "out.gguf"],
    "export peft": lambda top, model: ["export", f"{top}/{model}.adapted.tsr", "--format", "peft", "-o", "out"],
    "quantize": lambda top, model: ["quantize", f"{top}/{model}.tsr", "out.tsr", "--type", "q8_0"],
    "train --merge": lambda top, model: ["train", f"{top}/{model}.tsr", "--data", f"{top}/text.txt", "--lora", "4", "--merge", "--out", "out.tsr", *TRAIN],
}


def is_unfinished(path):
    return any(part in path for part in (".tmp-", ".saving", ".lock"))


def run(folder, words):
    done = subprocess.run([tessera, *words], capture_output=True, text=True, cwd=folder, env=environment, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")


def is_writing(folder):
    return any(".tmp-" in name for base, folders, names in os.walk(folder) for name in folders + names)


def kill_once(folder, words, seconds):
    """Kills one run after a random time, or soon after a file was begun. 0: it had ended; 2: while it wrote."""
    process = subprocess.Popen([tessera, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, env=environment)
    if draw.randrange(3) == 0:
        time.sleep(draw.uniform(0, 1.05 * seconds))
    else:
        deadline = time.time() + 5 * seconds
        while process.poll() is None and time.time() < deadline and not is_writing(folder):
            time.sleep(0.0002)
        time.sleep(draw.choice([0, 0.001, 0.003, 0.01, 0.03]))
    process.send_signal(signal.SIGKILL)
    if process.wait() == 0:
        return 0
    return 2 if is_writing(folder) else 1


def prepare(top):
    for seed, model in enumerate(("one", "two")):
        run(top, ["new", "llama:L=2,C=256,H=4,F=512,V=256,T=64", "--seed", str(seed), "--tokenizer", "bytes", "-o", f"{model}.tsr"])
    with open(f"{top}/text.txt", "w") as file:
        file.write("the quick brown fox jumps over the lazy dog. " * 40)
    with open(f"{top}/pairs.jsonl", "w") as file:
        for i in range(200):
            file.write(json.dumps({"prompt": f"q{i} ", "chosen": f"good {i}", "rejected": f"bad {i * 7}"}) + "\n")
    with open(f"{top}/rows.jsonl", "w") as file:
        for i in range(10000):
            file.write(json.dumps({"prompt": f"question {i} ", "completion": f"answer {i * 7} " * 4}) + "\n")
    for model in ("one", "two"):
        run(top, ["train", f"{model}.tsr", "--data", "text.txt", "--lora", "4", "--lr", "0.1", "--warmup", "0", "--out", f"{model}.adapted.tsr", *TRAIN])


def main():
    with tempfile.TemporaryDirectory() as top:
        prepare(top)
        wanted, before, seconds = {}, {}, {}
        for name, words in JOBS.items():
            for model, into in (("one", before), ("two", wanted)):
                os.mkdir(f"{top}/{name}.{model}")
                begin = time.time()
                run(f"{top}/{name}.{model}", words(top, model))
                seconds[name] = time.time() - begin
                into[name] = file_hashes(f"{top}/{name}.{model}")
        kills, writing, runs, wrong = 0, 0, 0, []
        while kills < COUNT:
            name, folder = list(JOBS)[runs % len(JOBS)], f"{top}/run"
            words, runs = JOBS[name](top, "two"), runs + 1
            old = before[name] if draw.randrange(2) else {}
            if old:
                shutil.copytree(f"{top}/{name}.one", folder)
            else:
                os.mkdir(folder)
            for _ in range(draw.randint(1, 2)):
                killed = kill_once(folder, words, seconds[name])
                kills, writing = kills + (killed > 0), writing + (killed > 1)
                found = file_hashes(folder)
                for path, digest in found.items():
                    if not is_unfinished(path) and digest not in (wanted[name].get(path), old.get(path)):
                        wrong.append(f"{name}: {path} is neither whole nor what it was")
                for path in old:
                    if path not in found:
                        wrong.append(f"{name}: {path} was there before, and is lost")
            run(folder, words)
            found = file_hashes(folder)
            allowed = {**(old if "cache" in words else {}), **wanted[name]}
            if found != allowed:
                others = sorted(path for path in found.keys() | allowed.keys() if found.get(path) != allowed.get(path))
                wrong.append(f"{name}: not as without kills: {', '.join(others)}")
            shutil.rmtree(folder)
        print(f"file kills | {kills} kills ({writing} while a file was written) of {runs} runs of {len(JOBS)} writers: {len(wrong)} wrong")
        for line in wrong:
            print(f"FAILED: {line}")
        sys.exit(1 if wrong else 0)


main()
