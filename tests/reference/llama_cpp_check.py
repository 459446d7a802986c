#!/usr/bin/env python3
"""llama_cpp_check.py BUILD MODEL.gguf TEXT [tokens] [perplexity] [random]: Tessera against llama.cpp on the same files.

tokens      greedy continuations of 20 prompts, 64 tokens each; a first difference must be a near-tie: in f32 the two
            tokens' logits differ by no more than llama.cpp's own rounding of activations moves a logit of that row
perplexity  of 100 kB of the text, of the model at its own type and as llama.cpp stores it in Q8_0, Q5_1, Q4_0, IQ4_NL
random      mean |difference of log probabilities| of random llamas of width 768 and 2048 in the K types, IQ4_XS, MXFP4:
            at most 0.01, or half as much again as llama.cpp differs from itself when it is given a token at a time:
            activations are rounded to 8 bits before every product, and a last bit of an f32 sum tips codes, more with
            every product that follows

Needs llama-cpp-python, gguf and numpy (PyPI); never part of `./dev test`. Caches are f32 on both sides."""
import ctypes
import json
import os
import subprocess
import sys
import tempfile

import gguf
import llama_cpp as ll
import numpy as np

BUILD, MODEL, TEXT = sys.argv[1:4]
PARTS = sys.argv[4:] or ["tokens", "perplexity", "random"]
THREADS = len(os.sched_getaffinity(0))
CHUNK = 512
failures = []


def check(holds, what):
    if not holds:
        failures.append(what)
    return "ok" if holds else "FAILED"


class Llama:
    """A model in llama.cpp: logits of chunks of tokens, and its tokenizer."""

    def __init__(self, path, at_once=CHUNK):
        parameters = ll.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self.model = ll.llama_model_load_from_file(path.encode(), parameters)
        assert self.model, f"llama.cpp cannot open {path}"
        settings = ll.llama_context_default_params()
        settings.n_ctx = settings.n_batch = CHUNK
        settings.n_ubatch = at_once
        settings.n_threads = settings.n_threads_batch = THREADS
        settings.type_k = settings.type_v = 0  # f32
        if hasattr(settings, "flash_attn_type"):
            settings.flash_attn_type = 0
        self.context = ll.llama_init_from_model(self.model, settings)
        self.vocab = ll.llama_model_get_vocab(self.model)
        self.size = ll.llama_vocab_n_tokens(self.vocab)
        self.batch = ll.llama_batch_init(CHUNK, 0, 1)

    def clear(self):
        ll.llama_memory_clear(ll.llama_get_memory(self.context), True)

    def logits(self, ids, start=0, every=True):
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, start + i, 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = every or i == len(ids) - 1
        assert ll.llama_decode(self.context, batch) == 0
        rows = range(len(ids)) if every else [len(ids) - 1]
        return np.array([np.ctypeslib.as_array(ll.llama_get_logits_ith(self.context, i), (self.size,)) for i in rows])

    def tokenize(self, text):
        data = text.encode()
        ids = (ctypes.c_int32 * (len(data) + 8))()
        count = ll.llama_tokenize(self.vocab, data, len(data), ids, len(ids), True, False)
        return list(ids[:count])

    def close(self):
        ll.llama_batch_free(self.batch)
        ll.llama_free(self.context)
        ll.llama_model_free(self.model)


def log_probabilities(logits, ids):
    """Of ids[1:], from the logits before them."""
    found = []
    for row, token in zip(logits, ids[1:]):
        most = row.max()
        found.append(float(row[token] - most) - np.log(np.exp(row - most).sum(dtype=np.float64)))
    return np.array(found)


def quantized(source, folder, kind, pure=True):
    path = os.path.join(folder, f"{kind}.gguf")
    parameters = ll.llama_model_quantize_default_params()
    parameters.ftype = getattr(ll, f"LLAMA_FTYPE_MOSTLY_{kind}")
    parameters.allow_requantize, parameters.nthread, parameters.pure = True, THREADS, pure
    assert ll.llama_model_quantize(source.encode(), path.encode(), ctypes.byref(parameters)) == 0, kind
    return path


