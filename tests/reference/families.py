#!/usr/bin/env python3
"""families.py BUILD [FAMILY ...]: models of every family that transformers makes at random, against it.

For each: logits against transformers in f64, within 2e-5 of the largest logit or half as much again as transformers' own
f32 is off; gradients likewise within 1e-4 of the largest; 64 greedy tokens, with the cache on both sides. Small odd
shapes: 3 layers, 5 or 7 heads, grouped queries, head sizes unlike width/heads. Needs torch, transformers, safetensors
and numpy (PyPI); never part of `./dev test`."""
import json
import os
import sys
import tempfile

import numpy as np
import torch
import transformers
from tessera_c import F32, Failed, Library

VOCABULARY, PROMPT, TOKENS = 97, 8, 64
SHAPE = {"num_hidden_layers": 3, "hidden_size": 60, "num_attention_heads": 5, "num_key_value_heads": 1, "intermediate_size": 44,
         "vocab_size": VOCABULARY, "max_position_embeddings": 128}
SEVEN = {**SHAPE, "hidden_size": 70, "num_attention_heads": 7, "num_key_value_heads": 7}
GROUPS = {**SHAPE, "hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 2}
EXPERTS = {"num_experts_per_tok": 2}
GPT2 = {"n_layer": 3, "n_embd": 60, "n_head": 5, "vocab_size": VOCABULARY, "n_positions": 128, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32, "rope_theta": 500000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
LINEAR = {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}


def longrope(pairs):
    return {"rope_type": "longrope", "short_factor": [1.0 + 0.01 * i for i in range(pairs)],
            "long_factor": [1.5 + 0.3 * i for i in range(pairs)], "rope_theta": 10000.0}


# name: model_type, configuration
MODELS = {
    "llama": ("llama", {**SHAPE, "head_dim": 16}),
    "llama, 7 heads, tied": ("llama", {**SEVEN, "tie_word_embeddings": True}),
    "llama, biases": ("llama", {**GROUPS, "attention_bias": True, "mlp_bias": True}),
    "llama, llama3": ("llama", {**GROUPS, "rope_parameters": LLAMA3}),
    "llama, linear": ("llama", {**GROUPS, "rope_parameters": LINEAR}),
    "llama, yarn": ("llama", {**GROUPS, "rope_parameters": YARN}),
    "llama, yarn, mscale": ("llama", {**GROUPS, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7, "truncate": False}}),
    "llama, dynamic": ("llama", {**GROUPS, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}),
    "mistral": ("mistral", {**SHAPE, "head_dim": 16, "sliding_window": 11}),
    "mistral, no window": ("mistral", {**GROUPS, "sliding_window": None}),
    "mixtral": ("mixtral", {**GROUPS, **EXPERTS, "num_local_experts": 5, "sliding_window": None}),
    "qwen2": ("qwen2", {**SHAPE, "hidden_size": 80}),
    "qwen2, tied, window": ("qwen2", {**GROUPS, "tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": 9,
                                      "max_window_layers": 1}),
    "qwen3": ("qwen3", {**SHAPE, "head_dim": 18}),
    "qwen3, biases": ("qwen3", {**SEVEN, "head_dim": 14, "attention_bias": True, "tie_word_embeddings": True}),
    "qwen3_moe": ("qwen3_moe", {**GROUPS, **EXPERTS, "num_experts": 6, "moe_intermediate_size": 20, "head_dim": 16,
                                "norm_topk_prob": True}),
    "qwen3_moe, not normalised": ("qwen3_moe", {**GROUPS, **EXPERTS, "num_experts": 6, "moe_intermediate_size": 20}),
    "gemma2": ("gemma2", {**SHAPE, "head_dim": 16, "sliding_window": 13, "query_pre_attn_scalar": 24}),
    "gemma3": ("gemma3_text", {**GROUPS, "head_dim": 16, "sliding_window": 13, "query_pre_attn_scalar": 16,
                               "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                               "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                                   "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
    "gemma3, defaults": ("gemma3_text", {**SHAPE, "head_dim": 20, "num_hidden_layers": 7, "sliding_window": 10}),
    "phi3": ("phi3", {**GROUPS, "sliding_window": 17}),
    "phi3, longrope": ("phi3", {**GROUPS, "original_max_position_embeddings": 32, "rope_parameters": longrope(6)}),
    "phi3, partial": ("phi3", {**GROUPS, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5, "rope_theta": 1e4}}),
    "smollm3": ("smollm3", {**SHAPE, "num_hidden_layers": 5, "head_dim": 12}),
    "gpt2": ("gpt2", GPT2),
}


def random_model(model_type, settings):
    """In f32, with weights far from their usual initial values."""
    torch.manual_seed(11)
    ids = {"bos_token_id": 1, "eos_token_id": VOCABULARY - 1, "pad_token_id": 0}
    config = transformers.AutoConfig.for_model(model_type, **{**ids, **settings})
    config._attn_implementation = config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 0.0 if model_type.startswith("gemma") and "norm" in name else 1.0 if "norm" in name or "ln_" in name else 0.0
            if name.endswith("bias"):
                parameter.copy_(0.3 * torch.randn_like(parameter))
            elif parameter.dim() == 1:
                parameter.copy_(around + 0.3 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) * 1.3 / parameter.shape[-1] ** 0.5)
    return model


class Check:
    def __init__(self, library, name, folder):
        self.library, self.name, self.failures = library, name, []
        model_type, settings = MODELS[name]
        self.torch_model = random_model(model_type, settings)
        self.torch_model.save_pretrained(folder)
        self.exact = random_model(model_type, settings).double()
        self.model = library.load(folder)
        self.row = [name]

    def note(self, text, holds):
        self.row.append(text if holds else f"{text} FAILED")
        if not holds:
            self.failures.append(text)

    def ids(self, count):
        return np.random.default_rng(5).integers(2, VOCABULARY - 2, (2, count)).astype(np.int32)

    def logits(self, count):
        ids = self.ids(count)
        graph = self.library.make("graph", "tsr_model_graph", self.model)
        session = self.library.session(graph, "forward", batch=2, symbols=f"T={count}")
        self.library.call("tsr_session_write_model", session, self.model)
        positions = np.tile(np.arange(count, dtype=np.int32), (2, 1))
        self.library.feed(session, "forward", tokens=ids, positions=positions)
        self.library.call("tsr_session_run", session, "forward")
        ours = self.library.fetch(session, "forward", "logits")
        with torch.no_grad():
            exact = self.exact(torch.tensor(ids, dtype=torch.long)).logits.numpy()
            theirs = self.torch_model(torch.tensor(ids, dtype=torch.long)).logits.double().numpy()
        largest = np.abs(exact).max()
        limit = max(2e-5, 1.5 * np.abs(theirs - exact).max() / largest)
        error = np.abs(ours - exact).max() / largest
        self.note(f"{error:.1e} of {limit:.1e}", error <= limit)

    def gradients(self):
        """One step of SGD at a rate at which the gradient is all of the parameter that is left."""
        count, rate = 24, 1e6
        ids = self.ids(count + 1)
        tokens, labels = ids[:, :-1], np.ascontiguousarray(ids[:, 1:])
        graph = self.library.make("graph", "tsr_model_graph", self.model)
        loss = self.library.make("graph", "tsr_graph_token_loss", graph)
        step = self.library.make("graph", "tsr_graph_training", loss, self.library.options(optimizer="sgd", clip_norm=0.0, weight_decay=0.0))
        session = self.library.session(step, "train", batch=2, symbols=f"T={count}")
        self.library.call("tsr_session_write_model", session, self.model)
        self.library.feed(session, "train", tokens=tokens, labels=labels, positions=np.tile(np.arange(count, dtype=np.int32), (2, 1)),
                          loss_scale=np.float32(1 / labels.size), lr=np.float32(rate), step=np.float32(1))
        before = self.parameters(session)
        self.library.call("tsr_session_run", session, "train")
        after = self.parameters(session)
        norms = {}
        for model in (self.exact, self.torch_model):
            model.zero_grad()
            logits = model(torch.tensor(tokens, dtype=torch.long)).logits
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels, dtype=torch.long).flatten()).backward()
        # By parameter name they differ; sums over all of a model and over each shape do not.
        def moments(gradients):
            table = {}
            for value in gradients:
                value = value.astype(np.float64)
                table.setdefault(tuple(sorted(value.shape)), []).append(np.sort(np.abs(value).ravel())[::-1])
            return {shape: np.sort(np.concatenate(parts))[::-1] for shape, parts in table.items()}
        return before, after, moments

    def parameters(self, session):
        import ctypes
        found = {}
        count = ctypes.c_size_t()
        self.library.call("tsr_model_parameter_count", self.model, ctypes.byref(count))
        for i in range(count.value):
            buffer = ctypes.create_string_buffer(256)
            size = ctypes.c_size_t()
            self.library.call("tsr_model_parameter_name", self.model, ctypes.c_size_t(i), buffer, ctypes.c_size_t(256), ctypes.byref(size))
            name = buffer.value.decode()
            found[name] = self.library.array(self.library.make("tensor", "tsr_session_read", session, name))
        return found

    def tokens(self):
        prompt = self.ids(PROMPT)[0].tolist()
        generator = self.library.generator(self.model, context=PROMPT + TOKENS, max_tokens=TOKENS)
        ours = self.library.continue_tokens(generator, prompt)
        self.exact.generation_config.eos_token_id = None  # all tokens are wanted
        with torch.no_grad():
            theirs = self.exact.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), max_new_tokens=TOKENS,
                                         do_sample=False, use_cache=True)[0, PROMPT:].tolist()
        same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        self.note(f"{same} of {len(theirs)}", ours == theirs)


def main():
    build, chosen = sys.argv[1], sys.argv[2:]
    library = Library(build)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = []
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    print("model | logits: error of limit | a longer text | greedy tokens that agree")
    for name in MODELS:
        if chosen and name.split(",")[0] not in chosen and name not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                check = Check(library, name, folder)
                check.logits(24)
                check.logits(48)
                check.tokens()
                if check.failures:
                    failed.append(name)
                print(" | ".join(check.row), flush=True)
            except Failed as error:
                failed.append(name)
                print(f"{name} | FAILED: {error}", flush=True)
    print(f"failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


main()
