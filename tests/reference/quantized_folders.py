#!/usr/bin/env python3
"""quantized_folders.py BUILD [WORD]: folders quantised as GPTQ, AWQ, FP8 with scales of blocks, and MXFP4, against transformers; and
as compressed-tensors and modelopt quantise them, against both. WORD: only cases with it in their name.

Weights of a random model are packed here as each format's description has it, and the model that they stand for is
computed by transformers in f64; MXFP4 is unpacked by transformers' own code. Logits within 2e-5 of the largest, or half as much again
as transformers' own f32 is off; 16-bit weights round rows of products, and have 2e-2. Weights of modules (module_folders.py) are also
read back: floats have the bits of the package's own decoding, blocks the same numbers before it rounds them. Needs torch,
transformers, safetensors, numpy, gguf, compressed-tensors and nvidia-modelopt (PyPI); never part of `./dev test`."""
import ctypes
import json
import os
import sys
import tempfile

import gguf
import module_folders
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from tessera_c import Failed, Library

VOCABULARY = 97
LLAMA = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
         "vocab_size": VOCABULARY, "max_position_embeddings": 128}
GPT_OSS = {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 9, "router_aux_loss_coef": 0.0}
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def random_model(model_type, settings):
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(model_type, **settings)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if "norm" in name else 0.0
            parameter.copy_(around + torch.randn_like(parameter) * (0.2 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5))
    return model


