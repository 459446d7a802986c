#!/usr/bin/env python3
"""nf4_blocks.py BUILD [--golden]: blocks of NF4 against bitsandbytes', bit for bit.

Decoders: blocks of any bytes with finite scales give the bits of its dequantize_4bit. Encoders: on rows of four kinds, on
values half-way between levels and next to those, and on blocks of zeros and of the least numbers, codes and scales are
those of its quantize_4bit (whose tie between two levels is the lower). Exits with 1 where one bit differs.

BUILD is a build folder with the target block_codec. Needs torch, numpy and bitsandbytes (PyPI), without a GPU. --golden
prints the row of tests/graph/block_codec_test.cc instead."""
import pathlib
import subprocess
import sys

import numpy as np
import torch
from bitsandbytes import functional as bnb

ELEMENTS, BYTES = 64, 36


class Codec:
    def __init__(self, build):
        self.program = next(iter(pathlib.Path(build).rglob("block_codec")), None)
        if self.program is None:
            sys.exit(f"{build} has no block_codec: build that target first")

    def run(self, verb, data):
        return subprocess.run([self.program, verb, "nf4"], input=data.tobytes(), stdout=subprocess.PIPE, check=True).stdout


def decoded(blocks):
    """Blocks [n, 36] as bitsandbytes decodes them, f32 [n * 64]."""
    scales = torch.from_numpy(blocks[:, :4].copy().view(np.float32).reshape(-1))
    codes = torch.from_numpy(blocks[:, 4:].reshape(-1, 1).copy())
    state = bnb.QuantState(absmax=scales, shape=torch.Size([len(blocks), ELEMENTS]), code=bnb.get_4bit_type("nf4", device="cpu"),
                           blocksize=ELEMENTS, quant_type="nf4", dtype=torch.float32)
    return bnb.dequantize_4bit(codes, state).numpy().reshape(-1)


def encoded(values):
    codes, state = bnb.quantize_4bit(torch.from_numpy(values), blocksize=ELEMENTS, quant_type="nf4")
    scales = state.absmax.numpy().astype(np.float32).view(np.uint8).reshape(-1, 4)
    return np.concatenate([scales, codes.numpy().reshape(-1, ELEMENTS // 2)], 1)


def rows_of_values():
    random = np.random.default_rng(11)
    yield "gaussian", random.standard_normal(65536)
    yield "heavy-tailed", random.standard_t(3, 65536)
    yield "shifted", random.gamma(2.0, 1.0, 65536) - 0.5
    yield "16 bits", random.standard_normal(65536).astype(np.float16)
    levels = bnb.get_4bit_type("nf4", device="cpu").numpy().astype(np.float64)
    middles = ((levels[1:] + levels[:-1]) / 2).astype(np.float32)
    near = np.concatenate([middles, np.nextafter(middles, np.float32(2)), np.nextafter(middles, np.float32(-2))])
    ties = np.zeros((4, ELEMENTS), np.float32)
    for i, scale in enumerate([1.0, -1.0, 0.5, 2.0 ** -100]):
        ties[i, :len(near)], ties[i, -1] = near * np.float32(abs(scale)), scale
    yield "half-way", ties
    yield "zeros", np.zeros(2 * ELEMENTS)
    yield "least", random.standard_normal(ELEMENTS * 4) * 1e-39
    yield "largest", np.where(random.random(ELEMENTS * 4) < 0.5, 3.4e38, -3.4e38) * random.random(ELEMENTS * 4)


def golden(elements=65536):
    """FNV-1a over the bits of decoded pseudo-random bytes; all NaNs are one."""
    count, state = elements // ELEMENTS * BYTES, 25
    stream = bytearray(count)
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        stream[i] = state >> 56
    values, result = decoded(np.frombuffer(bytes(stream), np.uint8).reshape(-1, BYTES)), 14695981039346656037
    for value, bits in zip(values, values.view(np.uint32)):
        result = ((result ^ (0x7FC00000 if np.isnan(value) else int(bits))) * 1099511628211) % 2 ** 64
    print(f"{{DType::kNF4, {result:#018x}}},")


def main():
    if "--golden" in sys.argv:
        return golden()
    codec, failed = Codec(sys.argv[1]), False
    blocks = np.random.default_rng(7).integers(0, 256, (4096, BYTES), dtype=np.uint8)
    blocks[:, 3] &= 0xBF  # finite scales
    ours = np.frombuffer(codec.run("decode", blocks), np.uint32)
    different = int((ours != decoded(blocks).view(np.uint32)).sum())
    print(f"decoded {len(blocks)} blocks: {different} different values")
    for name, values in rows_of_values():
        values = np.ascontiguousarray(values, np.float32).reshape(-1, ELEMENTS)
        ours, theirs = np.frombuffer(codec.run("encode", values), np.uint8).reshape(-1, BYTES), encoded(values)
        wrong = int((ours != theirs).any(1).sum())
        print(f"encoded {len(values):5} blocks, {name}: {wrong} different")
        failed = failed or wrong > 0
    sys.exit(1 if failed or different else 0)


main()
