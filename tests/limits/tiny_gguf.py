"""A GGUF file of a small llama, written here so that importing needs no data from elsewhere."""
import random
import struct


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def tiny_llama(path, channels=32, heads=2, hidden=64, vocabulary=256, blocks=1, context=64):
    values = [("general.architecture", 8, "llama"), ("llama.context_length", 4, context),
              ("llama.embedding_length", 4, channels), ("llama.block_count", 4, blocks),
              ("llama.feed_forward_length", 4, hidden), ("llama.attention.head_count", 4, heads),
              ("llama.attention.layer_norm_rms_epsilon", 6, 1e-5), ("llama.vocab_size", 4, vocabulary)]
    shapes = {"token_embd.weight": [channels, vocabulary], "output_norm.weight": [channels],
              "output.weight": [channels, vocabulary]}
    for block in range(blocks):
        for name, shape in {"attn_norm": [channels], "attn_q": [channels, channels], "attn_k": [channels, channels],
                            "attn_v": [channels, channels], "attn_output": [channels, channels], "ffn_norm": [channels],
                            "ffn_gate": [channels, hidden], "ffn_up": [channels, hidden],
                            "ffn_down": [hidden, channels]}.items():
            shapes[f"blk.{block}.{name}.weight"] = shape
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), len(values))
    for key, kind, value in values:
        packed = text(value) if kind == 8 else struct.pack("<f" if kind == 6 else "<I", value)
        head += text(key) + struct.pack("<I", kind) + packed
    draw, data = random.Random(1), b""
    for name, shape in shapes.items():
        count = 1
        for extent in shape:
            count *= extent
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", 0, len(data))
        data += struct.pack(f"<{count}f", *(draw.uniform(-0.1, 0.1) for _ in range(count)))
        data += bytes(-len(data) % 32)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)
