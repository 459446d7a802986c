"""Folders of which modules are quantised as compressed-tensors and modelopt do it: by their own code, tensor by tensor.

Each case gives the folder's tensors, its quantisation, and for every weight what the package decodes it to, in its type and (numbers
of the same codes and scales) in f64."""
import copy
import re

import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.mx_utils import decompress_mx_scale
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam
from compressed_tensors.utils.match import match_name
from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format
from modelopt.torch.export.quant_utils import process_layer_quant_config, to_quantized_weight
from modelopt.torch.quantization.qtensor import MXFP8QTensor, NVFP4QTensor

MADE = re.compile(r"(self_attn|mlp|experts)\..*proj\.weight$")


def extremes(weight, args):
    """The least and the largest number under each scale."""
    if args.strategy == "tensor":
        return weight.min().reshape(1), weight.max().reshape(1)
    if args.strategy == "channel":
        return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    if args.strategy == "block":
        rows, columns = args.block_structure
        grid = [[weight[i:i + rows, j:j + columns] for j in range(0, weight.shape[1], columns)] for i in range(0, weight.shape[0], rows)]
        return tuple(torch.stack([torch.stack([pick(block) for block in line]) for line in grid]) for pick in (torch.min, torch.max))
    parts = weight.unflatten(1, (-1, args.group_size))
    return parts.amin(2), parts.amax(2)


def compressed_module(weight, scheme):
    """The tensors of a module, and its weight as decoded, and in f64."""
    args, form = scheme.weights, BaseCompressor.get_value_from_registry(scheme.format)
    least, most = extremes(weight, args)
    state = {"weight": weight}
    scale_of_all = generate_gparam(weight.min().float(), weight.max().float()) if args.strategy == "tensor_group" else None
    if scale_of_all is not None:
        state["weight_global_scale"] = scale_of_all
    scale, zero = calculate_qparams(least, most, args, global_scale=scale_of_all)
    state["weight_scale"] = scale if scale_of_all is not None else scale.to(weight.dtype)
    if not args.symmetric:
        state["weight_zero_point"] = zero.to(torch.int8)
    made = form.compress(copy.copy(state), scheme)
    decoded = form.decompress(copy.copy(made), scheme)["weight"]
    if "weight_packed" in made and made["weight_packed"].dtype == torch.uint8:
        numbers = unpack_fp4_from_uint8(made["weight_packed"], weight.shape[0], weight.shape[1], torch.float64)
        scales = decompress_mx_scale(made["weight_scale"]).double() if scale_of_all is None else made["weight_scale"].double() / scale_of_all.double()
        exact = (numbers.unflatten(1, (-1, args.group_size)) * scales.unsqueeze(-1)).flatten(1)
    elif made["weight_scale"].dtype == torch.uint8:
        exact = decoded.double()  # powers of two: nothing is rounded
    else:
        exact = form.decompress({**made, "weight_scale": made["weight_scale"].double()}, scheme)["weight"].double()
    return made, decoded, exact


def compressed(groups, dtype=torch.bfloat16, ignore=("lm_head",), extra=None):
    """`groups`: for each its targets, format and arguments of the weights."""
    schemes = [QuantizationScheme(targets=targets, format=form, weights=QuantizationArgs(**arguments),
                                  input_activations=QuantizationArgs(num_bits=8, type="int", strategy="token", dynamic=True) if form == "int-quantized" else None)
               for targets, form, arguments in groups]

    def make(tensors):
        out, facts = {}, {}
        for name, tensor in tensors.items():
            stem = name.removesuffix(".weight")
            by_name = [scheme for scheme in schemes if any(match_name(stem, target) for target in scheme.targets)]
            claimed = by_name or [scheme for scheme in schemes if "Linear" in scheme.targets]
            if not MADE.search(name) or not claimed or any(match_name(stem, each) for each in ignore):
                out[name] = tensor
                continue
            made, *facts[name] = compressed_module(tensor.to(dtype), claimed[0])
            out.update({f"{stem}.{part}": value for part, value in made.items()})
            out[f"{stem}.input_scale"] = torch.ones(1)
        forms = {form for _, form, _ in groups}
        config = QuantizationConfig(config_groups={f"group_{i}": scheme for i, scheme in enumerate(schemes)}, ignore=list(ignore),
                                    format=forms.pop() if len(forms) == 1 else "mixed-precision", quantization_status="compressed")
        return out, {**config.model_dump(mode="json"), "quant_method": "compressed-tensors", "sparsity_config": {}, "transform_config": {}, **(extra or {})}, {}, facts
    return make