def scored(path, chunks, *more):
    """Tessera's log probabilities: a chunk a line, each a text of its own."""
    with tempfile.NamedTemporaryFile("w", suffix=".ids") as file:
        file.write("\n".join(" ".join(map(str, chunk)) for chunk in chunks) + "\n")
        file.flush()
        out = subprocess.run([os.path.join(BUILD, "cli", "tessera"), "score", path, "--file", file.name, "--ids", "--lines",
                              "--seq", str(CHUNK), "--stride", str(CHUNK), "--bos", "none", "--json", *more],
                             check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    return np.array([line["logprob"] for line in lines[:-1] if line["logprob"] is not None])


def expected(path, chunks, at_once=CHUNK):
    llama, all_of = Llama(path, at_once), []
    for chunk in chunks:
        llama.clear()
        all_of.append(log_probabilities(llama.logits(chunk), chunk))
    llama.close()
    return np.concatenate(all_of)


# ---- tokens

class Piece(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("kind", ctypes.c_int32), ("finish", ctypes.c_int32),
                ("token", ctypes.c_int32), ("text", ctypes.c_char_p), ("text_size", ctypes.c_size_t)]


class Tessera:
    """A greedy generator."""

    def __init__(self, path, **options):
        self.library = ctypes.CDLL(os.path.join(BUILD, "capi", "libtessera.so"))
        self.library.tsr_status_message.restype = ctypes.c_char_p
        self.library.tsr_tensor_data.restype = ctypes.c_void_p
        self.runtime, self.model = self.made("tsr_runtime_new", None), self.made("tsr_model_load", path.encode())
        chosen = self.made("tsr_options_new")
        self.call("tsr_options_set_f64", chosen, b"temperature", ctypes.c_double(0))
        for key, value in options.items():
            if isinstance(value, int):
                self.call("tsr_options_set_i64", chosen, key.encode(), ctypes.c_int64(value))
            else:
                self.call("tsr_options_set_str", chosen, key.encode(), value.encode())
        self.generator = self.made("tsr_generator_new", self.runtime, self.model, chosen)

    def call(self, name, *args):
        function = getattr(self.library, name)
        function.restype = ctypes.c_void_p
        if status := function(*args):
            raise SystemExit(self.library.tsr_status_message(ctypes.c_void_p(status)).decode())

    def made(self, name, *args):
        handle = ctypes.c_void_p()
        self.call(name, *args, ctypes.byref(handle))
        return handle

    def generate(self, ids):
        self.call("tsr_generator_start_tokens", self.generator, (ctypes.c_int32 * len(ids))(*ids), ctypes.c_size_t(len(ids)))
        out, piece = [], Piece(ctypes.sizeof(Piece))
        while True:
            self.call("tsr_generator_next", self.generator, ctypes.c_double(-1), ctypes.byref(piece))
            if piece.kind == 2:
                return out
            if piece.token >= 0:
                out.append(piece.token)

    def next_logits(self, ids, size):
        self.generate(ids)
        tensor = self.made("tsr_generator_logits", self.generator)
        address = self.library.tsr_tensor_data(tensor)
        copy = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (size,)).copy()
        self.library.tsr_tensor_free(tensor)
        return copy


PROMPTS = ["The capital of France is", "Once upon a time", "Water boils at", "In 1969, humans first", "def fibonacci(n):",
           "The three primary colours are", "A good breakfast has", "Photosynthesis is the process", "To be or not to be",
           "The largest planet of the solar system", "Dear Sir or Madam,", "My favourite book is about", "2 + 2 =",
           "The recipe begins with", "Music helps people", "An apple a day", "The history of Rome", "Rain fell on the old",
           "List of animals: cat, dog,", "Why do cats purr?"]


def tokens():
    llama, tessera = Llama(MODEL), Tessera(MODEL, max_tokens=64, context=CHUNK)
    one_q8 = Tessera(MODEL, max_tokens=1, context=CHUNK)
    one_f32 = Tessera(MODEL, max_tokens=1, context=CHUNK, activations="f32")
    equal, near = 0, 0
    for prompt in PROMPTS:
        ids = llama.tokenize(prompt)
        llama.clear()
        rows, wanted = [llama.logits(ids, every=False)[0]], []
        for _ in range(64):
            wanted.append(int(rows[-1].argmax()))
            if ll.llama_vocab_is_eog(llama.vocab, wanted[-1]):
                wanted.pop()
                break
            rows.append(llama.logits([wanted[-1]], len(ids) + len(wanted) - 1, every=False)[0])
        found = tessera.generate(ids)
        if found == wanted:
            equal += 1
            continue
        at = next((i for i, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))
        own, exact = (it.next_logits(ids + wanted[:at], llama.size) for it in (one_q8, one_f32))
        theirs = rows[at]
        a, b = int(own.argmax()), int(theirs.argmax())
        gap, moved = abs(exact[a] - exact[b]), abs(theirs - exact).max()
        near += gap <= moved
        print(f"{check(gap <= moved, prompt)}: {prompt!r} differs at token {at}: {a} (ours {own[a]:.3f}, theirs {theirs[a]:.3f}, "
              f"f32 {exact[a]:.3f}), {b} (ours {own[b]:.3f}, theirs {theirs[b]:.3f}, f32 {exact[b]:.3f}); rms to f32: ours "
              f"{np.sqrt(((own - exact) ** 2).mean()):.3f}, theirs {np.sqrt(((theirs - exact) ** 2).mean()):.3f}")
    print(f"tokens: {equal} of {len(PROMPTS)} continuations equal, {near} differ first at a near-tie")
    llama.close()


