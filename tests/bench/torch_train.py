#!/usr/bin/env python3
"""One GPT-2 training step in PyTorch, for comparison: f32, AdamW, tied embedding, causal attention, random tokens.

Runs with any PyTorch: `/usr/bin/python3` with Debian's python3-torch, or a virtual environment with a newer one. Prints
one JSON object: {"version", "threads", "seconds": [per step], "step_seconds": median, "peak_rss_bytes", "loss"}."""
import argparse
import json
import os
import resource
import statistics
import time

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--channels", type=int, default=768)
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--vocabulary", type=int, default=50257)
parser.add_argument("--context", type=int, default=1024)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--seq", type=int, default=128)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--steps", type=int, default=5, help="counted steps, after one that is not")
args = parser.parse_args()

# set_num_threads alone does not reach the BLAS library inside.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = str(args.threads)
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch  # noqa: E402: after the thread settings
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

torch.set_num_threads(args.threads)
torch.manual_seed(1)
FUSED_ATTENTION = hasattr(F, "scaled_dot_product_attention")


def gelu(x):
    return F.gelu(x, approximate="tanh")


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(C, dim=2))
        if FUSED_ATTENTION:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (C // self.heads) ** -0.5
            y = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(gelu(self.up(self.norm2(x))))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(args.vocabulary, args.channels)
        self.positions = nn.Embedding(args.context, args.channels)
        self.blocks = nn.ModuleList(Block(args.channels, args.heads) for _ in range(args.layers))
        self.norm = nn.LayerNorm(args.channels)

    def forward(self, ids):
        T = ids.shape[1]
        mask = torch.ones(T, T, dtype=torch.bool).triu(1)
        x = self.tokens(ids) + self.positions.weight[:T]
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x) @ self.tokens.weight.t()


model = GPT2()
for parameter in model.parameters():
    if parameter.dim() > 1:
        nn.init.normal_(parameter, std=0.02)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
ids = torch.randint(args.vocabulary, (args.batch, args.seq))
labels = torch.randint(args.vocabulary, (args.batch * args.seq,))

seconds, loss = [], None
for step in range(args.steps + 1):
    begin = time.perf_counter()
    loss = F.cross_entropy(model(ids).view(-1, args.vocabulary), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step > 0:
        seconds.append(time.perf_counter() - begin)

print(json.dumps({
    "version": torch.__version__,
    "threads": args.threads,
    "parameters": sum(p.numel() for p in model.parameters()),
    "seconds": seconds,
    "step_seconds": statistics.median(seconds),
    "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "loss": loss.item(),
}))
