#!/usr/bin/env python3
"""llama_cpp.py BUILD [--model 134M|1.1B|qwen3.5-0.8B|...] [--types F32,F16,...] [--rounds 5] [--prefill 512] [--decode 64] [--files FOLDER]
[--clock cpu]: decode and prefill against llama.cpp.

Random llamas (134M: 30 layers of width 576; 1.1B: 22 of 2048) in files that llama.cpp makes, or random models of today's families
(random_models.py) in files that Tessera makes; both sides read the same file, run alternately in processes of their own, and use all cores.
Decode follows 16 tokens. Medians, ratios, and what a token reads against the read bandwidth of that minute. Files stay in FOLDER, and are made
where they are not there. With --clock cpu each side has one thread, whose own time counts: for ratios on a busy machine. Needs
llama-cpp-python, built with its native flags, or xllamacpp where the machine has no more than AVX2 (llama_cpp_library.py), gguf and numpy
(PyPI), and `ninja -C BUILD bench_ceilings`."""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from llama_cpp_library import LlamaCpp
from random_llamas import THREADS, ceilings, ids, quantize, random_llama
from random_models import MODELS, quantized, random_model

del sys.path[0]  # this file has the name of the module it imports

PROMPT = 16
CLOCKS, THREADS_OF = {"wall": time.perf_counter, "cpu": time.process_time}, {"wall": THREADS, "cpu": 1}


def run_llama(path, prefill_tokens, decode_tokens, clock):
    """Seconds of a prefill, and of a token."""
    llama = LlamaCpp(path, 1024, prefill_tokens, THREADS_OF[clock])
    llama.step(ids(prefill_tokens, 17), 0)  # warm
    llama.clear()
    now = CLOCKS[clock]
    begin = now()
    llama.step(ids(prefill_tokens), 0)
    prefill = now() - begin
    llama.clear()
    token = llama.step(ids(PROMPT), 0)
    begin = now()
    for i in range(decode_tokens):
        token = llama.step([token], PROMPT + i)
    return prefill, (now() - begin) / decode_tokens, 0


def run_tessera(path, prefill_tokens, decode_tokens, clock, build):
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

    threads = made("tsr_options_new")
    call("tsr_options_set_i64", threads, b"threads", ctypes.c_int64(THREADS_OF[clock]))
    runtime, model, options = made("tsr_runtime_new", threads), made("tsr_model_load", path.encode()), made("tsr_options_new")
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

    generate(ids(prefill_tokens, 17), 1)  # warm; with other tokens, as a prompt that the caches hold is not computed again
    now = CLOCKS[clock]
    begin = now()
    report = generate(ids(prefill_tokens), 1)
    prefill = now() - begin
    assert report["reused_tokens"] == 0
    if clock == "wall":
        prefill = report["prefill_seconds"]
    begin = now()
    report = generate(ids(PROMPT), decode_tokens + 1)
    reads, tokens, end = report["token_reads"]["parameter_bytes"], max(1, report["tokens"] - 1), now()
    if clock == "wall":
        return prefill, report["decode_seconds"] / tokens, reads
    generate(ids(PROMPT, 19), 1)  # the part of the prompt
    return prefill, (end - begin - (now() - end)) / tokens, reads


def make_file(build, folder, model, kind):
    """The file of the random model with weights of type `kind`."""
    source, path = (os.path.join(folder, f"{model}.{it}.gguf") for it in ("f32", kind))
    if os.path.exists(path):
        return path
    if not os.path.exists(source):
        random_model(build, source, model) if model in MODELS else random_llama(source, model)
    quantized(build, source, path, kind) if model in MODELS else quantize(source, path, kind)
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build"), parser.add_argument("--model", default="134M"), parser.add_argument("--types", default="F32,F16,BF16,Q8_0,Q4_0")
    parser.add_argument("--rounds", type=int, default=5), parser.add_argument("--side"), parser.add_argument("--file")
    parser.add_argument("--clock", choices=CLOCKS, default="wall"), parser.add_argument("--files"), parser.add_argument("--prefill", type=int, default=512), parser.add_argument("--decode", type=int, default=64)
    args = parser.parse_args()
    if args.side:
        lengths = args.file, args.prefill, args.decode, args.clock
        return print(json.dumps(run_llama(*lengths) if args.side == "llama" else run_tessera(*lengths, args.build)))
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    print(f"{cpu}, {THREADS_OF[args.clock]} threads, clock {args.clock}, {args.model}, {args.rounds} rounds")
    print("type | prefill tokens/s: ours, llama.cpp, ratio | decode tokens/s: ours, llama.cpp, ratio | GB/s read by decode, of GB/s, share | "
          "that minute: f32 product GFLOP/s, byte multiply-adds GOP/s of one thread")
    with tempfile.TemporaryDirectory() as folder:
        for kind in args.types.split(","):
            path = make_file(args.build, args.files or folder, args.model, kind)
            found, limits = {"tessera": [], "llama": []}, []
            for _ in range(args.rounds):
                limits.append(ceilings(args.build))
                for side in found:
                    out = subprocess.run([sys.executable, __file__, args.build, "--side", side, "--file", path, "--prefill", str(args.prefill),
                                          "--decode", str(args.decode), "--clock", args.clock], check=True, capture_output=True, text=True).stdout
                    found[side].append(json.loads(out.splitlines()[-1]))
            if not args.files:
                os.remove(path)
            ours, theirs = ([statistics.median(column) for column in zip(*found[side])] for side in found)
            read, product, byte = (statistics.median(it[key] for it in limits) / 1e9 for key in
                                   ("read_bytes_per_s", "product_flops_per_s", "byte_macs_per_s_one_thread"))
            rate = ours[2] / ours[1] / 1e9
            print(f"{kind} | {args.prefill / ours[0]:.0f}, {args.prefill / theirs[0]:.0f}, {theirs[0] / ours[0]:.2f} | {1 / ours[1]:.1f}, "
                  f"{1 / theirs[1]:.1f}, {theirs[1] / ours[1]:.2f} | {rate:.1f}, {read:.1f}, {rate / read:.2f} | {product:.0f}, {2 * byte:.0f}", flush=True)


main()
