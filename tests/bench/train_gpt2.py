#!/usr/bin/env python3
"""A GPT-2 124M training step (f32, AdamW, B = 4, T = 128): `tessera bench` against PyTorch, alternating.

    tests/bench/train_gpt2.py --build build [--rounds 3] [--torch /usr/bin/python3] [--torch venv/bin/python]

Every round measures the ceilings of the machine, then each contestant in turn, so that what disturbs one disturbs all.
Printed: medians over the rounds, how many times each peer's speed ours is, our share of the floor, and peak resident
memory. The floor of a step is its products, attention's unmasked, at the rate of a 2048^3 product in the same round (388
GFLOP for the default shape), plus 28 bytes a parameter (AdamW reads p, g, m, v and writes p, m, v) at triad rate."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build", help="build folder with cli/tessera and tests/bench")
parser.add_argument("--torch", action="append", default=[], help="a Python with PyTorch; may be repeated")
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--channels", type=int, default=768)
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--vocabulary", type=int, default=50257)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--seq", type=int, default=128)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--steps", type=int, default=3, help="counted steps a round and contestant")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--json", action="store_true")
args = parser.parse_args()

build = pathlib.Path(args.build)
here = pathlib.Path(__file__).resolve().parent
steps = [f"--{name}={getattr(args, name)}" for name in ("batch", "seq", "threads", "steps")]
model = f"gpt2:L={args.layers},C={args.channels},H={args.heads},V={args.vocabulary},T=1024"
tokens = args.batch * args.seq
block_weights = args.layers * 12 * args.channels ** 2
# Products: forward, and two backward; attention's two products forward and five backward.
flops = 6 * tokens * (block_weights + args.vocabulary * args.channels)
flops += args.layers * 14 * args.batch * args.seq ** 2 * args.channels
parameters = block_weights + args.layers * 13 * args.channels + (args.vocabulary + 1024 + 2) * args.channels


def run(command):
    """The JSON object on the last line of stdout, and the peak resident bytes of the child."""
    environment = dict(os.environ, OMP_WAIT_POLICY="PASSIVE")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        out = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {child.returncode}\n{out}")
    return json.loads(out.strip().splitlines()[-1]), usage.ru_maxrss * 1024


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def tessera():
    command = [build / "cli/tessera", "bench", model, "--devices", "cpu:1", "--threads", str(args.threads),
               "--batch", str(args.batch), "--seq", str(args.seq), "--steps", str(args.steps), "--json"]
    result, rss = run(list(map(str, command)))
    return {"step_seconds": result["step_seconds"], "rss": rss, "plan": result.get("plan")}


def torch(python):
    result, rss = run([python, str(here / "torch_train.py"), model, *steps])
    return {"step_seconds": result["step_seconds"], "rss": rss, "version": result["version"]}


pythons = args.torch or ["/usr/bin/python3"]
peers = [python for python in pythons if has_torch(python)]
for python in pythons:
    if python not in peers:
        print(f"skipped: {python} has no PyTorch (Debian: python3-torch)", file=sys.stderr)

rounds = []
for index in range(args.rounds):
    ceilings, _ = run([str(build / "tests/bench_ceilings"), str(args.threads)])
    floor = flops / ceilings["product_flops_per_s"] + 28 * parameters / ceilings["triad_bytes_per_s"]
    ours = tessera()
    theirs = {python: torch(python) for python in peers}
    rounds.append({"ceilings": ceilings, "floor_seconds": floor, "tessera": ours, "peers": theirs})
    print(f"round {index + 1}: floor {floor:.3f} s, tessera {ours['step_seconds']:.3f} s, " +
          ", ".join(f"torch {t['version']} {t['step_seconds']:.3f} s" for t in theirs.values()), file=sys.stderr)

median = statistics.median
report = {
    "flops": flops, "parameters": parameters,
    "floor_seconds": median(r["floor_seconds"] for r in rounds),
    "tessera_seconds": median(r["tessera"]["step_seconds"] for r in rounds),
    "share_of_floor": median(r["floor_seconds"] / r["tessera"]["step_seconds"] for r in rounds),
    "tessera_peak_rss_bytes": max(r["tessera"]["rss"] for r in rounds),
    "peers": [{
        "version": rounds[0]["peers"][python]["version"],
        "seconds": median(r["peers"][python]["step_seconds"] for r in rounds),
        "ratio": median(r["peers"][python]["step_seconds"] / r["tessera"]["step_seconds"] for r in rounds),
        "peak_rss_bytes": max(r["peers"][python]["rss"] for r in rounds),
    } for python in peers],
}
if args.json:
    print(json.dumps(report))
else:
    print(f"{model}, B={args.batch}, T={args.seq}, {args.threads} threads, f32, AdamW: {flops * 1e-9:.0f} GFLOP, "
          f"{parameters * 1e-6:.0f} M parameters; medians of {args.rounds} rounds")
    print(f"  floor             {report['floor_seconds']:.3f} s")
    print(f"  tessera           {report['tessera_seconds']:.3f} s  {100 * report['share_of_floor']:.0f} % of the floor  "
          f"{report['tessera_peak_rss_bytes'] / 2**20:.0f} MiB")
    for peer in report["peers"]:
        print(f"  torch {peer['version']:<12} {peer['seconds']:.3f} s  ours is {peer['ratio']:.2f} times as fast  "
              f"{peer['peak_rss_bytes'] / 2**20:.0f} MiB")
