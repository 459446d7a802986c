#!/usr/bin/env python3
"""dense_modules.py BUILD [FAMILY ...]: vectors of texts behind Dense modules, as sentence-transformers computes them.

EmbeddingGemma's form at random (gemma3_text with attention in both directions, pooling mean, 2_Dense [C -> 4C], 3_Dense
[4C -> C], Normalize), qwen3 with pooling last and a Dense module with a bias, bert with cls and one to fewer numbers, the
weights of modules in f32 and bf16. Reference: transformers in f64, pooled, then the modules' products of the pooled vector,
by hand. Texts of several lengths, longer than windows, in one batch; then the same of the exported folder, which the
reference reads again, and of EmbeddingGemma's GGUF file, also in llama.cpp where PYTHON_OF_LLAMA_CPP names the Python of an
environment with llama-cpp-python. Needs torch, transformers, safetensors and numpy (PyPI); never part of `./dev test`."""
import ctypes
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from tessera_c import Library

V, LIMIT = 101, 2e-5  # f32 here, sums in another order: the limit of decoder_heads.py
LLAMA_CPP_LIMIT = 5e-3  # gelu by a table of f16, and products in fewer bits
SHAPE = dict(hidden_size=64, intermediate_size=48, num_attention_heads=4, num_hidden_layers=3, vocab_size=V, max_position_embeddings=64,
             pad_token_id=0, bos_token_id=1, eos_token_id=2)
GEMMA = dict(SHAPE, num_key_value_heads=2, head_dim=16, query_pre_attn_scalar=16, use_bidirectional_attention=True, sliding_window=8,
             layer_types=["sliding_attention", "full_attention", "sliding_attention"])
# configuration, pooling, (width, bias) of each module, type of their weights, whether vectors are scaled to length 1
FAMILIES = {
    "gemma3_text": (GEMMA, "mean", [(256, False), (64, False)], torch.float32, True),
    "qwen3": (dict(SHAPE, num_key_value_heads=2, head_dim=16), "lasttoken", [(40, False), (24, True)], torch.bfloat16, False),
    "bert": (SHAPE, "cls", [(32, True)], torch.float32, True),
}
RANDOM = np.random.default_rng(5)
TEXTS = [RANDOM.integers(3, V - 2, count).astype(np.int32).tolist() for count in (1, 2, 9, 37, 64, 23)]


def write_json(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        json.dump(value, file)


def write_model(folder, family):
    settings, pooling, modules, dtype, normalizes = FAMILIES[family]
    torch.manual_seed(1)
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(family, **settings)).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 1.5 / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 0.3
            parameter.copy_((1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0) + torch.randn_like(parameter) * scale)
    model.save_pretrained(folder)
    names = ["Transformer", "Pooling"] + ["Dense"] * len(modules) + ["Normalize"] * normalizes
    paths = [f"{i}_{name}" if i > 0 else "" for i, name in enumerate(names)]
    write_json(f"{folder}/modules.json", [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
                                          for i, (name, path) in enumerate(zip(names, paths))])
    write_json(f"{folder}/1_Pooling/config.json", {"word_embedding_dimension": 64, **{
        f"pooling_mode_{mode}": mode.startswith(pooling) for mode in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}})
    width = 64
    for i, (out, bias) in enumerate(modules):
        write_json(f"{folder}/{i + 2}_Dense/config.json", {"in_features": width, "out_features": out, "bias": bias,
                                                           "activation_function": "torch.nn.modules.linear.Identity"})
        tensors = {"linear.weight": torch.randn(out, width) / width ** 0.5, **({"linear.bias": torch.randn(out)} if bias else {})}
        save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, f"{folder}/{i + 2}_Dense/model.safetensors")
        width = out