def modelopt_module(weight, kind):
    if kind.endswith("nvfp4"):
        quantised, scale, scale_of_all = NVFP4QTensor.quantize(weight, 16)
        made = {"weight": quantised._quantized_data, "weight_scale": scale, "weight_scale_2": scale_of_all}
        decoded = quantised.dequantize(scale=scale, double_scale=scale_of_all, block_sizes={-1: 16})
        numbers = unpack_fp4_from_uint8(quantised._quantized_data, *weight.shape, torch.float64)
        exact = (numbers.unflatten(1, (-1, 16)) * (scale.double() * scale_of_all.double()).unsqueeze(-1)).flatten(1)
        return made, decoded, exact
    if kind == "mxfp8":
        quantised, scale = MXFP8QTensor.quantize(weight)
        decoded = quantised.dequantize(scale=scale)
        return {"weight": quantised._quantized_data, "weight_scale": scale}, decoded, decoded.double()
    scale = {"fp8": lambda: weight.abs().max().float() / 448, "fp8_pc_pt": lambda: weight.abs().amax(1).float() / 448,
             "int8_wo": lambda: weight.abs().amax(1).float() / 127}[kind]()
    codes = to_quantized_weight(weight, scale, kind)
    exact = codes.double() * (scale.double() if scale.dim() == 0 else scale.double()[:, None])
    return {"weight": codes, "weight_scale": scale}, exact.float(), exact


def modelopt(kind_of, place="config"):
    """`kind_of` gives the kind of a module's quantisation, or None. `place`: in config.json, in hf_quant_config.json, or both."""
    def make(tensors):
        out, facts, kinds = {}, {}, {}
        for name, tensor in tensors.items():
            stem = name.removesuffix(".weight")
            kind = kind_of(stem) if MADE.search(name) else None
            if MADE.search(name) or name == "lm_head.weight":
                kinds[stem + ".quantization"] = kind
                if kind and "fp4" in kind:
                    kinds[stem + ".awq_block_size"] = 16
            if not kind:
                out[name] = tensor
                continue
            made, *facts[name] = modelopt_module(tensor.to(torch.bfloat16), kind)
            out.update({f"{stem}.{part}": value for part, value in made.items()})
            out[f"{stem}.input_scale"] = torch.tensor(0.5)
            if stem.endswith("k_proj"):
                out[f"{stem}.k_scale"] = torch.tensor(1.0)
        file = {"producer": {"name": "modelopt"}, "quantization": {**process_layer_quant_config(kinds), "kv_cache_quant_algo": "FP8"}}
        for layer in (file["quantization"].get("quantized_layers") or {}).values():
            layer.pop("group_size", None) if layer["quant_algo"] == "MXFP8" else None
        config = convert_hf_quant_config_format(file) if place != "file" else None
        return out, config, {"hf_quant_config.json": file} if place != "config" else {}, facts
    return make


LINEAR = ["Linear"]


def integers(bits, **arguments):
    return {"num_bits": bits, "type": "int", "symmetric": True, **arguments}


def floats(bits, **arguments):
    return {"num_bits": bits, "type": "float", "symmetric": True, **arguments}


GROUP_OF_32 = {"strategy": "group", "group_size": 32}
NVFP4 = floats(4, strategy="tensor_group", group_size=16, scale_dtype="torch.float8_e4m3fn")
MXFP4 = floats(4, strategy="group", group_size=32, scale_dtype="torch.uint8")
ODD = {"hidden_size": 72, "head_dim": 18, "intermediate_size": 99, "moe_intermediate_size": 37}  # no whole blocks
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "head_dim": 16}


def mixed(stem):
    return "fp8" if "self_attn" in stem else "nvfp4" if "down_proj" not in stem else None


