#!/usr/bin/env python3
"""parity.py TESSERA MODEL TEXT: 20 training steps under many layouts against one device.

Losses within 1e-5 relative (f32 sums in another order; the largest seen is printed), predicted arena = measured, no
allocation after the first step, and communicated bytes equal to the formulas of data parallelism and ZeRO."""
import json
import subprocess
import sys

tessera, model, text = sys.argv[1:4]
STEPS, BATCH, SEQ = 20, 12, 32
COMMON = ["--data", text, "--steps", str(STEPS), "--batch", str(BATCH), "--seq", str(SEQ), "--lr", "1e-3", "--seed", "7",
          "--clip-norm", "0", "--eval-fraction", "0", "--json"]


def train(*options):
    run = subprocess.run([tessera, "train", model, *COMMON, *options], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(options)}: exit {run.returncode}: {run.stderr.strip()}")
    return json.loads(run.stdout.splitlines()[-1])


def total(result, axis):
    return sum(c["bytes"] for c in result["comm"] if c["axis"] == axis)


parameters = json.loads(subprocess.run([tessera, "inspect", model, "--json"], capture_output=True, text=True,
                                       check=True).stdout.splitlines()[-1])["parameter_bytes"]
one = train("--devices", "cpu:1")
failures = 0


def row(name, result, wanted_dp=None):
    global failures
    worst = max(abs(a - b) / abs(b) for a, b in zip(result["losses"], one["losses"]))
    arenas = [d["arena_bytes"] for d in result["devices"]]
    exact = all(a["predicted"] == a["measured"] for a in arenas)
    dp = total(result, "dp")
    # The loss scalar itself is all-reduced over dp: 2 (N-1) 4 bytes a step.
    ok = worst <= 1e-5 and exact and result["allocations_after_first_step"] == 0 and len(result["losses"]) == STEPS
    note = ""
    if wanted_dp is not None:
        ok &= dp == wanted_dp
        note = f"  dp bytes {dp} wanted {wanted_dp}"
    failures += not ok
    print(f"{'ok ' if ok else 'BAD'} {name:24} worst {worst:.1e}  arena {'=' if exact else '!='} "
          f"{max(a['predicted'] for a in arenas)}{note}")


row("single", one)


def volume(n, gathers, scalars=1):
    """gathers in units of (N-1) * parameter bytes a step, plus all-reduced scalars: the loss, and where gradients are
    spread (zero >= 1) the square of their norm."""
    return STEPS * ((n - 1) * parameters * gathers + scalars * 2 * (n - 1) * 4)


for name, devices, wanted in [
        ("dp=4", 4, volume(4, 2)), ("tp=4", 4, None), ("tp=3", 3, None), ("dp=2,tp=2", 4, None), ("tp=4,sp", 4, None),
        ("dp=4,zero=1", 4, volume(4, 2, 2)), ("dp=4,zero=2", 4, volume(4, 2, 2)), ("dp=4,zero=3", 4, volume(4, 3, 2)),
        ("dp=3,tp=2,zero=2", 6, None), ("dp=2,mb=3", 2, volume(2, 2)), ("dp=2,zero=2,mb=3", 2, volume(2, 3, 2)),
        ("dp=2,zero=3,mb=3", 2, volume(2, 6, 2))]:
    row(name, train("--devices", f"cpu:{devices}", "--parallel", name), wanted)

# A limit under which nothing unsharded fits: three quarters of what plain data parallelism holds.
plain = train("--devices", "cpu:4", "--parallel", "dp=4,zero=0")["devices"][0]["arena_bytes"]["predicted"]
tight = train("--devices", "cpu:4", "--memory-limit", str(plain * 3 // 4))
row(f"planner: {tight['plan']['strategy']}", tight)
if max(d["arena_bytes"]["predicted"] for d in tight["devices"]) > plain * 3 // 4:
    sys.exit("the planner's choice is over its limit")
sys.exit(failures > 0)
