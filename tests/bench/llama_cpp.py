#!/usr/bin/env python3
"""llama_cpp.py BUILD [--model 134M|1.1B] [--types F32,F16,...] [--rounds 5]: decode and prefill against llama.cpp.

Random llamas (134M: 30 layers of width 576; 1.1B: 22 of 2048) in files that llama.cpp makes; both sides read the same
file, run alternately in processes of their own, and use all cores. Prefill is 512 tokens; decode 64 tokens after 16.
Medians, ratios, and what a token reads against the read bandwidth of that minute. Needs llama-cpp-python, built with its
native flags, gguf and numpy (PyPI), and `ninja -C BUILD bench_ceilings`."""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from random_llamas import THREADS, ceilings, ids, quantize, random_llama, silence

del sys.path[0]  # this file has the name of the module it imports

PREFILL, PROMPT, DECODE = 512, 16, 64


def run_llama(path):
    """Seconds of a prefill, and of a token."""
    import llama_cpp as ll
    silence(ll)
    parameters = ll.llama_model_default_params()
    parameters.n_gpu_layers = 0
    model = ll.llama_model_load_from_file(path.encode(), parameters)
    settings = ll.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch = 1024, PREFILL, PREFILL
    settings.n_threads = settings.n_threads_batch = THREADS
    context = ll.llama_init_from_model(model, settings)
    size = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    batch = ll.llama_batch_init(PREFILL, 0, 1)

    def step(tokens, start):
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, start + i, 1, i == len(tokens) - 1
            batch.seq_id[i][0] = 0
        assert ll.llama_decode(context, batch) == 0
        return int(np.ctypeslib.as_array(ll.llama_get_logits_ith(context, len(tokens) - 1), (size,)).argmax())

    step(ids(PREFILL, 17), 0)  # warm
    ll.llama_memory_clear(ll.llama_get_memory(context), True)
    begin = time.perf_counter()
    step(ids(PREFILL), 0)
    prefill = time.perf_counter() - begin
    ll.llama_memory_clear(ll.llama_get_memory(context), True)
    token = step(ids(PROMPT), 0)
    begin = time.perf_counter()
    for i in range(DECODE):
        token = step([token], PROMPT + i)
    return prefill, (time.perf_counter() - begin) / DECODE, 0


def run_tessera(path, build):
    library = ctypes.CDLL(os.path.join(build, "capi", "libtessera.so"))
    library.tsr_status_message.restype = library.tsr_text_data.restype = ctypes.c_char_p

    class Piece(ctypes.Structure):
        _fields_ = [("struct_size", ctypes.c_size_t), ("kind", ctypes.c_int32), ("finish", ctypes.c_int32),
                    ("token", ctypes.c_int32), ("text", ctypes.c_char_p), ("text_size", ctypes.c_size_t)]

    def call(name, *args):
        function = getattr(library, name)
        function.restype = ctypes.c_void_p
        if status := function(*args):
            raise SystemExit(library.tsr_status_message(ctypes.c_void_p(status)).decode())

    def made(name, *args):
        handle = ctypes.c_void_p()
        call(name, *args, ctypes.byref(handle))
        return handle

    runtime, model, options = made("tsr_runtime_new", None), made("tsr_model_load", path.encode()), made("tsr_options_new")
    call("tsr_options_set_f64", options, b"temperature", ctypes.c_double(0))
    call("tsr_options_set_i64", options, b"context", ctypes.c_int64(1024))
    generator = made("tsr_generator_new", runtime, model, options)

    def generate(prompt, count):
        text = made("tsr_options_new")
        call("tsr_options_set_i64", text, b"max_tokens", ctypes.c_int64(count))
        call("tsr_generator_start_tokens_with", generator, text, (ctypes.c_int32 * len(prompt))(*prompt), ctypes.c_size_t(len(prompt)))
        piece = Piece(ctypes.sizeof(Piece))
        while piece.kind != 2:
            call("tsr_generator_next", generator, ctypes.c_double(-1), ctypes.byref(piece))
        return json.loads(library.tsr_text_data(made("tsr_generator_report", generator)))

    generate(ids(PREFILL, 17), 1)  # warm; with other tokens, as a prompt that the caches hold is not computed again
    report = generate(ids(PREFILL), 1)
    assert report["reused_tokens"] == 0
    prefill = report["prefill_seconds"]
    report = generate(ids(PROMPT), DECODE + 1)
    reads = report["token_reads"]["parameter_bytes"]
    return prefill, report["decode_seconds"] / max(1, report["tokens"] - 1), reads


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build"), parser.add_argument("--model", default="134M"), parser.add_argument("--types", default="F32,F16,BF16,Q8_0,Q4_0")
    parser.add_argument("--rounds", type=int, default=5), parser.add_argument("--side"), parser.add_argument("--file")
    args = parser.parse_args()
    if args.side:
        return print(json.dumps(run_llama(args.file) if args.side == "llama" else run_tessera(args.file, args.build)))
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    print(f"{cpu}, {THREADS} threads, {args.model}, {args.rounds} rounds")
    print("type | prefill tokens/s: ours, llama.cpp, ratio | decode tokens/s: ours, llama.cpp, ratio | GB/s read by decode, of GB/s, share | "
          "that minute: f32 product GFLOP/s, byte multiply-adds GOP/s of one thread")
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "f32.gguf")
        random_llama(source, args.model)
        for kind in args.types.split(","):
            path = os.path.join(folder, f"{kind}.gguf")
            quantize(source, path, kind)
            found, limits = {"tessera": [], "llama": []}, []
            for _ in range(args.rounds):
                limits.append(ceilings(args.build))
                for side in found:
                    out = subprocess.run([sys.executable, __file__, args.build, "--side", side, "--file", path], check=True,
                                         capture_output=True, text=True).stdout
                    found[side].append(json.loads(out.splitlines()[-1]))
            os.remove(path)
            ours, theirs = ([statistics.median(column) for column in zip(*found[side])] for side in found)
            read, product, byte = (statistics.median(it[key] for it in limits) / 1e9 for key in
                                   ("read_bytes_per_s", "product_flops_per_s", "byte_macs_per_s_one_thread"))
            rate = ours[2] / ours[1] / 1e9
            print(f"{kind} | {PREFILL / ours[0]:.0f}, {PREFILL / theirs[0]:.0f}, {theirs[0] / ours[0]:.2f} | {1 / ours[1]:.1f}, "
                  f"{1 / theirs[1]:.1f}, {theirs[1] / ours[1]:.2f} | {rate:.1f}, {read:.1f}, {rate / read:.2f} | {product:.0f}, {2 * byte:.0f}", flush=True)


main()
