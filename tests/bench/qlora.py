#!/usr/bin/env python3
"""Held-out loss and bytes of a fine-tuned model: all weights, adapters over f32, and adapters over a quantised base.

usage: qlora.py TESSERA MODEL --data TEXT [--steps N] [--seq N] [--batch N] [--rank N] [--types q8_0,q4_k_m,q4_0,nf4]
                [--folder FOLDER]

TEXT is cut into rows at empty lines; the last tenth, --held-bytes at most, is held out. MODEL (GGUF, .tsr or a folder) is made f32 first, and the types from that; files stay in FOLDER for the next call. Every
run has the same steps, data and seed; the rate of all weights is a tenth of the adapters'. "before" is the held-out loss
of the base, "after" of what was trained, base_bytes its file. Nothing here is a test."""
import argparse
import json
import os
import subprocess
import tempfile


def run(tessera, *words):
    done = subprocess.run([tessera, *map(str, words), "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.strip().splitlines() if line.startswith("{")]


def write_rows(path, folder, most):
    """Paragraphs as rows: the last tenth, `most` bytes at most, in held.jsonl, the others in rows.jsonl, whose path is returned."""
    with open(path) as file:
        rows = [json.dumps({"text": text.strip()}) for text in file.read().split("\n\n") if text.strip()]
    held, size = [], 0
    while rows and size < most and len(held) < (len(held) + len(rows)) // 10:
        held.append(rows.pop())
        size += len(held[-1])
    for name, part in (("held", held), ("rows", rows)):
        with open(os.path.join(folder, name + ".jsonl"), "w") as file:
            file.write("\n".join(part) + "\n")
    return os.path.join(folder, "rows.jsonl")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--held-bytes", type=int, default=16384)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--types", default="q8_0,q4_k_m,q4_0,nf4")
    parser.add_argument("--folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or scratch
        wide = os.path.join(folder, "f32.tsr")

        def made(name, source):
            path = os.path.join(folder, name + ".tsr")
            if not os.path.exists(path):
                run(args.tessera, "quantize", source, path, "--type", name)
            return path

        made("f32", args.model)
        shape = ["--seq", args.seq, "--batch", args.batch]
        common = ["--data", write_rows(args.data, scratch, args.held_bytes), "--eval-file", os.path.join(scratch, "held.jsonl"), *shape,
                  "--steps", args.steps, "--warmup", max(1, args.steps // 10), "--checkpoint-every", 0]
        runs = [("all weights", wide, ["--lr", args.lr / 10])]
        lora = ["--lora", args.rank, "--lora-alpha", 2 * args.rank, "--lr", args.lr]
        runs.append(("LoRA, f32", wide, lora))
        runs += [(f"QLoRA, {name}", made(name, wide), lora) for name in args.types.split(",")]
        print(f"{'':16} {'base_bytes':>12} {'before':>8} {'after':>8}", flush=True)
        for name, base, words in runs:
            before = run(args.tessera, "eval", base, "--data", os.path.join(scratch, "held.jsonl"), *shape)[-1]["eval_loss"]
            after = run(args.tessera, "train", base, *common, *words)[-1]["eval_loss"]
            print(f"{name:16} {os.path.getsize(base):12} {before:8.4f} {after:8.4f}", flush=True)


main()
