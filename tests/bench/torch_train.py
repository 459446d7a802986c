#!/usr/bin/env python3
"""Training steps of a language model in PyTorch, for comparison with `tessera bench` on the same description:

    torch_train.py gpt2:L=12,C=768,H=12,V=50257,T=1024 --batch 4 --seq 128 [--threads 2]
    torch_train.py llama:L=28,C=2048,H=16,KV=8,F=5632,V=32000,T=2048 --batch 4 --seq 2048 --device cuda --precision bf16 --compile

AdamW without clipping (fused on CUDA), causal attention by scaled_dot_product_attention where PyTorch has it, random tokens. GPT-2
ties its embedding and head; Llama has grouped keys and values, rotary positions, RMS norms and SwiGLU. bf16 is autocast over f32
parameters, gradients and optimizer state. Runs with any PyTorch, on the CPU also with Debian's python3-torch.

Prints one JSON object: {"version", "parameters", "seconds": [per step], "step_seconds": median, "loss", "peak_rss_bytes"} and, on
CUDA, "allocated_bytes" and "reserved_bytes" at their peaks, those of compiling left out. With --serve it compiles and warms up,
prints {"ready": true, ...}, then runs --steps steps and prints such an object for each line on its standard input; between them it
gives back what its allocator keeps beyond parameters and optimizer state."""
import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", help="as tessera takes it: gpt2:L=,C=,H=,V=,T= or llama:L=,C=,H=,KV=,F=,V=,T=")
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--seq", type=int, default=128)
parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as PyTorch likes")
parser.add_argument("--steps", type=int, default=5, help="counted steps, after warming up")
parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
parser.add_argument("--precision", default="f32", choices=["f32", "bf16"])
parser.add_argument("--compile", action="store_true", help="torch.compile the whole model with its loss")
parser.add_argument("--serve", action="store_true")
parser.add_argument("--lock", help="file locked while compiling and warming up: of several, one at a time takes device memory")
args = parser.parse_args()

if args.threads:  # set_num_threads alone does not reach the BLAS library inside
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch  # noqa: E402: after the thread settings
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

if args.threads:
    torch.set_num_threads(args.threads)
torch.manual_seed(1)
device = torch.device(args.device)
family, _, text = args.model.partition(":")
shape = {key: int(value) for key, value in (item.split("=") for item in text.split(","))}
L, C, H, V, T = (shape[key] for key in "LCHVT")
KV = shape.get("KV", H)


def attend(q, k, v):
    """q [B, H, T, D], k and v [B, KV, T, D] -> [B, T, C]."""
    B, heads, rows, D = q.shape
    if hasattr(F, "scaled_dot_product_attention"):
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, **({"enable_gqa": True} if KV != H else {}))
    else:
        mask = torch.ones(rows, rows, dtype=torch.bool).triu(1)
        k, v = (x.repeat_interleave(H // KV, dim=1) for x in (k, v))
        y = torch.softmax(((q @ k.transpose(-2, -1)) * D ** -0.5).masked_fill(mask, float("-inf")), dim=-1) @ v
    return y.transpose(1, 2).reshape(B, rows, heads * D)


def heads_of(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, C // H).transpose(1, 2)


class Gpt2Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x, _):
        q, k, v = (heads_of(part, H) for part in self.qkv(self.norm1(x)).split(C, dim=2))
        x = x + self.out(attend(q, k, v))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(C))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def rotate(x, angles):
    """x [B, heads, T, D], angles (cos, sin) [T, D / 2]."""
    cos, sin = angles
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self):
        super().__init__()
        D = C // H
        self.norm1, self.norm2 = RmsNorm(), RmsNorm()
        self.q, self.k, self.v = (nn.Linear(C, n * D, bias=False) for n in (H, KV, KV))
        self.o = nn.Linear(C, C, bias=False)
        self.gate, self.up = nn.Linear(C, shape["F"], bias=False), nn.Linear(C, shape["F"], bias=False)
        self.down = nn.Linear(shape["F"], C, bias=False)

    def forward(self, x, angles):
        h = self.norm1(x)
        q, k = rotate(heads_of(self.q(h), H), angles), rotate(heads_of(self.k(h), KV), angles)
        v = heads_of(self.v(h), KV)
        x = x + self.o(attend(q, k, v))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        is_gpt2 = family == "gpt2"
        self.tokens = nn.Embedding(V, C)
        self.positions = nn.Embedding(T, C) if is_gpt2 else None
        self.blocks = nn.ModuleList(Gpt2Block() if is_gpt2 else LlamaBlock() for _ in range(L))
        self.norm = nn.LayerNorm(C) if is_gpt2 else RmsNorm()
        self.head = self.tokens if is_gpt2 else nn.Linear(C, V, bias=False)

    def forward(self, ids, labels, angles):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x, angles)
        logits = F.linear(self.norm(x), self.head.weight)
        return F.cross_entropy(logits.view(-1, V).float(), labels)


