#!/usr/bin/env python3
"""draft_blocks.py BUILD: blocks that predict further tokens, with the formula that models were published with.

Models that transformers makes at random, with mtp.* tensors of a further layer (transformers leaves these out): in torch, logits =
head(norm(layer(fc [norm(embedding of the next token), norm(hidden state)]))), in f64. Ours (BUILD/tests/draft_logits, reference
kernels in f32) read the folder, and a GGUF file and a folder that are exported from it, within 2e-5 of the largest logit or half as
much again as torch's own f32 is off. Needs torch, transformers, safetensors and numpy (PyPI); never part of `./dev test`."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

VOCABULARY, COUNT = 97, 20
SHAPE = {"num_hidden_layers": 4, "hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 44,
         "vocab_size": VOCABULARY, "max_position_embeddings": 128, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
         "linear_key_head_dim": 12, "linear_value_head_dim": 10,
         "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 12}
MODELS = {"qwen3_5_text": SHAPE, "qwen3_5_moe_text": {**SHAPE, **EXPERTS}, "qwen3_next": {**SHAPE, **EXPERTS}}


@contextlib.contextmanager
def default_type(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def scatter(module):
    with torch.no_grad():
        for parameter in module.parameters():
            scale = 0.3 if parameter.dim() == 1 else 1.3 / parameter.shape[-1] ** 0.5
            parameter.copy_((torch.randn_like(parameter) * scale).mul(4096).round() / 4096)  # of few bits, so that 1 + w is exact


class DraftBlock(torch.nn.Module):
    """The tensors of mtp.*, by their names."""

    def __init__(self, model):
        super().__init__()
        config, like = model.config, next(layer for layer in model.model.layers if not hasattr(layer, "linear_attn"))
        norm = type(model.model.norm)
        self.fc = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (norm(config.hidden_size, eps=config.rms_norm_eps) for _ in range(3))
        index = next(i for i, layer in enumerate(model.model.layers) if layer is like)
        self.layers = torch.nn.ModuleList([type(like)(config, index)])

    def forward(self, model, ids):
        hidden = model.model(ids).last_hidden_state[:, :-1]
        both = torch.cat([self.pre_fc_norm_embedding(model.model.embed_tokens(ids[:, 1:])), self.pre_fc_norm_hidden(hidden)], -1)
        x = self.fc(both)
        count = x.shape[1]
        positions = torch.arange(count).view(1, 1, -1).expand(3, 1, -1) if "qwen3_5" in model.config.model_type else torch.arange(count)[None]
        mask = torch.full((count, count), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)[None, None]
        x = self.layers[0](x, position_embeddings=model.model.rotary_emb(x, positions), attention_mask=mask)
        return model.lm_head(self.norm(x))


def made(name):
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(name, **MODELS[name])
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").float().eval()
    scatter(model)
    block = DraftBlock(model).float().eval()
    scatter(block)
    return model, block


def error_of(program, path, ids, exact):
    done = subprocess.run([program, path, *map(str, ids)], capture_output=True)
    if done.returncode != 0:
        return done.stderr.decode(errors="replace").strip()
    found = np.frombuffer(done.stdout, np.float32).reshape(exact.shape)
    return np.abs(found - exact).max() / np.abs(exact).max()


def check(build, name, scratch):
    folder = os.path.join(scratch, name)
    model, block = made(name)
    model.save_pretrained(folder)
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    for key, value in block.state_dict().items():  # experts are stacked here, and separate in what was saved
        tensors[f"mtp.{key}"] = value.contiguous()
    save_file(tensors, path)
    ids = np.random.default_rng(5).integers(2, VOCABULARY, COUNT)
    with torch.no_grad():
        theirs = block(model, torch.tensor(ids)[None])[0].numpy()
        with default_type(torch.float64):
            exact = block.double()(model.double(), torch.tensor(ids)[None])[0].numpy()
    limit = max(2e-5, 1.5 * np.abs(theirs - exact).max() / np.abs(exact).max())
    tessera, program = os.path.join(build, "cli", "tessera"), os.path.join(build, "tests", "draft_logits")
    row, holds = [name], True
    for what, arguments in (("folder", None), ("gguf", ["--format", "gguf"]), ("again", ["--format", "hf"])):
        out = folder
        if arguments:
            out = f"{folder}-{what}" + (".gguf" if what == "gguf" else "")
            subprocess.run([tessera, "export", folder, "--out", out, "--no-tokenizer", *arguments], check=True, capture_output=True)
        error = error_of(program, out, ids, exact)
        fits = not isinstance(error, str) and error <= limit
        row.append(f"{what} {error if isinstance(error, str) else f'{error:.1e}'} of {limit:.1e}{'' if fits else ' FAILED'}")
        holds = holds and fits
    print("; ".join(row), flush=True)
    return holds


def main():
    with tempfile.TemporaryDirectory() as scratch:
        results = [check(sys.argv[1], name, scratch) for name in MODELS]
    print(json.dumps({"models": len(results), "failed": results.count(False)}))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
