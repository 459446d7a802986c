#!/usr/bin/env python3
"""kills.py BUILD [COUNT [WORD]]: kills COUNT (100) trainings at random moments, also while they save checkpoints and the
model, and finishes each: same bits as an uninterrupted run, of the result and of the checkpoints, and no file left over after
the run that finishes. WORD: only layouts with this word."""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from file_hashes import file_hashes

build = os.path.abspath(sys.argv[1])
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 100
tessera = f"{build}/cli/tessera"
environment = {**os.environ, "TESSERA_PROFILE": "none"}
# The last of them: more words. Adapters over a quantised base: checkpoints without it, adapters as PEFT's folder, the
# best and the newest two checkpoints kept.
KEEPING = ("--eval-fraction", "0.2", "--eval-batches", "1", "--eval-every", "2", "--keep-best", "--keep", "2")
LAYOUTS = [("cpu:1", ""), ("cpu:2", "dp=2,zero=1"), ("cpu:2", "tp=2"), ("cpu:2", "pp=2,mb=2"), ("cpu:2", "dp=2,zero=3"),
           ("cpu:2", "dp=2,zero=1", "--lora", "4"), ("cpu:1", "", "--lora", "4", "--lr", "0.02", "--warmup", "0", *KEEPING)]
if len(sys.argv) > 3:
    LAYOUTS = [layout for layout in LAYOUTS if sys.argv[3] in layout]
draw = random.Random(24)
seen = {"started": 0, "a checkpoint's save": 0, "the model's save": 0, "training": 0}


def out_of(folder, layout):
    return f"{folder}/out" if "--keep" in layout else f"{folder}/out.tsr"


def command(folder, layout, resume):
    devices, parallel, *more = layout
    model = "quantised" if more else "model"
    out, top = out_of(folder, layout), os.path.dirname(folder)  # checkpoints name the model's path
    words = [tessera, "train", f"{top}/{model}.tsr", *more, "--data", f"{top}/text.txt", "--steps", "12",
             "--batch", "4", "--seq", "32", "--checkpoint-every", "3", "--seed", "5", "--devices", devices,
             "--out", out]
    if parallel:
        words += ["--parallel", parallel]
    checkpoint = f"{out}.checkpoint"
    if resume and (os.path.isdir(checkpoint) or os.path.isdir(checkpoint + ".saving/replaced")):
        words += ["--resume", checkpoint]
    return words


def finish(folder, layout):
    words = command(folder, layout, True)
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
    return file_hashes(folder)


def is_saving(folder, what):
    return any(what in name for name in os.listdir(folder))


def kill_once(folder, layout, seconds):
    """Kills one run: after a random time, or a moment after it began to save."""
    process = subprocess.Popen(command(folder, layout, True), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env=environment)
    kind = draw.randrange(3)
    if kind == 0:
        time.sleep(draw.uniform(0, 1.05 * seconds))
    else:
        what = ".saving" if kind == 1 else ".tmp-"
        # The folder is looked at on the way in, too, before the first step.
        time.sleep(draw.uniform(0.2, 0.9) * seconds if kind == 1 else draw.uniform(0.3, 0.9) * seconds)
        deadline = time.time() + 5 * seconds
        while process.poll() is None and time.time() < deadline and not is_saving(folder, what):
            time.sleep(0.0002)
        time.sleep(draw.choice([0, 0.0005, 0.002, 0.005]))
    process.send_signal(signal.SIGKILL)
    ended = process.wait() == 0
    if ended:
        return False
    if is_saving(folder, ".tmp-"):
        seen["the model's save"] += 1
    elif is_saving(folder, ".saving"):
        seen["a checkpoint's save"] += 1
    elif os.path.isdir(out_of(folder, layout) + ".checkpoint"):
        seen["training"] += 1
    else:
        seen["started"] += 1
    return True


def left_over(folder):
    found = []
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.relpath(os.path.join(base, name), folder)
            checkpoint = r"out(\.tsr)?\.checkpoint(\.best|\.step-\d+)?/(manifest|shard-\d{5})"
            if not re.fullmatch(rf"out\.tsr|out/adapter_(config\.json|model\.safetensors)|{checkpoint}", path):
                found.append(path)
    return found


def main():
    with tempfile.TemporaryDirectory() as top:
        subprocess.run([tessera, "new", "llama:L=2,C=128,H=2,F=256,V=256,T=64", "--tokenizer", "bytes", "-o",
                        f"{top}/model.tsr"], check=True, capture_output=True, env=environment)
        subprocess.run([tessera, "quantize", f"{top}/model.tsr", f"{top}/quantised.tsr", "--type", "q8_0"], check=True,
                       capture_output=True, env=environment)
        with open(f"{top}/text.txt", "w") as file:
            file.write("the quick brown fox jumps over the lazy dog. " * 200)
        wanted, seconds = {}, {}
        for layout in LAYOUTS:
            os.mkdir(f"{top}/whole")
            begin = time.time()
            wanted[layout] = finish(f"{top}/whole", layout)
            seconds[layout] = time.time() - begin
            shutil.rmtree(f"{top}/whole")
        kills, runs, wrong = 0, 0, []
        while kills < COUNT:
            layout, folder = LAYOUTS[runs % len(LAYOUTS)], f"{top}/run"
            os.mkdir(folder)
            runs += 1
            for _ in range(draw.randint(1, 3)):
                kills += kill_once(folder, layout, seconds[layout])
            found = finish(folder, layout)
            others = [name for name in found.keys() | wanted[layout].keys() if found.get(name) != wanted[layout].get(name)]
            if others:
                wrong.append(f"run {runs}, {layout}: other bits than the uninterrupted run in {', '.join(sorted(others))}")
            if found := left_over(folder):
                wrong.append(f"run {runs}, {layout}: left {', '.join(found)}")
            shutil.rmtree(folder)
        where = ", ".join(f"{count} in {name}" for name, count in seen.items())
        print(f"kills | {kills} kills in {runs} runs on {len(LAYOUTS)} layouts ({where}): {len(wrong)} wrong")
        for line in wrong:
            print(f"FAILED: {line}")
        sys.exit(1 if wrong else 0)


main()
