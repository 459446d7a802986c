#!/usr/bin/env python3
"""gguf_blocks.py BUILD [--ggml LIBRARY] [--model GGUF] [--golden]: block codecs against gguf's and llama.cpp's.

Decoders: random blocks of every type, with finite scales, must give the bits that the gguf package gives (types that
it lacks: GGML's library). Encoders: on rows of four kinds, and of a model's matrices if one is given, with and without
importance, the root of the mean squared error must be at most 1.02 times that of the better of both other encoders.
Exits with 1 where either fails.

BUILD is a build folder with the target block_codec. Needs numpy, gguf and llama-cpp-python, or --ggml with a
libggml-base built from its sources. --golden prints the table of tests/graph/block_codec_test.cc instead."""
import argparse
import ctypes
import importlib.util
import pathlib
import subprocess
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, dequantize, quantize

MOST = 1.02
# Type -> where its blocks have f16 numbers; a type that gguf has no size for: elements and bytes of a block, too.
TYPES = {
    "F32": [], "F64": [], "F16": [0], "BF16": [], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ1_S": [0], "IQ1_M": [],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ4_NL": [0], "IQ4_XS": [0],
    "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [], "NVFP4": [], "Q1_0": [0], "Q2_0": [0]}
LACKING = {"Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18)}
DECODED_ONLY = {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"}


def layout(name):
    """(GGML's number, elements, bytes) of a type's block"""
    if name in LACKING:
        return LACKING[name]
    number = GGMLQuantizationType[name]
    return (int(number), *GGML_QUANT_SIZES[number])


class Ggml:
    """The functions of libggml-base that are compared with."""

    def __init__(self, path):
        if path is None:
            spec = importlib.util.find_spec("llama_cpp")
            if spec is None:
                sys.exit("install llama-cpp-python, or name a libggml-base with --ggml")
            path = next(pathlib.Path(spec.origin).parent.rglob("libggml-base.so"))
        self.library = ctypes.CDLL(str(path))
        self.library.ggml_quantize_chunk.restype = ctypes.c_size_t
        self.library.ggml_quantize_chunk.argtypes = [
            ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
            ctypes.c_void_p]

    def decode(self, name, blocks):
        function = getattr(self.library, "dequantize_row_" + name.lower().replace("_k", "_K"))
        function.restype = None
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        _, elements, size = layout(name)
        values = np.empty(blocks.size // size * elements, np.float32)
        function(blocks.ctypes.data, values.ctypes.data, values.size)
        return values

    def encode(self, name, values, importance):
        number, elements, size = layout(name)
        rows, columns = values.shape
        blocks = np.empty((rows, columns // elements * size), np.uint8)
        self.library.ggml_quantize_chunk(number, values.ctypes.data, blocks.ctypes.data, 0, rows, columns,
                                         None if importance is None else importance.ctypes.data)
        return blocks


class Tessera:
    def __init__(self, build):
        self.program = next(iter([*pathlib.Path(build).rglob("block_codec")]), None)
        if self.program is None:
            sys.exit(f"{build} has no block_codec: build that target first")

    def run(self, data, *arguments):
        return subprocess.run([self.program, *arguments], input=data, stdout=subprocess.PIPE, check=True).stdout

    def decode(self, name, blocks):
        return np.frombuffer(self.run(blocks.tobytes(), "decode", name.lower()), np.float32)

    def encode(self, name, values, importance):
        data = values.tobytes()
        if importance is None:
            return np.frombuffer(self.run(data, "encode", name.lower()), np.uint8)
        data = importance.tobytes() + data
        return np.frombuffer(self.run(data, "encode", name.lower(), str(importance.size)), np.uint8)


def reference_decode(name, blocks, ggml):
    """The values of blocks, one after the other."""
    if name in LACKING:
        return ggml.decode(name, blocks)
    if name in ("F32", "F64"):
        return blocks.reshape(-1).view(np.float32 if name == "F32" else np.float64).astype(np.float32)
    size = layout(name)[2]
    return dequantize(blocks.reshape(-1, size), GGMLQuantizationType[name]).reshape(-1)


def random_blocks(name, count, random):
    size = layout(name)[2]
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in TYPES[name]:  # no infinity, no NaN
        high = blocks[:, at + 1]
        blocks[:, at + 1] = np.where((high & 0x7c) == 0x7c, high ^ 0x40, high)
    if name == "IQ1_M":  # whose f16 is in pieces
        blocks[:, 55] = np.where((blocks[:, 55] & 0x70) == 0x70, blocks[:, 55] ^ 0x40, blocks[:, 55])
    if name in ("F32", "F64", "BF16"):
        form = np.float64 if name == "F64" else np.float32
        blocks = random.standard_normal((count, 1)).astype(form).view(np.uint8)[:, -size:]
    return np.ascontiguousarray(blocks)


def check_decoders(tessera, ggml):
    print(f"{'type':9} {'blocks':>7} {'different bits':>15}")
    failed = False
    for name in TYPES:
        blocks = random_blocks(name, 4096, np.random.default_rng(7))
        with np.errstate(over="ignore"):
            theirs = reference_decode(name, blocks, ggml)
        ours = tessera.decode(name, blocks)
        different = int((ours.view(np.uint32) != theirs.view(np.uint32)).sum())
        failed = failed or different > 0
        print(f"{name:9} {len(blocks):7} {different:15}")
    return failed


def rows_of(kind, random, rows=48, columns=2048):
    shape = (rows, columns)
    if kind == "gaussian":
        values = random.standard_normal(shape)
    elif kind == "heavy-tailed":
        values = random.standard_t(3, shape)
    elif kind == "shifted":  # all of one sign, mostly
        values = random.gamma(2.0, 1.0, shape) - 0.5
    else:  # like trained weights: rows and columns of other sizes, a few columns that stand out
        values = random.standard_normal(shape) * np.exp(0.4 * random.standard_normal((1, columns)))
        values *= np.exp(0.5 * random.standard_normal((rows, 1)))
        values[:, random.integers(0, columns, columns // 256)] *= 6
    return np.ascontiguousarray(values * 0.02, np.float32)


def rows_of_model(path, rows=48, columns=2048):
    """Numbers of the model's matrices, in turn."""
    matrices = [tensor for tensor in GGUFReader(path).tensors if len(tensor.shape) == 2 and ".blk" in "." + tensor.name]
    values = np.empty((rows, columns), np.float32)
    for row in range(rows):
        tensor = matrices[row * len(matrices) // rows]
        values[row] = dequantize(tensor.data[:16], tensor.tensor_type).reshape(-1)[:columns]
    return values


def error(name, blocks, values, importance, ggml):
    with np.errstate(over="ignore"):
        decoded = reference_decode(name, np.frombuffer(blocks, np.uint8), ggml).reshape(values.shape)
    squares = (decoded.astype(np.float64) - values) ** 2
    return float(np.sqrt(np.average(squares if importance is None else squares * importance)))


def check_encoders(tessera, ggml, model):
    print(f"\nroot mean squared error, relative to the values'\n{'type':8} {'rows':13} {'weights':8} "
          f"{'ours':>9} {'llama.cpp':>10} {'gguf':>9} {'ours/best':>10}")
    worst = {}
    for name in TYPES:
        if name in DECODED_ONLY or name in ("F32", "F64"):
            continue
        for kind in ("gaussian", "heavy-tailed", "shifted", "real-like", "model"):
            if kind == "model" and model is None:
                continue
            random = np.random.default_rng(11)
            values = model if kind == "model" else rows_of(kind, random)
            weights = np.exp(1.5 * random.standard_normal(values.shape[1])).astype(np.float32)
            for importance in (None, weights):
                size = np.sqrt(np.average(values.astype(np.float64) ** 2 * (1 if importance is None else importance)))
                ours = error(name, tessera.encode(name, values, importance), values, importance, ggml) / size
                others = [error(name, ggml.encode(name, values, importance), values, importance, ggml) / size]
                try:
                    if importance is None and name not in LACKING:
                        packed = quantize(values, GGMLQuantizationType[name]).view(np.uint8)
                        others.append(error(name, packed, values, None, ggml) / size)
                except NotImplementedError:
                    pass
                ratio = ours / min(others) if min(others) > 0 else 1.0 if ours == 0 else np.inf
                worst[name] = max(worst.get(name, 0), ratio)
                python = f"{others[1]:9.5f}" if len(others) > 1 else " " * 9
                print(f"{name:8} {kind:13} {'none' if importance is None else 'columns':8} {ours:9.5f} "
                      f"{others[0]:10.5f} {python} {ratio:10.4f}")
    print("\nworst ours/best: " + "  ".join(f"{name} {ratio:.3f}" for name, ratio in worst.items()))
    return any(ratio > MOST for ratio in worst.values())


def print_golden(ggml, elements=65536):
    """The table of block_codec_test.cc: FNV-1a over the bits of decoded pseudo-random bytes; all NaNs are one."""
    for name in TYPES:
        _, per_block, size = layout(name)
        count = elements // per_block * size
        state, stream = 25, bytearray(count)
        for i in range(count):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            stream[i] = state >> 56
        with np.errstate(all="ignore"):
            values = reference_decode(name, np.frombuffer(bytes(stream), np.uint8), ggml)
        bits = np.where(np.isnan(values), np.uint32(0x7fc00000), values.view(np.uint32))
        digest = 14695981039346656037
        for word in bits.tolist():
            digest = (digest ^ word) * 1099511628211 % 2**64
        print(f"    {{DType::k{name}, 0x{digest:016x}}},")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--ggml")
    parser.add_argument("--model")
    parser.add_argument("--golden", action="store_true")
    arguments = parser.parse_args()
    ggml = Ggml(arguments.ggml)
    if arguments.golden:
        return print_golden(ggml)
    tessera = Tessera(arguments.build)
    model = rows_of_model(arguments.model) if arguments.model else None
    failed = check_decoders(tessera, ggml)
    failed = check_encoders(tessera, ggml, model) or failed
    print("FAILED" if failed else "passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
