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


def bench(*extra, kernels=True, model=MODEL):
    out = subprocess.run([sys.argv[1], "bench", model, *["--kernels"] * kernels, "--json", *map(str, extra)], check=True, capture_output=True, text=True)
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
assert result["kernels"]["entry"] == "serve.1" and result["kernels"]["runs"] == TOKENS - 1, result["kernels"]["runs"]
# Several kernels may be one launch; a trace has each by itself.
assert 0 < result["launches_per_token"] < result["kernels"]["launches"], result["launches_per_token"]
assert result["microseconds_outside_products_per_token"] > 0

# Clients: every token counts once, and a step reads what a token reads, with the keys and values of all sequences.
for extra, cached, element in ([], 0, 4), (["--rate", 1000, "--shared", 30, "--cache-type", "f16"], None, 2), \
        (["--cache-type", "q8_0"], 0, 34 / 32), (["--devices", "cpu:2", "--parallel", "dp=2"], 0, 4):
    result = bench("--mode", "serve", "--clients", 3, "--prompt", 40, "--new", 12, "--requests", 7, "--copy-gbs", 10, *extra, kernels=False)
    near(result["tokens_per_second"] * result["seconds"], 7 * 12, "generated tokens")
    near(result["prompt_tokens_per_second"] * result["seconds"], 7 * 40, "tokens of prompts")
    assert 7 * 12 - 7 <= result["tokens_computed"] - 7 * 40 * (1 - result["cached_share"]) <= 7 * 12, result
    assert result["cached_share"] == cached or cached is None, result["cached_share"]
    near(result["parameter_bytes"], 4 * (PARAMETERS - 100 * 64 + 64 + 1), "parameters that a step reads")
    near(result["cache_bytes_per_token"], element * 2 * 2 * 32, "keys and values of a token")
    assert result["replicas"] == len(result["devices"]), result
    at_once = result["requests_at_once"] / result["replicas"]
    wanted = result["parameter_bytes"] + at_once * (40 + 12 / 2) * result["cache_bytes_per_token"]
    near(result["bytes_per_step"], wanted, "bytes a step")
    near(result["share_of_limit"] * 10e9 * at_once, result["tokens_per_second"] * wanted, "share of the limit")
    for key in ("first_token_milliseconds", "between_tokens_milliseconds"):
        assert 0 < result[key]["median"] <= result[key]["p95"] <= result[key]["p99"], result[key]
    assert 0 < result["requests_at_once"] <= 16 and result["preemptions"] == 0, result
# An adapter in turn for each request: of rank 3, on q and o, k and v, gate and up, down of two layers.
for extra, element in ([], 4), (["--adapter-type", "bf16"], 2):
    result = bench("--mode", "serve", "--clients", 2, "--prompt", 8, "--new", 4, "--requests", 6, "--adapters", 5, "--adapter-rank", 3, *extra, kernels=False)
    near(result["adapter_bytes"], element * 2 * 3 * (2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 96)), "bytes of an adapter")
    wanted = result["parameter_bytes"] + result["requests_at_once"] * ((8 + 4 / 2) * result["cache_bytes_per_token"] + result["adapter_bytes"])
    near(result["bytes_per_step"], wanted, "bytes a step")
for wanted, words in [("--seq: belongs to --mode train or decode, and this is serve", ["--seq", "3"]), ("belong to --adapters, which is missing", ["--adapter-rank", "3"])]:
    refused = subprocess.run([sys.argv[1], "bench", MODEL, "--mode", "serve", *words], capture_output=True, text=True)
    assert refused.returncode == 1 and wanted in refused.stderr, refused.stderr


