#!/usr/bin/env python3
"""Predicted against measured step times: models of several widths, on one device and in each form of parallelism.

usage: step_prices.py TESSERA [--profile FILE|none|auto] [--steps N] [--widths 64,256,768] [--forms "dp=1;dp=2;..."]

Make the profile first (`tessera calibrate`), and let nothing else run. Nothing here is a test: the last line gives the
median and the largest error."""
import argparse
import json
import os
import subprocess
import tempfile

WIDTHS = {64: (4, 2, 256, 8, 128), 128: (4, 4, 1024, 8, 128), 256: (4, 8, 2048, 8, 128), 384: (3, 6, 4096, 8, 128),
          768: (2, 12, 8192, 4, 128)}  # C: L, H, V, batch, tokens
FORMS = ["dp=1", "dp=2", "tp=2", "pp=2:1f1b,mb=2", "dp=2,zero=1", "dp=2,zero=3"]


def run(tessera, *words):
    done = subprocess.run([tessera, *words, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def simulated(path):
    with open(path) as file:
        events = json.load(file)
    events = events["traceEvents"] if isinstance(events, dict) else events
    return max(e["ts"] + e["dur"] for e in events if e.get("ph") == "X") * 1e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--profile", default="auto")
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)))
    parser.add_argument("--forms", default=";".join(FORMS))
    args = parser.parse_args()
    errors = []
    print(f"{'model':44} {'strategy':16} {'predicted':>11} {'simulated':>11} {'measured':>11}  error")
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        for width in map(int, args.widths.split(",")):
            layers, heads, vocabulary, batch, tokens = WIDTHS[width]
            for form in args.forms.split(";"):
                model = f"gpt2:L={layers},C={width},H={heads},V={vocabulary},T={tokens}"
                devices = 1 if form == "dp=1" else 2
                common = [model, "--devices", f"cpu:{devices}", "--parallel", form, "--batch", str(batch), "--seq",
                          str(tokens), "--profile", args.profile]
                plan = run(args.tessera, "plan", *common, "--trace", trace)
                measured = run(args.tessera, "bench", *common, "--steps", str(args.steps))["step_seconds"]
                paper = simulated(trace)
                errors.append(paper / measured - 1)
                print(f"{model:44} {form:16} {1e3 * plan['predicted_step_seconds']:8.2f} ms {1e3 * paper:8.2f} ms "
                      f"{1e3 * measured:8.2f} ms  {100 * errors[-1]:+.0f} %", flush=True)
    sizes = sorted(abs(e) for e in errors)
    print(f"simulated: median {100 * sizes[len(sizes) // 2]:.1f} %, largest {100 * sizes[-1]:.1f} % of {len(sizes)}")


if __name__ == "__main__":
    main()
