#!/usr/bin/env python3
"""sweep.py BUILD [STEPS]: little memory, little stack and deep files: every program succeeds or says why it cannot.

Address space goes from 16 MiB to what each program needs in STEPS (60) steps, the stack from 128 KiB to 8 MiB, the depth
of JSON to a million. A signal, an empty error, or a file left behind is a failure."""
import os
import resource
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tiny_gguf import tiny_llama  # noqa: E402

build = os.path.abspath(sys.argv[1])
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 60
MIB = 1 << 20
STACKS_KIB = [128, 144, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 2048, 4096, 8192]
DEPTHS = [10, 63, 64, 65, 100, 1000, 10000, 80000, 300000, 1000000]
tessera = f"{build}/cli/tessera"
environment = {**os.environ, "TESSERA_PROFILE": "none"}
failures = []


def limited(which, value):
    def apply():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if which is not None:
            resource.setrlimit(which, (value, value))
    return apply


def run(command, folder, which=None, value=0):
    """ "ok", "error" (with a message) or what was wrong."""
    before = set(os.listdir(folder))
    done = subprocess.run(command, capture_output=True, cwd=folder, env=environment, timeout=300,
                          preexec_fn=limited(which, value))
    left = sorted(name for name in set(os.listdir(folder)) - before if ".tmp-" in name or ".saving" in name)
    for name in set(os.listdir(folder)) - before:
        subprocess.run(["rm", "-rf", os.path.join(folder, name)], check=True)
    if done.returncode < 0 or done.returncode >= 128:
        return f"signal {signal.Signals(abs(done.returncode) % 128).name}"
    if left:
        return f"left {left}"
    if done.returncode == 0:
        return "ok"
    return "error" if done.stderr.strip() else "an error without a word"


def sweep(name, what, command, folder, points, unit):
    counts, least = {}, None
    for which, value in points:
        outcome = run(command, folder, which, value)
        counts[outcome] = counts.get(outcome, 0) + 1
        if outcome == "ok":
            least = value if least is None else min(least, value)
        elif outcome != "error":
            failures.append(f"{name}, {what} {value // unit}: {outcome}")
    others = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if outcome not in ("ok", "error"))
    enough = "none" if least is None else f"{least // unit}"
    print(f"limits | {name:<12} | {what:<18} | {len(points):>3} runs | {counts.get('ok', 0):>3} ok | "
          f"{counts.get('error', 0):>3} errors | {others or 'no signal'} | enough: {enough}", flush=True)
    return counts


def main():
    with tempfile.TemporaryDirectory() as folder:
        tiny_llama(f"{folder}/tiny.gguf")
        with open(f"{folder}/text.txt", "w") as file:
            file.write("the quick brown fox jumps over the lazy dog. " * 100)
        new = ["new", "llama:L=2,C=64,H=2,F=128,V=256,T=64", "--tokenizer", "bytes", "-o", "model.tsr"]
        wide = ["new", "llama:L=1,C=256,H=1,F=64,V=256,T=64", "--tokenizer", "bytes", "-o", "wide.tsr"]
        for command in (new, wide):
            subprocess.run([tessera, *command], cwd=folder, env=environment, check=True, capture_output=True)
        train = [tessera, "train", "model.tsr", "--data", "text.txt", "--seq", "32", "--batch", "4", "--steps", "3",
                 "--out", "out.tsr", "--overwrite"]
        programs = {
            "import": [tessera, "import", "tiny.gguf", "-o", "out.tsr"],
            "plan": [tessera, "plan", "model.tsr", "--devices", "cpu:4", "--batch", "8", "--seq", "32"],
            "plan absent": [tessera, "plan", "gpt2:L=12,C=768,H=12,V=50257,T=1024", "--cluster", "dgx-a100-80gb:8"],
            "train": [*train, "--threads", "2"],
            "train, 2": [*train, "--devices", "cpu:2"],
            "train, D=256": ["wide.tsr" if word == "model.tsr" else word for word in train],
            "generate": [tessera, "generate", "model.tsr", "--prompt", "the", "-n", "8"],
            "C program": [f"{build}/samples/c/finetune", "model.tsr", "text.txt", "out.tsr", "cpu:2", "3"],
            "C generate": [f"{build}/samples/c/generate", "model.tsr", "the"],
        }
        for name, command in programs.items():
            if run(command, folder) != "ok":
                failures.append(f"{name}: fails without limits")
                continue
            enough = 32 * MIB
            while run(command, folder, resource.RLIMIT_AS, enough) != "ok" and enough < 1 << 40:
                enough *= 2
            low, high = 16 * MIB, enough
            points = [low + (high - low) * step // max(1, STEPS - 1) for step in range(STEPS)]
            sweep(name, "address space, MiB", command, folder, [(resource.RLIMIT_AS, value) for value in points], MIB)
            stacks = [(resource.RLIMIT_STACK, kib << 10) for kib in STACKS_KIB]
            counts = sweep(name, "stack, KiB", command, folder, stacks, 1024)
            if counts.get("ok", 0) != len(stacks):
                failures.append(f"{name}: wants more stack than 128 KiB")

        sentence = ["plan", "gpt2:L=12,C=768,H=12,V=50257,T=1024"]
        readers = {
            "cluster": [tessera, *sentence, "--cluster", "deep.json"],
            "certificate": [tessera, "plan", "--check", "deep.json"],
            "pins": [tessera, "plan", "model.tsr", "--pins", "deep.json"],
            "profile": [tessera, "plan", "model.tsr", "--profile", "deep.json"],
            "plan": [*train, "--plan", "deep.json"],
        }
        for name, command in readers.items():
            outcomes = {}
            for depth in DEPTHS:
                for text in ("[" * depth + "]" * depth, '{"kinds":' * depth + "0" + "}" * depth, "[" * depth):
                    with open(f"{folder}/deep.json", "w") as file:
                        file.write(text)
                    outcome = run(command, folder)
                    outcomes[outcome] = outcomes.get(outcome, 0) + 1
                    if outcome != "error":
                        failures.append(f"{name}, JSON of depth {depth}: {outcome}")
            print(f"limits | {name:<12} | JSON to depth 10^6 | {sum(outcomes.values()):>3} runs | "
                  f"{outcomes.get('ok', 0):>3} ok | {outcomes.get('error', 0):>3} errors", flush=True)
    for failure in failures:
        print(f"FAILED: {failure}")
    sys.exit(1 if failures else 0)


main()
