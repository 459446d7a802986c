#!/usr/bin/env python3
"""bitsandbytes_folders.py BUILD: folders that transformers saves of models that bitsandbytes quantised, against both.

A random model is quantised on loading (NF4 and FP4, with and without double quantisation, in f32 and bf16, other block
sizes; LLM.int8) and saved. What this library reads has, number for number, the bits of bitsandbytes' own dequantisation:
of NF4 that to f32, of FP4 that to the model's type. Logits are those of a model of these numbers in f64, within 2e-5 of
the largest (half as much again as transformers' own f32 is off). Then five tokens are generated, and adapters added.
Needs torch, transformers, accelerate, bitsandbytes, safetensors and numpy (PyPI), without a GPU; never part of `./dev test`."""
import ctypes
import os
import sys
import tempfile

import bitsandbytes
import numpy as np
import torch
import transformers
from bitsandbytes import functional as bnb
from safetensors.torch import load_file, save_file
from tessera_c import F32, Failed, Library

VOCABULARY = 97
# Rows of whole blocks of 128: where one goes on in the next row, bitsandbytes 0.50 takes another scale on CPUs.
LLAMA = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256,
         "vocab_size": VOCABULARY, "max_position_embeddings": 128}
NAMES = {"self_attn.v_proj": "v", "self_attn.o_proj": "o", "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down"}
U8 = np.dtype("uint8")


def four_bits(kind, nested):
    return {"load_in_4bit": True, "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": nested, "bnb_4bit_compute_dtype": torch.float32}


CASES = {
    "nf4": (four_bits("nf4", False), torch.float32, 64),
    "nf4, double": (four_bits("nf4", True), torch.float32, 64),
    "nf4, double, bf16": (four_bits("nf4", True), torch.bfloat16, 64),
    "nf4, in bf16 words": ({**four_bits("nf4", False), "bnb_4bit_quant_storage": torch.bfloat16}, torch.float32, 64),
    "nf4, blocks of 128": (four_bits("nf4", True), torch.float32, 128),
    "fp4": (four_bits("fp4", False), torch.float32, 64),
    "fp4, double, bf16": (four_bits("fp4", True), torch.bfloat16, 64),
    "int8": ({"load_in_8bit": True}, torch.float32, 64),
}


def random_model():
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model("llama", **LLAMA), attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if "norm" in name else 0.0
            parameter.copy_(around + torch.randn_like(parameter) * (0.2 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5))
    return model.float().eval()


def dequantised(state, name, dtype):
    """A matrix of a saved folder as bitsandbytes computes it."""
    if name + ".SCB" in state:
        return bnb.int8_vectorwise_dequant(state[name + ".weight"], state[name + ".SCB"])
    parts = {key.removeprefix(name + "."): value for key, value in state.items() if key.startswith(name + ".weight.")}
    quantised = bnb.QuantState.from_dict(parts, device="cpu")
    quantised.dtype = torch.float32 if quantised.quant_type == "nf4" else dtype
    return bnb.dequantize_4bit(state[name + ".weight"].view(torch.uint8), quantised).float()


def with_blocks_of(size, state):
    """The same folder with matrices quantised in other blocks, as quantize_4bit makes them."""
    for name in sorted({key.split(".weight.")[0] for key in state if ".quant_state." in key}):
        codes, made = bnb.quantize_4bit(dequantised(state, name, torch.float32), blocksize=size, quant_type="nf4", compress_statistics=True)
        for key in [key for key in state if key.startswith(name + ".weight")]:
            del state[key]
        state[name + ".weight"] = codes
        state.update({f"{name}.weight.{key}": value for key, value in made.as_dict(packed=True).items()})


NF4 = bnb.get_4bit_type("nf4", device="cpu").numpy()


