"""Random llamas in GGUF files of every type that llama.cpp makes, for scripts that compare. llama.cpp's module has the name of one
of these scripts: they import this one first, and take their own folder from the path."""
import ctypes
import json
import os
import subprocess

import numpy as np

SIZES = {"134M": (30, 576, 9, 3, 1536, 49152), "1.1B": (22, 2048, 32, 4, 5632, 32000)}  # layers, width, heads, KV, hidden, vocabulary
THREADS = len(os.sched_getaffinity(0))


def ids(count, first=13):
    return [(7919 * i + first) % 30000 for i in range(count)]


def random_llama(path, size):
    import gguf
    layers, width, heads, kv, hidden, vocabulary = SIZES[size]
    rng = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in (("context_length", 2048), ("embedding_length", width), ("block_count", layers), ("feed_forward_length", hidden),
                        ("head_count", heads), ("head_count_kv", kv), ("rope_dimension_count", 64), ("vocab_size", vocabulary)):
        getattr(writer, f"add_{name}")(value)
    writer.add_layer_norm_rms_eps(1e-5), writer.add_tokenizer_model("no_vocab")

    def add(name, *shape):
        values = rng.standard_normal(shape, np.float32)
        writer.add_tensor(name, 1 + np.float32(0.1) * values if len(shape) == 1 else np.float32(0.02) * values)

    add("token_embd.weight", vocabulary, width), add("output_norm.weight", width), add("output.weight", vocabulary, width)
    for i in range(layers):
        side = width // heads * kv
        for name, shape in (("attn_q", (width, width)), ("attn_k", (side, width)), ("attn_v", (side, width)), ("attn_output", (width, width)),
                            ("ffn_gate", (hidden, width)), ("ffn_up", (hidden, width)), ("ffn_down", (width, hidden)),
                            ("attn_norm", (width,)), ("ffn_norm", (width,))):
            add(f"blk.{i}.{name}.weight", *shape)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file()
    writer.close()


def silence(ll):
    silence.callback = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(silence.callback, None)


def quantize(source, path, kind):
    import llama_cpp as ll
    silence(ll)
    parameters = ll.llama_model_quantize_default_params()
    parameters.ftype = ll.LLAMA_FTYPE_ALL_F32 if kind == "F32" else getattr(ll, f"LLAMA_FTYPE_MOSTLY_{kind}")
    parameters.nthread, parameters.pure = THREADS, not kind.endswith("_M")
    if ll.llama_model_quantize(source.encode(), path.encode(), ctypes.byref(parameters)) != 0:
        raise SystemExit(f"llama.cpp does not make {kind}")


def ceilings(build):
    return json.loads(subprocess.run([os.path.join(build, "tests", "bench_ceilings"), str(THREADS)], check=True, capture_output=True,
                                     text=True).stdout)