if family not in ("gpt2", "llama"):
    parser.error(f"no model family '{family}': gpt2 or llama")
# Debian's PyTorch has no device as a context.
with device if device.type == "cuda" else contextlib.nullcontext():
    model = LanguageModel()
    half = C // H // 2
    turns = torch.arange(args.seq).float()[:, None] * 10000.0 ** -(torch.arange(half).float() / half)
    angles = (turns.cos(), turns.sin())
    ids = torch.randint(V, (args.batch, args.seq))
    labels = torch.randint(V, (args.batch * args.seq,))
for parameter in model.parameters():
    if parameter.dim() > 1:
        nn.init.normal_(parameter, std=0.02)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **({"fused": True} if device.type == "cuda" else {}))
run = torch.compile(model) if args.compile else model
# On the CPU of old versions there is no autocast to leave out.
mixed = (lambda: torch.autocast(device.type, dtype=torch.bfloat16)) if args.precision == "bf16" else contextlib.nullcontext


def wait():
    if device.type == "cuda":
        torch.cuda.synchronize()


def step():
    with mixed():
        loss = run(ids, labels, angles)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss


def counted_steps():
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds, loss = [], None
    for index in range(args.steps + (1 if args.serve else 0)):
        wait()
        begin = time.perf_counter()
        loss = step()
        wait()
        seconds.append(time.perf_counter() - begin)
    if args.serve:  # the first fills the allocator again
        seconds = seconds[1:]
    result = {"version": torch.__version__, "threads": torch.get_num_threads(), "parameters": sum(p.numel() for p in model.parameters()),
              "seconds": seconds, "step_seconds": statistics.median(seconds), "loss": loss.item(),
              "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if device.type == "cuda":
        result["allocated_bytes"] = torch.cuda.max_memory_allocated()
        result["reserved_bytes"] = torch.cuda.max_memory_reserved()
    return result


def give_back():
    optimizer.zero_grad(set_to_none=True)
    if device.type == "cuda":
        torch.cuda.empty_cache()


def say(what):
    print(json.dumps(what), flush=True)


@contextlib.contextmanager
def locked():
    if not args.lock:
        yield
        return
    import fcntl
    with open(args.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def warm_up():
    """Beside others that use the device's memory for a while: what does not fit now may fit when they have ended."""
    for attempt in range(6):
        try:
            for _ in range(3 if args.compile else 1):
                step()
            return wait()
        except torch.cuda.OutOfMemoryError:
            if attempt == 5 or not args.serve:
                raise
        give_back()
        time.sleep(10)


with locked():
    begin = time.perf_counter()
    warm_up()
    give_back()
if not args.serve:
    say(counted_steps())
    sys.exit()
say({"ready": True, "version": torch.__version__, "warm_up_seconds": time.perf_counter() - begin})
for _ in sys.stdin:
    say(counted_steps())
    give_back()
