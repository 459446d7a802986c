#!/usr/bin/env python3
"""Everything that the CUDA backend promises, on this machine's GPU, as one table: `./dev gpu` runs this (docs/notes/cuda.md says what each
line means). First, all at once, what has to be right, while PyTorch compiles; then, by itself, what is timed. Every section has a time
limit, none waits for another's success, and the limits add up to under nine minutes."""
import argparse
import concurrent.futures
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from decoding import WANTED, Decoding  # noqa: E402: next to this file
from kernels import Kernels, kernel_table  # noqa: E402
from run import Clock, Commands, Failed  # noqa: E402
from sizes import FULL, SMALL  # noqa: E402
from suites import Suites  # noqa: E402
from table import Table  # noqa: E402
from training import Peer, Training, python_with_torch  # noqa: E402

# Seconds: what has to be right and PyTorch's compiling, kernels, GPT-2, Llama; with those of decoding (sizes.py) 479.
CORRECT, KERNELS, GPT2, LLAMA = 175, 40, 45, 75
LATE = 20  # more for a PyTorch that has not compiled by then

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", required=True, help="folder with tests/, cli/tessera and capi/libtessera_cuda.so")
parser.add_argument("--libraries", default="", help="folders of cuBLASLt, NCCL and cuDNN, each after a colon")
parser.add_argument("--log", required=True, help="folder for what everything prints")
parser.add_argument("--only", default="", help="sections to run, comma-separated: correct, kernels, gpt2, llama, decode (default: all)")
parser.add_argument("--small", action="store_true", help="tiny sizes, for an emulator: every line runs, no figure means anything")
args = parser.parse_args()

sizes = SMALL if args.small else FULL
slower = 6 if args.small else 1  # an emulator's limits
clock = Clock(1e6)
own_path = os.environ.get("LD_LIBRARY_PATH", "")
build = os.path.abspath(args.build)
commands = Commands(os.path.abspath(args.log), {
    **os.environ, "TESSERA_TEST_BACKEND": "cuda", "TESSERA_PLUGIN_PATH": f"{build}/capi", "TESSERA_PROFILE": "none",
    "LD_LIBRARY_PATH": f"{build}/lib:{build}/capi{args.libraries}"})
chosen = [word for word in args.only.split(",") if word] or ["correct", "kernels", "gpt2", "llama", "decode"]
table, texts = Table(), []


def say(text):
    print(f"[{clock.spent():5.0f} s] {text}", flush=True)


def section(name, work):
    """Runs it; whatever happens, what it did not measure says why, and the next one runs."""
    say(name)
    try:
        work()
    except Failed as failed:
        table.give_up(name, failed)
    except Exception as error:  # noqa: BLE001: of a script that meets its first GPU
        table.give_up(name, f"{type(error).__name__}: {error}")


# The order of the table.
suites = Suites(commands, build, sizes, table)
kernels = Kernels(commands, build, args.small, table)
training = [Training(commands, build, model, table) for model in (sizes.gpt2, sizes.llama)]
decoding = [Decoding(commands, build, model, table) for model in sizes.decoded]

peers, ready, no_peer = {}, {}, {}
for model in (sizes.gpt2, sizes.llama):
    no_peer[model.family] = "not started"
    if model.family in chosen:
        try:
            peers[model.family] = Peer(commands, model, args.small, python_with_torch(), own_path)
        except OSError as error:
            no_peer[model.family] = str(error)
        time.sleep(1)  # the first takes the lock first

correct_until = clock.spent() + CORRECT * slower
if "correct" in chosen:
    say("suites, sanitizers, learning")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        futures = suites.start(pool, (CORRECT - 5) * slower)
        for future in concurrent.futures.as_completed(futures):
            if future.exception() is not None:
                table.give_up(futures[future], future.exception())


def await_peer(family, limit):
    """Whether PyTorch has compiled the model; where it failed, it is gone."""
    if family in ready or family not in peers:
        return
    try:
        ready[family] = peers[family].answer(limit)
        say(f"PyTorch {ready[family]['version']} has compiled {family} in {ready[family]['warm_up_seconds']:.0f} s")
    except (Failed, ValueError) as failed:
        no_peer[family] = failed
        if peers[family].process.poll() is not None:
            peers.pop(family).close()


for family in list(peers):
    await_peer(family, max(1, correct_until - clock.spent()))

if "kernels" in chosen:
    section("kernels", lambda: kernels.measure(KERNELS * slower))
ceilings = kernels.rates.options()
for one, limit in zip(training, (GPT2, LLAMA)):
    family = one.model.family
    if family not in chosen:
        continue
    await_peer(family, LATE)  # slow work continued during the timings
    peer = peers.pop(family, None)
    section(one.section, lambda: one.measure(peer if family in ready else None, no_peer[family], limit * slower, ceilings))
    if peer is not None:
        peer.close()
if "decode" in chosen:
    for one in decoding:
        for weights in WANTED:
            section(one.section(weights), lambda: one.measure(weights, kernels.rates, ceilings))

if kernels.lines:
    print("\nkernels (of f32 the slow ones), time and share of the copy's rate or of the product's:\n" + kernels.text())
for title, times, rows in [("GPT-2 step", training[0].kernels, 15), ("Llama step", training[1].kernels, 9),
                           ("token of 1.5B bf16", decoding[0].kernels, 9)]:
    if times:
        print("\n" + kernel_table(title, times, rows))
with open(os.path.join(commands.log_folder, "table.json"), "w") as out:
    json.dump(table.rows, out, indent=1)
print(f"\n{table.text()}")
print(f"total {clock.spent() / 60:.1f} of 9 min; logs in {args.log}")
passed, short, missing = table.counts()
sys.exit(0 if short + missing == 0 else 1)
