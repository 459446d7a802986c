#!/usr/bin/env python3
"""kills.py BUILD [COUNT [SEED]]: a training over three processes of MPI loses one of them, by SIGKILL or SIGSTOP, COUNT (200) times at random moments, with
the launcher's recovery and without. Each time all processes end within the deadline, and a message names the lost one, ours or the launcher's; the last
checkpoint holds, and the training goes on from it: over three processes to the file of one that was left alone, over two to its losses within 1e-5."""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

TIMEOUT, DEADLINE, STEPS = 2, 30, 160
build = pathlib.Path(sys.argv[1]).resolve()
count, seed = (int(word) for word in (sys.argv[2:4] + ["200", "1"][len(sys.argv) - 2:]))
draw = random.Random(seed)
environment = dict(os.environ, TESSERA_PROFILE="none", TESSERA_PLUGIN_PATH=str(build / "capi"), OMPI_ALLOW_RUN_AS_ROOT="1",
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
tessera = build / "cli/tessera"


def launch(processes, words, recovers=False):
    start = ["mpirun", "--oversubscribe", *(["--enable-recovery"] if recovers else []), "-n", str(processes)]
    return subprocess.Popen([*start, tessera, *map(str, words)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            start_new_session=True)


def train(folder, out, processes, *more):
    return ["train", folder / "model.tsr", "--data", folder / "text.txt", "--seq", 32, "--batch", 6, "--steps", STEPS, "--parallel", f"dp={processes}",
            "--process-timeout", TIMEOUT, "--checkpoint-every", 10, "--out", out, "--json", *more]


def losses(text):
    return json.loads(next(line for line in text.splitlines() if line.startswith("{")))["losses"]


def members(launcher):
    found = subprocess.run(["pgrep", "-P", str(launcher), "-f", "tessera train"], stdout=subprocess.PIPE, text=True).stdout
    return [int(word) for word in found.split()]


def must_end(process, words):
    text = process.communicate(timeout=120)[0]
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))} ended with {process.returncode}:\n{text}")
    return text


def main(folder):
    subprocess.run([tessera, "new", "gpt2:L=2,C=64,H=4,V=512,T=64", "--tokenizer", "bytes", "-o", folder / "model.tsr"], check=True, env=environment,
                   stdout=subprocess.DEVNULL)
    (folder / "text.txt").write_text("".join(f"line {i} of a text about the number {i * 7 % 50}\n" for i in range(600)))
    words = train(folder, folder / "whole.tsr", 3)
    begun = time.monotonic()
    wanted = losses(must_end(launch(3, words), words))
    took = time.monotonic() - begun
    whole = (folder / "whole.tsr").read_bytes()
    killed, resumed, finished, slowest = 0, 0, 0, 0.0
    for i in range(count):
        out = folder / f"run{i}.tsr"
        how, recovers = draw.choice([signal.SIGKILL, signal.SIGSTOP]), draw.random() < 0.5
        process = launch(3, train(folder, out, 3), recovers)
        time.sleep(draw.uniform(0, took))
        alive = members(process.pid)
        if not alive:
            must_end(process, ["a run that nothing was done to"]) if not recovers else process.communicate(timeout=60)
            finished += 1
            continue
        victim = draw.choice(alive)
        try:
            os.kill(victim, how)
        except ProcessLookupError:  # it had just ended
            process.communicate(timeout=60)
            finished += 1
            continue
        killed += 1
        at = time.monotonic()
        while left := [one for one in members(process.pid) if one != victim]:
            if time.monotonic() - at > DEADLINE:
                raise SystemExit(f"run {i} of seed {seed}: {len(left)} processes live {DEADLINE} s after {how.name}, recovery {recovers}")
            time.sleep(0.02)
        slowest = max(slowest, time.monotonic() - at)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:  # killed, or ended by the launcher
            pass
        text = process.communicate(timeout=60)[0]
        has_ended = out.exists()
        if not has_ended and not any(part in text for part in ("has not been heard of", "have started within", "has ended, and others wait", "exited on signal", "signal 9", "noticed that process",
                                                               "lost connection", "not finalize", "calling \"finalize\"")):
            raise SystemExit(f"run {i} of seed {seed}: no message names the process that was lost by {how.name}, recovery {recovers}:\n{text}")
        checkpoint = folder / f"run{i}.tsr.checkpoint"
        if has_ended or not (checkpoint / "manifest").exists():
            continue
        processes = draw.choice([3, 3, 2])
        words = train(folder, folder / f"on{i}.tsr", processes, "--resume", checkpoint)
        found = losses(must_end(launch(processes, words), words))
        if processes == 3 and (folder / f"on{i}.tsr").read_bytes() != whole:
            raise SystemExit(f"run {i} of seed {seed}: the training that went on has another file")
        if any(abs(a - b) > 1e-5 * abs(a) for a, b in zip(wanted[len(wanted) - len(found):], found)):
            raise SystemExit(f"run {i} of seed {seed}: over {processes} processes the losses are {found}, wanted the end of {wanted}")
        resumed += 1
    print(f"ok: {killed} processes lost at random moments, {finished} runs had ended before, {resumed} trainings went on; the others ended after {slowest:.1f} s at most")
    if killed == 0 or resumed == 0:
        raise SystemExit("nothing was tried")


with tempfile.TemporaryDirectory() as scratch:
    main(pathlib.Path(scratch))
