#!/usr/bin/env python3
"""What `tessera bench` says holds together: bench.py TESSERA."""
import json
import subprocess
import sys

MODEL = "llama:L=2,C=64,H=2,KV=1,F=96,V=100,T=64"
BATCH, SEQ, TOKENS = 2, 32, 6
# q and o, k and v, gate, up and down; norms, tables
BLOCK_PRODUCTS = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 96)
PARAMETERS = BLOCK_PRODUCTS + 2 * 2 * 64 + 64 + 2 * 100 * 64


def bench(*extra):
    out = subprocess.run([sys.argv[1], "bench", MODEL, "--kernels", "--json", *map(str, extra)], check=True, capture_output=True, text=True)
    lines = out.stdout.strip().splitlines()
    assert len(lines) == 1, "--json is one line"
    return json.loads(lines[0])


def near(found, wanted, what):
    assert abs(found - wanted) <= 1e-9 * abs(wanted), f"{what}: {found}, wanted {wanted}"


result = bench("--batch", BATCH, "--seq", SEQ, "--steps", 2, "--peak-tflops", 2, "--copy-gbs", 10, "--product-tflops", 0.1)
assert result["parameters"] == PARAMETERS, f"{result['parameters']} parameters, wanted {PARAMETERS}"
flops = 6 * PARAMETERS + 12 * 2 * 64 * SEQ
near(result["flops_per_token"], flops, "flops a token")
near(result["tokens_per_second"], BATCH * SEQ / result["step_seconds"], "tokens a second")
near(result["mfu"], flops * result["tokens_per_second"] / 2e12, "mfu")
kernels = result["kernels"]
assert kernels["entry"] == "train_step" and kernels["runs"] == 3, kernels["runs"]
near(sum(kernel["seconds"] for kernel in kernels["kernels"]), kernels["seconds"], "seconds of all kernels")
assert sum(kernel["count"] for kernel in kernels["kernels"]) >= kernels["launches"] > 0
# gate and up, forward: x [2, 32, 64], w [96, 64], 2 * 2 * 32 * 64 * 96 operations each at 0.1 TFLOP/s, in two blocks
gate = [kernel for kernel in kernels["kernels"] if kernel["op"] == "matmul" and kernel["operands"] == "f32[2, 32, 64] f32[96, 64]"]
assert len(gate) == 1 and gate[0]["count"] == 4, gate
near(gate[0]["floor_seconds"], 4 * 2 * BATCH * SEQ * 64 * 96 / 0.1e12, "floor of gate and up")
# Every parameter is updated once: p, m and v read and written, g read.
updates = [kernel for kernel in kernels["kernels"] if kernel["op"] == "adamw_update"]
assert sum(kernel["count"] for kernel in updates) == 2 * 9 + 3, updates
assert sum(kernel["floor_seconds"] for kernel in updates) >= 28 * PARAMETERS / 10e9

result = bench("--mode", "decode", "--seq", 20, "--tokens", TOKENS, "--steps", 2)
context = 20 + TOKENS + 1
# All but the table of tokens, of which a row is read, by an id; caches as they are in the middle of the text.
wanted = 4 * (PARAMETERS - 100 * 64 + 64 + 1) + 4 * 2 * 2 * 32 * context * (20 + TOKENS / 2) / context
near(result["bytes_per_token"], wanted, "bytes a token")
near(result["decode_bytes_per_second"], wanted * result["decode_tokens_per_second"], "bytes a second")
near(result["prefill_flops_per_second"], 2 * BLOCK_PRODUCTS * result["prefill_tokens_per_second"], "prefill")
# Prompts that the caches hold already would be no prefill.
assert result["reused_tokens"] == 0, result["reused_tokens"]
assert result["kernels"]["entry"] == "decode" and result["kernels"]["runs"] == TOKENS - 1, result["kernels"]["runs"]
# Several kernels may be one launch; a trace has each by itself.
assert 0 < result["launches_per_token"] < result["kernels"]["launches"], result["launches_per_token"]
assert result["microseconds_outside_products_per_token"] > 0
print("ok: bench: counts, floors and shares hold together")