def reference(folder):
    """Every module by hand, of each text by itself."""
    model, report = transformers.AutoModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True)
    assert not any(report[it] for it in ("missing_keys", "mismatched_keys")), report
    with open(f"{folder}/modules.json") as file:
        modules = [(it["type"].rsplit(".", 1)[1], f"{folder}/{it['path']}") for it in json.load(file)]
    rows = []
    for text in TEXTS:
        with torch.no_grad():
            row = model.eval()(torch.tensor([text]), attention_mask=torch.ones(1, len(text), dtype=torch.long)).last_hidden_state[0]
        for name, path in modules[1:]:
            if name == "Normalize":
                row = row / row.norm()
                continue
            with open(f"{path}/config.json") as file:
                config = json.load(file)
            if name == "Pooling":
                row = row.mean(0) if config["pooling_mode_mean_tokens"] else row[0] if config["pooling_mode_cls_token"] else row[-1]
                continue
            assert name == "Dense" and config["activation_function"].endswith(".Identity"), (name, config)
            tensors = load_file(f"{path}/model.safetensors")
            row = tensors["linear.weight"].double() @ row
            if config["bias"]:
                row = row + tensors["linear.bias"].double()
        rows.append(row.numpy())
    return np.array(rows)


def rows_of(library, model, **options):
    embedder = library.make("embedder", "tsr_embedder_new", library.runtime, model, library.options(**options))
    ids = [token for text in TEXTS for token in text]
    lengths, done, width = (ctypes.c_size_t * len(TEXTS))(*map(len, TEXTS)), ctypes.c_double(), ctypes.c_size_t()
    library.call("tsr_embedder_start_ids", embedder, (ctypes.c_int32 * len(ids))(*ids), ctypes.c_size_t(len(ids)), lengths, ctypes.c_size_t(len(TEXTS)))
    while done.value < 1:
        library.call("tsr_embedder_step", embedder, ctypes.byref(done))
    library.call("tsr_embedder_width", embedder, ctypes.byref(width))
    rows = np.zeros((len(TEXTS), width.value), np.float32)
    library.call("tsr_embedder_rows", embedder, rows.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(rows.size), None)
    return rows


def llama_cpp_rows(path):
    """The pooled vectors behind the modules, as llama.cpp computes them, scaled to length 1 here."""
    rows, script = [], os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_cpp_embeddings.py")
    for text in TEXTS:
        done = subprocess.run([os.environ["PYTHON_OF_LLAMA_CPP"], script, path, json.dumps(text), "pooled"], capture_output=True, check=True)
        row = np.frombuffer(done.stdout, np.float32).astype(np.float64)
        rows.append(row / np.linalg.norm(row))
    return np.array(rows)


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    library, failed = Library(sys.argv[1]), 0

    def say(family, what, found, exact, limit=LIMIT):
        nonlocal failed
        error = np.abs(found - exact).max() / np.abs(exact).max() if found.shape == exact.shape else float("inf")
        failed += not error <= limit
        print(f"  {family} | {what} | {error:.1e} of {limit:.0e}{'' if error <= limit else ' WRONG'}", flush=True)

    for family in sys.argv[2:] or FAMILIES:
        with tempfile.TemporaryDirectory() as work:
            folder, exported, gguf = f"{work}/model", f"{work}/exported", f"{work}/model.gguf"
            write_model(folder, family)
            exact, model = reference(folder), library.load(folder)
            rows = rows_of(library, model)
            say(family, "folder", rows, exact)
            library.export(model, exported)
            # Gemma's norms are stored less one: adding it rounds to f32.
            say(family, "exported folder, by the reference", reference(exported), exact, 2e-7 if family == "gemma3_text" else 0)
            say(family, "exported folder", rows_of(library, library.load(exported)), rows, 0)
            if family != "gemma3_text":
                continue
            library.export(model, gguf, format="gguf")
            say(family, "GGUF file", rows_of(library, library.load(gguf)), rows, 0)
            if "PYTHON_OF_LLAMA_CPP" in os.environ:
                say(family, "GGUF file, in llama.cpp", llama_cpp_rows(gguf), exact, LLAMA_CPP_LIMIT)
    print(f"failed: {failed}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