# What `plan --mode serve` says of small engines is what the engine of that size has, to the byte.
def plan_serve(*words, model=MODEL):
    out = subprocess.run([sys.argv[1], "plan", model, "--mode", "serve", "--json", *map(str, words)], check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def arenas(result):
    return [it["arena_bytes"]["predicted"] for it in result["devices"]]


for words in ["--sequences", 3], ["--sequences", 2, "--cache-tokens", 300, "--cache-type", "f16"], ["--sequences", 9, "--memory-limit", "3000KiB"], \
        ["--sequences", 9, "--memory-limit", "2860KiB", "--cache-type", "q8_0"], \
        ["--sequences", 5, "--cache-tokens", 300, "--devices", "cpu:2", "--parallel", "dp=2"]:
    made = bench("--mode", "serve", "--clients", 1, "--prompt", 40, "--new", 24, "--requests", 1, *words, kernels=False)
    planned = plan_serve("--context", 64, *words)
    assert arenas(planned) == arenas(made), (words, arenas(planned), arenas(made))
# A second pool, of layers with a window, likewise.
for windows, words in [("20|0", []), ("20|0", ["--window-cache-tokens", 300]), ("20|0", ["--memory-limit", "4000KiB"]), ("20|20", ["--memory-limit", "3500KiB"]), \
        ("20|0", ["--window-cache-tokens", 700, "--devices", "cpu:2", "--parallel", "dp=2"])]:
    model, words = f"llama:L=2,C=64,H=2,KV=1,F=96,V=100,T=512,windows={windows}", ["--sequences", 9, "--step-tokens", 64, *words]
    made = bench("--mode", "serve", "--clients", 1, "--prompt", 500, "--new", 12, "--requests", 1, *words, kernels=False, model=model)
    planned = plan_serve("--context", 512, *words, model=model)
    assert arenas(planned) == arenas(made), (words, arenas(planned), arenas(made))
    assert planned["window"] == 20 and planned["window_cache_tokens"] > 0 and planned["window_bytes_per_token"] in (4 * 2 * 32, 2 * 4 * 2 * 32), planned
planned = plan_serve("--context", 512, "--sequences", 9, "--step-tokens", 64, model="llama:L=2,C=64,H=2,KV=1,F=96,V=100,T=512,windows=20|0")
assert planned["window_cache_tokens"] == 64 * (2 * 9 * 2 + 1) and planned["cache_bytes"] == 4 * 2 * 32 * (9 * 512 + planned["window_cache_tokens"]), planned
for model, tokens, wanted in [(MODEL, 640, "no layer of the model has a window"), ("llama:L=2,C=64,H=2,KV=1,F=96,V=100,T=512,window=20", 100, "wanted at least 448")]:
    refused = subprocess.run([sys.argv[1], "plan", model, "--mode", "serve", "--window-cache-tokens", str(tokens)], capture_output=True, text=True)
    assert refused.returncode == 1 and wanted in refused.stderr, refused.stderr
planned = plan_serve("--sequences", 3)
assert planned["cache_bytes_per_token"] == 4 * 2 * 2 * 32 and planned["cache_tokens"] == 3 * 64 and planned["devices"][0]["fits"], planned
assert plan_serve("--sequences", 3, "--cache-type", "q8_0")["cache_bytes_per_token"] == 34 * 2 * 2
replicas = plan_serve("--sequences", 5, "--devices", "cpu:2", "--parallel", "dp=2")
assert replicas["sequences"] == 6 and replicas["cache_tokens"] == 6 * 64 and replicas["replicas"] == 2, replicas
assert replicas["cache_bytes"] == 2 * planned["cache_bytes"] and replicas["weight_bytes"] == planned["weight_bytes"], replicas
# As many as fit, do; one more does not.
limit = arenas(planned)[0] + 1000
assert plan_serve("--sequences", 3, "--memory-limit", limit)["sequences_that_fit"] == 3
assert plan_serve("--sequences", 3, "--memory-limit", limit - 2000)["sequences_that_fit"] == 2
for sequences, fits in ((3, True), (4, False)):
    planned = plan_serve("--sequences", sequences, "--cache-tokens", sequences * 64, "--memory-limit", limit)
    assert planned["devices"][0]["fits"] == fits, planned
assert plan_serve("--sequences", 9, "--memory-limit", limit)["cache_tokens"] <= 3 * 64
# Slots for adapters count.
more = arenas(plan_serve("--sequences", 3, "--adapters", 4, "--adapter-rank", 5))[0] - arenas(planned := plan_serve("--sequences", 3))[0]
states = 4 * 2 * 5 * (2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 96))
assert 4 * states <= more < 4.2 * states, (more, states)
half = arenas(plan_serve("--sequences", 3, "--adapters", 4, "--adapter-rank", 5, "--adapter-type", "f16"))[0] - arenas(planned)[0]
assert more - 2.1 * states <= half <= more - 1.9 * states, (more, half, states)
print("ok: bench: counts, floors and shares hold together")