def pack_rows(codes, bits):
    """[K, N] -> [K * bits / 32, N], lower rows in lower bits."""
    each = 32 // bits
    words = np.zeros((codes.shape[0] // each, codes.shape[1]), np.uint32)
    for i in range(each):
        words |= codes[i::each].astype(np.uint32) << np.uint32(bits * i)
    return torch.from_numpy(words.view(np.int32).copy())


def pack_columns(codes, bits, order):
    each = 32 // bits
    words = np.zeros((codes.shape[0], codes.shape[1] // each), np.uint32)
    for i in range(each):
        words |= codes[:, order[i]::each].astype(np.uint32) << np.uint32(bits * i)
    return torch.from_numpy(words.view(np.int32).copy())


def grouped(weight, bits, group, symmetric, order):
    """Codes [K, N], scales and zero points [groups, N], and the weight that they stand for, [N, K]."""
    matrix = weight.numpy().T.astype(np.float64)  # [K, N]
    K, N = matrix.shape
    owner = order if order is not None else np.arange(K) // group
    top = 2 ** bits - 1
    codes, scales, zeros = np.zeros((K, N), np.int64), np.zeros((K // group, N), np.float16), np.zeros((K // group, N), np.int64)
    for g in range(K // group):
        rows = matrix[owner == g]
        if symmetric:
            scales[g] = np.maximum(np.abs(rows).max(0) / (2 ** (bits - 1) - 1 or 1), 1e-4)
            zeros[g] = 2 ** (bits - 1)
        else:
            low, high = np.minimum(rows.min(0), 0), np.maximum(rows.max(0), 0)
            scales[g] = np.maximum((high - low) / top, 1e-4)
            zeros[g] = np.clip(np.round(-low / scales[g].astype(np.float64)), 1, top)
        codes[owner == g] = np.clip(np.round(rows / scales[g].astype(np.float64)) + zeros[g], 0, top)
    exact = (codes - zeros[owner]).astype(np.float64) * scales.astype(np.float64)[owner]
    return codes, scales, zeros, owner, exact.T


def packed(tensors, method, bits, group, symmetric=True, act_order=False, version="gptq"):
    """The folder's tensors, and the weights that they stand for."""
    out, exact = {}, {}
    for name, tensor in tensors.items():
        if ".self_attn." not in name and ".mlp." not in name:
            out[name] = tensor
            continue
        stem, K = name.removesuffix(".weight"), tensor.shape[1]
        order = np.random.default_rng(1).permutation(np.arange(K) // group) if act_order else None
        codes, scales, zeros, owner, stands_for = grouped(tensor, bits, group, symmetric, order)
        blocks = symmetric and not act_order and bits in (4, 8) and group % 32 == 0
        exact[name] = torch.from_numpy(stands_for if blocks else stands_for.astype(np.float16).astype(np.float64))
        if method == "gptq":
            out[stem + ".qweight"] = pack_rows(codes, bits)
            stored = zeros - 1 if version == "gptq" else zeros
            out[stem + ".qzeros"] = pack_columns(stored, bits, list(range(32 // bits)))
            out[stem + ".g_idx"] = torch.from_numpy(owner.astype(np.int32))
        else:
            out[stem + ".qweight"] = pack_columns(codes, bits, AWQ_ORDER)
            out[stem + ".qzeros"] = pack_columns(zeros, bits, AWQ_ORDER)
        out[stem + ".scales"] = torch.from_numpy(scales)
    return out, exact


def fp8(tensors, block):
    out, exact = {}, {}
    for name, tensor in tensors.items():
        if ".self_attn." not in name and ".mlp." not in name:
            out[name] = tensor
            continue
        rows, columns = -(-tensor.shape[0] // block[0]), -(-tensor.shape[1] // block[1])
        scale = torch.empty(rows, columns)
        codes, stands_for = torch.empty_like(tensor, dtype=torch.float8_e4m3fn), torch.empty_like(tensor, dtype=torch.float64)
        for i in range(rows):
            for j in range(columns):
                at = np.s_[i * block[0]:(i + 1) * block[0], j * block[1]:(j + 1) * block[1]]
                scale[i, j] = tensor[at].abs().max() / 448
                codes[at] = (tensor[at] / scale[i, j]).to(torch.float8_e4m3fn)
                stands_for[at] = codes[at].double() * scale[i, j].double()
        out[name], out[name + "_scale_inv"], exact[name] = codes, scale, stands_for
    return out, exact


def mxfp4(tensors):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    out, exact = {}, {}
    for name, tensor in tensors.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            out[name] = tensor
            continue
        E, K, N = tensor.shape
        generator = torch.Generator().manual_seed(len(name))
        blocks = torch.randint(0, 256, (E, N, K // 32, 16), dtype=torch.uint8, generator=generator)
        scales = torch.randint(122, 126, (E, N, K // 32), dtype=torch.uint8, generator=generator)
        out[name + "_blocks"], out[name + "_scales"] = blocks, scales
        exact[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).double()
        assert exact[name].shape == tensor.shape, (exact[name].shape, tensor.shape)
    return out, exact


GPTQ = {"quant_method": "gptq", "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "zero_point": True, "version": "gemm"}
CASES = {
    "gptq, 4 bits": ("llama", {**GPTQ, "bits": 4, "group_size": 32}, lambda t: packed(t, "gptq", 4, 32)),
    "gptq, 8 bits": ("llama", {**GPTQ, "bits": 8, "group_size": 32}, lambda t: packed(t, "gptq", 8, 32)),
    "gptq, 2 bits": ("llama", {**GPTQ, "bits": 2, "group_size": 16}, lambda t: packed(t, "gptq", 2, 16)),
    "gptq, asymmetric": ("llama", {**GPTQ, "bits": 4, "group_size": 32, "sym": False}, lambda t: packed(t, "gptq", 4, 32, symmetric=False)),
    "gptq, act order": ("llama", {**GPTQ, "bits": 4, "group_size": 32, "desc_act": True}, lambda t: packed(t, "gptq", 4, 32, act_order=True)),
    "gptq_v2": ("llama", {**GPTQ, "bits": 4, "group_size": 16, "checkpoint_format": "gptq_v2"}, lambda t: packed(t, "gptq", 4, 16, symmetric=False, version="gptq_v2")),
    "awq": ("llama", {**AWQ, "group_size": 32}, lambda t: packed(t, "awq", 4, 32, symmetric=False)),
    "awq, symmetric": ("llama", {**AWQ, "group_size": 32}, lambda t: packed(t, "awq", 4, 32)),
    "fp8": ("llama", {"quant_method": "fp8", "weight_block_size": [16, 24], "activation_scheme": "dynamic"}, lambda t: fp8(t, [16, 24])),
    "fp8, one scale": ("llama", {"quant_method": "fp8"}, lambda t: fp8(t, [1 << 16, 1 << 16])),
    "mxfp4": ("gpt_oss", {"quant_method": "mxfp4"}, mxfp4),
}


def logits(library, model, ids):
    graph = library.make("graph", "tsr_model_graph", model)
    session = library.session(graph, "forward", batch=1, symbols=f"T={ids.shape[1]}")
    library.call("tsr_session_write_model", session, model)
    library.feed(session, "forward", tokens=ids, positions=np.arange(ids.shape[1], dtype=np.int32)[None])
    library.call("tsr_session_run", session, "forward")
    return library.fetch(session, "forward", "logits")


def write_folder(folder, tensors, quantization, files=()):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    config_path = os.path.join(folder, "config.json")
    with open(config_path) as file:
        config = json.load(file)
    for name, content in {"config.json": {**config, **({"quantization_config": quantization} if quantization else {})}, **dict(files)}.items():
        with open(os.path.join(folder, name), "w") as file:
            json.dump(content, file)


def compare_logits(library, ours, wide, exact, limit):
    """The difference of logits to those of the model of weights `exact` in f64, over the largest, and its limit."""
    with torch.no_grad():
        parameters = dict(wide.named_parameters())
        for key, value in exact.items():
            parameters[key].copy_(value)
        ids = np.random.default_rng(5).integers(2, VOCABULARY, (1, 24)).astype(np.int32)
        theirs = wide(torch.tensor(ids, dtype=torch.long)).logits.numpy()
        narrow = wide.float()(torch.tensor(ids, dtype=torch.long)).logits.double().numpy()
    error, largest = np.abs(logits(library, ours, ids) - theirs).max(), np.abs(theirs).max()
    return error / largest, limit or max(2e-5, 1.5 * np.abs(narrow - theirs).max() / largest)


def check(library, name):
    model_type, quantization, quantize = CASES[name]
    settings = GPT_OSS if model_type == "gpt_oss" else LLAMA
    with tempfile.TemporaryDirectory() as folder:
        random_model(model_type, settings).save_pretrained(folder)
        path = os.path.join(folder, "model.safetensors")
        tensors, exact = quantize(load_file(path))
        os.remove(path)  # which what was read is still mapped from
        write_folder(folder, tensors, quantization)
        ours = library.load(folder)
    rounds = any(value.double().half().double().equal(value) for value in exact.values()) and "fp8" not in name
    return compare_logits(library, ours, random_model(model_type, settings).double(), exact, 2e-2 if rounds else None)


PARTS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
FLOATS = {0: np.float32, 2: np.float16, 3: np.uint16}
BLOCKS = {8: "Q8_0", 9: "Q4_0", 13: "Q5_0", 31: "MXFP4", 32: "NVFP4"}


def read_weight(library, model, name):
    """The weight of a file's name as f32, and the type of its blocks, or None."""
    layer, part = name.split(".layers.")[1].split(".")[0], PARTS[name.split(".")[-2]]
    expert = name.split(".experts.")[1].split(".")[0] if ".experts." in name else None
    tensor = library.make("tensor", "tsr_model_read", model, f"block.{layer}.{'experts.' if expert else ''}{part}")
    pointer = ctypes.c_void_p(tensor.pointer)
    kind = library.c.tsr_tensor_dtype(pointer)
    shape = [library.c.tsr_tensor_dims(pointer)[i] for i in range(library.c.tsr_tensor_rank(pointer))]
    if kind in FLOATS:
        array = library.array(tensor, np.dtype(FLOATS[kind]))
        array = (array.astype(np.uint32) << 16).view(np.float32) if kind == 3 else array.astype(np.float32)
    else:
        quantisation = gguf.GGMLQuantizationType[BLOCKS[kind]]
        elements, size = gguf.GGML_QUANT_SIZES[quantisation]
        stored = np.frombuffer(ctypes.string_at(library.c.tsr_tensor_data(pointer), int(np.prod(shape)) // elements * size), np.uint8)
        array = gguf.quants.dequantize(stored.reshape(*shape[:-1], -1), quantisation).reshape(shape)
    return torch.from_numpy(array[int(expert)] if expert else array), BLOCKS.get(kind)


def differences(read, blocks, decoded, exact):
    """Numbers that are not those of the package, of blocks before they are rounded; nvfp4's but for the factor of all."""
    if not blocks:
        return int((read != decoded.float()).sum())
    if blocks == "NVFP4":
        at = exact.abs().argmax()
        factor = exact.flatten()[at] / read.double().flatten()[at]
        return int((~torch.isclose(read.double() * factor, exact, rtol=1e-6, atol=0)).sum())
    return int((read.double() != exact).sum())


def check_modules(library, name):
    model_type, settings, quantize = module_folders.CASES[name]
    settings = {**LLAMA, **settings}
    with tempfile.TemporaryDirectory() as folder:
        random_model(model_type, settings).save_pretrained(folder)
        path = os.path.join(folder, "model.safetensors")
        tensors, quantization, files, facts = quantize(load_file(path))
        os.remove(path)  # which what was read is still mapped from
        write_folder(folder, tensors, quantization, files)
        ours = library.load(folder)
        wrong, types, exact = 0, {}, {}
        for key, (decoded, unrounded) in facts.items():
            read, blocks = read_weight(library, ours, key)
            wrong += differences(read, blocks, decoded, unrounded)
            kind = blocks or str(decoded.dtype)
            types[kind] = types.get(kind, 0) + 1
            exact[key] = unrounded if blocks else decoded.double()
        wide = random_model(model_type, settings).double()
        error, limit = compare_logits(library, ours, wide, stacked(exact, wide), None)
    if wrong:
        raise Failed(f"{wrong} other numbers")
    return error, limit, ", ".join(f"{count} {kind}" for kind, count in types.items())


def stacked(exact, model):
    """Experts of files, one by one, as the model has them: gate and up of all in one tensor."""
    out = {key: value for key, value in exact.items() if ".experts." not in key}
    for key, parameter in model.named_parameters():
        if ".experts." not in key:
            continue
        stem, which = key.rsplit(".", 1)
        parts = ["gate_proj", "up_proj"] if which == "gate_up_proj" else ["down_proj"]
        names = [[f"{stem}.{expert}.{part}.weight" for part in parts] for expert in range(parameter.shape[0])]
        rows, plain = parameter.shape[1] // len(parts), parameter.detach()
        out[key] = torch.stack([torch.cat([exact.get(name, plain[expert, i * rows:(i + 1) * rows]) for i, name in enumerate(each)])
                                for expert, each in enumerate(names)])
    return out


def main():
    library = Library(sys.argv[1])
    word = sys.argv[2] if len(sys.argv) > 2 else ""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = []
    for name, run in [*((name, check) for name in CASES), *((name, check_modules) for name in module_folders.CASES)]:
        if word not in name:
            continue
        try:
            error, limit, *more = run(library, name)
            print(f"{name} | {error:.1e} of {limit:.1e}{'' if error <= limit else ' FAILED'}{''.join(f' | {each}' for each in more)}", flush=True)
            if error > limit:
                failed.append(name)
        except Failed as refusal:
            failed.append(name)
            print(f"{name} | FAILED: {refusal}", flush=True)
    print(f"failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


main()
