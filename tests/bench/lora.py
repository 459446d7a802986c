#!/usr/bin/env python3
"""lora.py TESSERA MODEL.gguf [--batch 8] [--seq 512] [--threads 2] [--steps 3] [--rank 16]: adapters trained here and by PyTorch with PEFT.

LoRA of rank 16 on all linear modules but the head, AdamW, f32, on the CPU. PyTorch trains the file's values in f32, from a Hugging
Face folder that Tessera exports, with its scaled_dot_product_attention; Tessera the same folder, and the file as it is. Each runs in a
process of its own, one after another. Prints tokens a second (median of the steps after the first) and the peak of resident memory, and
whether Tessera is twice as fast in half of the memory, and over the file's blocks, with a memory limit, in a quarter of it. The figures mean something on a
machine that does nothing else. Needs torch, transformers and peft (PyPI) in the Python that runs it."""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tessera")
parser.add_argument("model", help="a GGUF file of a Llama, such as SmolLM2-135M-Instruct.Q4_1.gguf")
for name, value in (("batch", 8), ("seq", 512), ("threads", 2), ("steps", 3), ("rank", 16)):
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--torch", help=argparse.SUPPRESS)  # a folder: this process is PyTorch's side
args = parser.parse_args()


def torch_side():
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    import peft
    import torch
    import transformers
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.torch, dtype=torch.float32, attn_implementation="sdpa")
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=args.rank, lora_alpha=args.rank, target_modules="all-linear"))
    model.config.use_cache = False
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    ids = torch.randint(0, model.config.vocab_size, (args.batch, args.seq))
    seconds = []
    for _ in range(args.steps + 1):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"tokens_per_second": args.batch * args.seq / statistics.median(seconds[1:]),
                      "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))


def measured(words):
    """The process's last line as JSON, and its peak of resident memory."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen([str(word) for word in words], stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        if status != 0:
            sys.exit(f"{words[0]} failed")
        out.seek(0)
        return json.loads(out.read().decode().strip().splitlines()[-1]), 1024 * usage.ru_maxrss


def ours(model, text, limit=None):
    report, peak = measured([args.tessera, "train", model, "--data", text, "--eval-fraction", 0, "--batch", args.batch, "--seq", args.seq,
                             "--steps", args.steps + 1, "--lora", args.rank, "--lora-on", "all-linear", "--threads", args.threads,
                             "--profile", "none", "--checkpoint-every", 0, "--json", "--quiet",
                             *(["--memory-limit", limit] if limit else [])])
    arena = report["devices"][0]["arena_bytes"]
    return {"tokens_per_second": report["tokens_per_second"], "peak_bytes": peak, "arena_bytes": arena["predicted"]}


def main():
    if args.torch:
        return torch_side()
    with tempfile.TemporaryDirectory() as folder:
        base, text = pathlib.Path(folder) / "base", pathlib.Path(folder) / "text.txt"
        path = pathlib.Path(args.model).resolve()
        subprocess.run([args.tessera, "export", path, "--format", "hf", "--type", "f32", "-o", base, "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
        text.write_text((pathlib.Path(__file__).resolve().parents[2] / "docs/notes/planning.md").read_text() * 20)
        theirs, _ = measured([sys.executable, __file__, args.tessera, args.model, "--torch", base, *(f"--{name}={getattr(args, name)}"
                              for name in ("batch", "seq", "threads", "steps", "rank"))])
        rows = {"PyTorch + PEFT, f32": theirs, "Tessera, f32": ours(base, text), f"Tessera, {path.name}": ours(path, text),
                "the same, with a limit": ours(path, text, int(0.23 * theirs["peak_bytes"]))}
    print(f"{'':44}{'tokens/s':>10}{'times':>7}{'peak MiB':>10}{'share':>7}")
    for name, row in rows.items():
        print(f"{name:44}{row['tokens_per_second']:10.1f}{row['tokens_per_second'] / theirs['tokens_per_second']:7.2f}"
              f"{row['peak_bytes'] / 2**20:10.0f}{row['peak_bytes'] / theirs['peak_bytes']:7.2f}")
    _, single, _, narrow = rows.values()
    wanted = {"twice as fast": single["tokens_per_second"] >= 2 * theirs["tokens_per_second"],
              "half of the memory": single["peak_bytes"] <= theirs["peak_bytes"] / 2,
              "a quarter over blocks": narrow["peak_bytes"] <= theirs["peak_bytes"] / 4}
    print(", ".join(f"{what}: {'yes' if holds else 'no'}" for what, holds in wanted.items()))


if __name__ == "__main__":
    main()