# For each the model's type, settings beside those of all models, and what makes the folder.
CASES = {
    "4 bits": ("llama", {}, compressed([(LINEAR, "pack-quantized", integers(4, **GROUP_OF_32))])),
    "4 bits, f16": ("llama", {}, compressed([(LINEAR, "pack-quantized", integers(4, **GROUP_OF_32))], torch.float16)),
    "4 bits, groups of 16, f32": ("llama", {}, compressed([(LINEAR, "pack-quantized", integers(4, strategy="group", group_size=16))], torch.float32)),
    "4 bits, asymmetric": ("llama", {}, compressed([(LINEAR, "pack-quantized", {**integers(4, **GROUP_OF_32), "symmetric": False})])),
    "4 bits, rows, odd": ("llama", ODD, compressed([(LINEAR, "pack-quantized", integers(4, strategy="channel"))])),
    "4 bits, rows, asymmetric, odd": ("llama", ODD, compressed([(LINEAR, "pack-quantized", {**integers(4, strategy="channel"), "symmetric": False})])),
    "4 bits, one scale": ("llama", {}, compressed([(LINEAR, "pack-quantized", integers(4, strategy="tensor"))])),
    "3 bits, asymmetric, odd": ("llama", ODD, compressed([(LINEAR, "pack-quantized", {**integers(3, strategy="channel"), "symmetric": False})])),
    "2 bits": ("llama", {}, compressed([(LINEAR, "pack-quantized", integers(2, **GROUP_OF_32))])),
    "8 bits, packed": ("llama", {}, compressed([(LINEAR, "pack-quantized", integers(8, **GROUP_OF_32))])),
    "8 bits, packed, asymmetric": ("llama", {}, compressed([(LINEAR, "pack-quantized", {**integers(8, **GROUP_OF_32), "symmetric": False})])),
    "int8": ("llama", {}, compressed([(LINEAR, "int-quantized", integers(8, strategy="channel"))])),
    "int8, asymmetric, odd": ("llama", ODD, compressed([(LINEAR, "naive-quantized", {**integers(8, strategy="channel"), "symmetric": False})])),
    "fp8, rows, odd": ("llama", ODD, compressed([(LINEAR, "float-quantized", floats(8, strategy="channel"))])),
    "fp8, one scale": ("llama", {}, compressed([(LINEAR, "naive-quantized", floats(8, strategy="tensor"))])),
    "fp8, blocks, odd": ("llama", ODD, compressed([(LINEAR, "float-quantized", floats(8, strategy="block", block_structure=[16, 24]))])),
    "nvfp4": ("llama", {}, compressed([(LINEAR, "nvfp4-pack-quantized", NVFP4)])),
    "mxfp4": ("llama", {}, compressed([(LINEAR, "mxfp4-pack-quantized", MXFP4)])),
    "mxfp8": ("llama", {}, compressed([(LINEAR, "mxfp8-quantized", floats(8, strategy="group", group_size=32, scale_dtype="torch.uint8"))])),
    "groups, and experts": ("qwen3_moe", EXPERTS, compressed(
        [(["re:.*self_attn.*"], "float-quantized", floats(8, strategy="channel")), (["re:.*experts.*down_proj$"], "mxfp4-pack-quantized", MXFP4),
         (LINEAR, "pack-quantized", integers(4, **GROUP_OF_32))], ignore=("lm_head", "re:.*layers[.]1[.]self_attn.*"),
        extra={"kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}})),
    "experts, odd": ("qwen3_moe", {**EXPERTS, **ODD}, compressed([(LINEAR, "pack-quantized", {**integers(4, strategy="channel"), "symmetric": False})])),
    "experts, nvfp4": ("qwen3_moe", EXPERTS, compressed([(LINEAR, "nvfp4-pack-quantized", NVFP4)])),
    "modelopt nvfp4": ("llama", {}, modelopt(lambda _: "nvfp4")),
    "modelopt w4a16_nvfp4, file": ("llama", {}, modelopt(lambda stem: None if "layers.1.self_attn" in stem else "w4a16_nvfp4", "file")),
    "modelopt fp8, odd, both": ("llama", ODD, modelopt(lambda _: "fp8", "both")),
    "modelopt fp8 of rows": ("llama", ODD, modelopt(lambda _: "fp8_pc_pt")),
    "modelopt int8": ("llama", {}, modelopt(lambda _: "int8_wo")),
    "modelopt mxfp8": ("llama", {}, modelopt(lambda _: "mxfp8")),
    "modelopt, mixed, experts": ("qwen3_moe", EXPERTS, modelopt(mixed, "both")),
}