def perplexity():
    text = open(TEXT, errors="replace").read()[:100_000]
    llama = Llama(MODEL)
    ids = llama.tokenize(text)
    llama.close()
    chunks = [ids[i:i + CHUNK] for i in range(0, len(ids) - 1, CHUNK)]
    print(f"perplexity of {len(text)} characters, {len(ids)} tokens in chunks of {CHUNK}")
    print("type | llama.cpp | Tessera q8 | Tessera f32 | q8 / llama.cpp - 1 | mean |d log p|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("own", "Q8_0", "Q5_1", "Q4_0", "IQ4_NL"):
            path = MODEL if kind == "own" else quantized(MODEL, folder, kind)
            theirs, ours = expected(path, chunks), scored(path, chunks)
            exact = scored(path, chunks, "--activations", "f32")
            a, b, c = (float(np.exp(-it.mean())) for it in (theirs, ours, exact))
            print(f"{kind} | {a:.4f} | {b:.4f} | {c:.4f} | {b / a - 1:+.4%} | {abs(theirs - ours).mean():.4f} | "
                  f"{check(abs(b / a - 1) <= 0.005, kind)}", flush=True)


# ---- random llamas

def random_llama(path, width, layers=2, vocabulary=1024):
    rng = np.random.default_rng(7)
    heads, hidden = width // 64, width * 2
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CHUNK), writer.add_embedding_length(width), writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden), writer.add_head_count(heads), writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5), writer.add_rope_dimension_count(64), writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("no_vocab")

    def add(name, *shape):
        if len(shape) == 1:
            return writer.add_tensor(name, (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32))
        writer.add_tensor(name, (0.02 * rng.standard_normal(shape)).astype(np.float32))  # as models are drawn

    add("token_embd.weight", vocabulary, width), add("output_norm.weight", width), add("output.weight", vocabulary, width)
    for i in range(layers):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{i}.{name}.weight", width, width)
        add(f"blk.{i}.attn_norm.weight", width), add(f"blk.{i}.ffn_norm.weight", width)
        add(f"blk.{i}.ffn_gate.weight", hidden, width), add(f"blk.{i}.ffn_up.weight", hidden, width)
        add(f"blk.{i}.ffn_down.weight", width, hidden)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file()
    writer.close()


def random():
    print("width | type | mean |d log p|, q8 | f32 activations | llama.cpp by itself, a token at a time")
    chunks = np.random.default_rng(1).integers(0, 1024, (4, CHUNK)).tolist()
    for width in (768, 2048):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "f32.gguf")
            random_llama(source, width)
            for kind in ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_XS", "MXFP4_MOE", "Q8_0", "Q4_0"):
                if not hasattr(ll, f"LLAMA_FTYPE_MOSTLY_{kind}"):
                    print(f"{width} | {kind} | not in this llama.cpp")
                    continue
                path = quantized(source, folder, kind)
                theirs = expected(path, chunks)
                q8, f32 = (abs(theirs - scored(path, chunks, "--activations", it)).mean() for it in ("q8", "f32"))
                own = abs(theirs - expected(path, chunks, at_once=1)).mean()
                print(f"{width} | {kind} | {q8:.5f} | {f32:.5f} | {own:.5f} | {check(q8 <= max(0.01, 1.5 * own), f'{width} {kind}')}", flush=True)


ll.llama_backend_init()
quiet = ll.llama_log_callback(lambda level, text, data: None)
ll.llama_log_set(quiet, None)
for part in PARTS:
    {"tokens": tokens, "perplexity": perplexity, "random": random}[part]()
print("FAILED: " + ", ".join(failures) if failures else "all hold")
sys.exit(bool(failures))
