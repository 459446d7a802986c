#!/usr/bin/env python3
"""opening.py BUILD [--gib 2] [--folder DIR] [--huggingface]: import of a large GGUF file, or of a folder with shards of
safetensors, against `cp` and `sync`, opening it, and its first token.

A random llama in Q8_0, in a folder in bf16, is written; then, alternately and three times, the file is copied (`cp`, `sync`) and imported
(`tessera import`, `sync`), with the most anonymous memory that the import held. Then, in processes of their own, the file
is opened through the C API and generates a token, with weights computed where they lie in the file (repack=off) and
repacked. Medians. Needs gguf and numpy (PyPI) and three times the file's size of free disk."""
import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

WIDTH, HEADS, KV, HIDDEN, VOCABULARY = 2048, 32, 8, 8192, 32000


def random_llama(path, gib):
    import gguf
    rng = np.random.default_rng(7)
    side = WIDTH // HEADS * KV
    matrices = (("attn_q", WIDTH, WIDTH), ("attn_k", side, WIDTH), ("attn_v", side, WIDTH), ("attn_output", WIDTH, WIDTH),
                ("ffn_gate", HIDDEN, WIDTH), ("ffn_up", HIDDEN, WIDTH), ("ffn_down", WIDTH, HIDDEN))
    layer_bytes = sum(rows * columns for _, rows, columns in matrices) * 34 // 32
    layers = -(-int(gib * 2**30 - 2 * VOCABULARY * WIDTH * 34 / 32) // layer_bytes)
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in (("context_length", 2048), ("embedding_length", WIDTH), ("block_count", layers), ("feed_forward_length", HIDDEN),
                        ("head_count", HEADS), ("head_count_kv", KV), ("rope_dimension_count", 64), ("vocab_size", VOCABULARY)):
        getattr(writer, f"add_{name}")(value)
    writer.add_layer_norm_rms_eps(1e-5), writer.add_tokenizer_model("no_vocab")

    def add(name, rows, columns):
        blocks = rng.integers(0, 256, (rows, columns // 32, 34), np.uint8)
        blocks[:, :, :2] = np.array([0.0003], np.float16).view(np.uint8)
        writer.add_tensor(name, blocks.reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType.Q8_0)

    add("token_embd.weight", VOCABULARY, WIDTH), add("output.weight", VOCABULARY, WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for i in range(layers):
        for name, rows, columns in matrices:
            add(f"blk.{i}.{name}.weight", rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file()
    writer.close()


def random_folder(path, gib, shard_bytes=512 * 2**20):
    """bf16, in shards with an index, as save_pretrained writes them."""
    rng = np.random.default_rng(7)
    side = WIDTH // HEADS * KV
    matrices = (("self_attn.q_proj", WIDTH, WIDTH), ("self_attn.k_proj", side, WIDTH), ("self_attn.v_proj", side, WIDTH), ("self_attn.o_proj", WIDTH, WIDTH),
                ("mlp.gate_proj", HIDDEN, WIDTH), ("mlp.up_proj", HIDDEN, WIDTH), ("mlp.down_proj", WIDTH, HIDDEN))
    layers = -(-int(gib * 2**30 - 4 * VOCABULARY * WIDTH) // sum(2 * rows * columns for _, rows, columns in matrices))
    tensors = [("model.embed_tokens.weight", (VOCABULARY, WIDTH)), ("model.norm.weight", (WIDTH,)), ("lm_head.weight", (VOCABULARY, WIDTH))]
    for i in range(layers):
        tensors += [(f"model.layers.{i}.{name}.weight", (rows, columns)) for name, rows, columns in matrices]
        tensors += [(f"model.layers.{i}.{name}.weight", (WIDTH,)) for name in ("input_layernorm", "post_attention_layernorm")]
    shards, size = [[]], 0
    for name, shape in tensors:
        if size > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += 2 * int(np.prod(shape))
    os.mkdir(path)
    index = {}
    for number, shard in enumerate(shards):
        file = f"model-{number + 1:05}-of-{len(shards):05}.safetensors"
        header, at = {}, 0
        for name, shape in shard:
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * int(np.prod(shape))]}
            at = header[name]["data_offsets"][1]
            index[name] = file
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(path, file), "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for name, shape in shard:  # around 0.01, of either sign
                values = rng.integers(0, 128, shape, np.uint16) if len(shape) > 1 else np.zeros(shape, np.uint16)
                out.write((values | np.uint16(0x3c00) | (values & 1) << 15 if len(shape) > 1 else values | np.uint16(0x3f80)).tobytes())
    with open(os.path.join(path, "model.safetensors.index.json"), "w") as out:
        json.dump({"metadata": {}, "weight_map": index}, out)
    with open(os.path.join(path, "config.json"), "w") as out:
        json.dump({"model_type": "llama", "hidden_size": WIDTH, "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV,
                   "intermediate_size": HIDDEN, "vocab_size": VOCABULARY, "max_position_embeddings": 2048}, out)


def size_of(path):
    return os.path.getsize(path) if os.path.isfile(path) else sum(entry.stat().st_size for entry in os.scandir(path))


def anonymous(pid):
    try:
        return next(int(line.split()[1]) * 1024 for line in open(f"/proc/{pid}/status") if line.startswith("RssAnon"))
    except (OSError, StopIteration):
        return 0


def timed(*command):
    """Seconds of a command and of writing its file out, and the most anonymous bytes it held."""
    begin, most = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, anonymous(process.pid))
        time.sleep(0.02)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
    written = command[-1]
    files = [entry.path for entry in os.scandir(written)] if os.path.isdir(written) else [written]
    subprocess.run(["sync", *files], check=True)
    return time.perf_counter() - begin, most


def open_and_generate(path, build, repack):
    library = ctypes.CDLL(os.path.join(build, "capi", "libtessera.so"))
    library.tsr_status_message.restype = ctypes.c_char_p

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

    runtime, options = made("tsr_runtime_new", None), made("tsr_options_new")
    call("tsr_options_set_str", options, b"repack", repack.encode())
    call("tsr_options_set_i64", options, b"context", ctypes.c_int64(256))
    begin = time.perf_counter()
    model = made("tsr_model_load", path.encode())
    opened = time.perf_counter()
    generator = made("tsr_generator_new", runtime, model, options)
    ready = time.perf_counter()
    call("tsr_generator_start_tokens", generator, (ctypes.c_int32 * 4)(1, 2, 3, 4), ctypes.c_size_t(4))
    piece = Piece(ctypes.sizeof(Piece))
    call("tsr_generator_next", generator, ctypes.c_double(-1), ctypes.byref(piece))
    return opened - begin, ready - opened, time.perf_counter() - ready


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build"), parser.add_argument("--gib", type=float, default=2), parser.add_argument("--folder")
    parser.add_argument("--open"), parser.add_argument("--repack"), parser.add_argument("--huggingface", action="store_true")
    args = parser.parse_args()
    if args.open:
        return print(json.dumps(open_and_generate(args.open, args.build, args.repack)))
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        source, copy, imported = (os.path.join(folder, name) for name in ("in", "copy", "out.tsr"))
        (random_folder if args.huggingface else random_llama)(source, args.gib)
        os.sync()
        print(f"{'folder' if args.huggingface else 'file'} {size_of(source) / 2**30:.2f} GiB")
        copies, imports, most = [], [], 0
        for _ in range(3):
            copies.append(timed("cp", "-r", source, copy)[0])
            shutil.rmtree(copy) if args.huggingface else os.remove(copy)
            seconds, bytes_held = timed(os.path.join(args.build, "cli", "tessera"), "import", source, "-o", imported)
            imports.append(seconds)
            most = max(most, bytes_held)
            os.remove(imported)
        ours, theirs = statistics.median(imports), statistics.median(copies)
        print(f"cp and sync {theirs:.2f} s, import and sync {ours:.2f} s ({ours / theirs:.2f} x), at most {most / 2**20:.0f} MiB anonymous")
        for repack in ("off", "auto"):
            rounds = [json.loads(subprocess.run([sys.executable, __file__, args.build, "--open", source, "--repack", repack], check=True,
                                                capture_output=True, text=True).stdout) for _ in range(3)]
            opened, made, first = (1e3 * statistics.median(column) for column in zip(*rounds))
            print(f"repack={repack}: opened in {opened:.1f} ms, generator made in {made:.0f} ms, first token {first:.0f} ms later", flush=True)


main()
