#!/usr/bin/env python3
"""llama_torch.py TESSERA MODEL.gguf TEXT: an independent Llama in PyTorch against the `tessera` command.

Loss of the model on a text, and ten AdamW steps, each over the whole text, so that the order of samples does not
matter. Needs torch and numpy; never part of `./dev test`."""
import json
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch

SEQ, STEPS, LR = 64, 10, 1e-3


def read_gguf(path):
    """Metadata and f32 tensors of a small trusted GGUF file."""
    data = open(path, "rb").read()
    at = 8

    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value[0]

    def string():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode(errors="replace")

    def value(kind):
        scalars = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
        if kind == 8:
            return string()
        if kind == 9:
            inner, n = take("I"), take("Q")
            return [value(inner) for _ in range(n)]
        return take(scalars[kind])

    count, keys = take("Q"), take("Q")
    metadata = {}
    for _ in range(keys):
        key = string()
        metadata[key] = value(take("I"))
    tensors = []
    for _ in range(count):
        name = string()
        dims = [take("Q") for _ in range(take("I"))]
        tensors.append((name, dims[::-1], take("I"), take("Q")))
    at = (at + 31) // 32 * 32
    out = {}
    for name, dims, kind, offset in tensors:
        assert kind == 0, f"{name}: only f32 here"
        flat = np.frombuffer(data, np.float32, int(np.prod(dims)), at + offset)
        out[name] = torch.tensor(flat.reshape(dims).copy(), requires_grad=True)
    return metadata, out


def rope(x, theta):
    b, t, h, d = x.shape
    angle = torch.arange(t)[:, None] * theta ** (-torch.arange(0, d, 2) / d)[None, :]
    c, s = angle.cos()[None, :, None, :], angle.sin()[None, :, None, :]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * c - odd * s, even * s + odd * c], -1).reshape(b, t, h, d)


def loss_of(metadata, w, ids):
    heads, kv = metadata["llama.attention.head_count"], metadata["llama.attention.head_count_kv"]
    eps = metadata["llama.attention.layer_norm_rms_epsilon"]
    theta = metadata.get("llama.rope.freq_base", 10000.0)
    x = w["token_embd.weight"][ids[:, :-1]]
    b, t, c = x.shape
    d = c // heads
    norm = lambda x, g: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * g
    mask = torch.full((t, t), float("-inf")).triu(1)
    for i in range(metadata["llama.block_count"]):
        p = lambda name: w[f"blk.{i}.{name}.weight"]
        h = norm(x, p("attn_norm"))
        q = rope((h @ p("attn_q").T).view(b, t, heads, d), theta).transpose(1, 2)
        k = rope((h @ p("attn_k").T).view(b, t, kv, d), theta).transpose(1, 2).repeat_interleave(heads // kv, 1)
        v = (h @ p("attn_v").T).view(b, t, kv, d).transpose(1, 2).repeat_interleave(heads // kv, 1)
        scores = (q @ k.transpose(-1, -2)) / d**0.5 + mask
        x = x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c) @ p("attn_output").T
        h = norm(x, p("ffn_norm"))
        x = x + (torch.nn.functional.silu(h @ p("ffn_gate").T) * (h @ p("ffn_up").T)) @ p("ffn_down").T
    logits = norm(x, w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def tessera(*arguments):
    run = subprocess.run([sys.argv[1], *arguments, "--json"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


def main():
    _, gguf, text = sys.argv[1:]
    metadata, weights = read_gguf(gguf)
    with tempfile.NamedTemporaryFile("wb", suffix=".txt") as part:
        part.write(open(text, "rb").read()[:6000])
        part.flush()
        ids = tessera("tokenize", gguf, "--file", part.name)["ids"]
        samples = (len(ids) - 1) // SEQ
        batch = torch.tensor([ids[i * SEQ:(i + 1) * SEQ + 1] for i in range(samples)])
        ours = tessera("train", gguf, "--data", part.name, "--steps", str(STEPS), "--batch", str(samples), "--seq", str(SEQ),
                       "--lr", str(LR), "--clip-norm", "0", "--eval-fraction", "0")["losses"]
    # Matrices decay, norms do not.
    decays = [[w for w in weights.values() if (w.dim() > 1) == matrices] for matrices in (True, False)]
    optimizer = torch.optim.AdamW([{"params": decays[0], "weight_decay": 0.01}, {"params": decays[1], "weight_decay": 0.0}], lr=LR)
    worst = 0.0
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(metadata, weights, batch)
        loss.backward()
        optimizer.step()
        worst = max(worst, abs(ours[step] - loss.item()) / loss.item())
        print(f"step {step + 1}: tessera {ours[step]:.7f}  torch {loss.item():.7f}")
    print(f"worst relative difference {worst:.1e} (torch {torch.__version__})")
    sys.exit(worst > 1e-4)


main()