def values_of(library, model, name):
    """A parameter as f32, blocks of NF4 decoded here."""
    tensor = library.make("tensor", "tsr_model_read", model, name)
    kind = library.c.tsr_tensor_dtype(ctypes.c_void_p(tensor.pointer))
    if kind != 35:
        halves = {2: np.float16, 3: np.uint16}.get(kind)
        if halves is None:
            return library.array(tensor, F32)
        array = library.array(tensor, np.dtype(halves))
        return array.astype(np.float32) if kind == 2 else (array.astype(np.uint32) << 16).view(np.float32)
    pointer = ctypes.c_void_p(tensor.pointer)
    rows, columns = (library.c.tsr_tensor_dims(pointer)[i] for i in range(2))
    blocks = np.frombuffer(ctypes.string_at(library.c.tsr_tensor_data(pointer), rows * columns // 64 * 36), U8).reshape(-1, 36)
    scales = blocks[:, :4].copy().view(np.float32)
    codes = np.stack([blocks[:, 4:] >> 4, blocks[:, 4:] & 15], -1).reshape(-1, 64)
    return (NF4[codes] * scales).reshape(rows, columns)


def logits(library, model, ids):
    graph = library.make("graph", "tsr_model_graph", model)
    session = library.session(graph, "forward", batch=1, symbols=f"T={ids.shape[1]}")
    library.call("tsr_session_write_model", session, model)
    library.feed(session, "forward", tokens=ids, positions=np.arange(ids.shape[1], dtype=np.int32)[None])
    library.call("tsr_session_run", session, "forward")
    return library.fetch(session, "forward", "logits")


def check(library, name):
    settings, dtype, block = CASES[name]
    with tempfile.TemporaryDirectory() as plain, tempfile.TemporaryDirectory() as folder:
        random_model().to(dtype).save_pretrained(plain)
        saved = transformers.AutoModelForCausalLM.from_pretrained(plain, dtype=dtype, device_map="cpu", attn_implementation="eager",
                                                                  quantization_config=transformers.BitsAndBytesConfig(**settings))
        saved.save_pretrained(folder)
        path = os.path.join(folder, "model.safetensors")
        state = load_file(path)
        if block != 64:
            with_blocks_of(block, state)
            os.remove(path)  # which what was read is still mapped from
            save_file({key: value.contiguous() for key, value in state.items()}, path, metadata={"format": "pt"})
        ours = library.load(folder)
        wrong, exact = 0, {}
        for key, _ in random_model().named_parameters():
            stem = key.removesuffix(".weight")
            is_quantised = f"{stem}.SCB" in state or f"{stem}.weight.absmax" in state
            exact[key] = dequantised(state, stem, dtype) if is_quantised else state[key].float()
            layer = stem.split(".")[2] if is_quantised else ""
            for theirs, mine in NAMES.items():
                if is_quantised and stem.endswith(theirs):
                    wrong += int((values_of(library, ours, f"block.{layer}.{mine}") != exact[key].numpy()).sum())
        wide = random_model().double()
        with torch.no_grad():
            for key, parameter in wide.named_parameters():
                parameter.copy_(exact[key])
            ids = np.random.default_rng(5).integers(2, VOCABULARY, (1, 24)).astype(np.int32)
            theirs = wide(torch.tensor(ids, dtype=torch.long)).logits.numpy()
            narrow = wide.float()(torch.tensor(ids, dtype=torch.long)).logits.double().numpy()
        largest = np.abs(theirs).max()
        error, limit = np.abs(logits(library, ours, ids) - theirs).max() / largest, max(2e-5, 1.5 * np.abs(narrow - theirs).max() / largest)
        tokens = library.continue_tokens(library.generator(ours, max_tokens=5), [3, 5, 7])
        library.make("model", "tsr_model_add_adapters", ours, library.options(rank=4))
    return wrong, error, limit, len(tokens)


def main():
    library = Library(sys.argv[1])
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = []
    print(f"bitsandbytes {bitsandbytes.__version__}, transformers {transformers.__version__}")
    for name in CASES:
        try:
            wrong, error, limit, tokens = check(library, name)
            good = wrong == 0 and error <= limit and tokens == 5
            print(f"{name} | {wrong} other numbers | logits {error:.1e} of {limit:.1e}{'' if good else ' FAILED'}", flush=True)
            if not good:
                failed.append(name)
        except Failed as refusal:
            failed.append(name)
            print(f"{name} | FAILED: {refusal}", flush=True)
    print(f"failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


main()
