#!/usr/bin/env python3
"""config_keys.py BUILD [FAMILY ...]: each key of a config.json against the class of transformers that reads it.

A small random model of each family; one key of its config.json changed; the same result as transformers in f64, within
5e-5 of the largest number, or a refusal. What transformers refuses itself is counted apart. Of models that also read images the keys are
those of their text part. Needs torch, transformers and
numpy (PyPI); never part of `./dev test`. CONFIG_KEYS_VERBOSE=1 prints every case."""
import collections
import json
import os
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers
from image_text_models import models_with_images, store_as_on_hubs
from tessera_c import Failed, Library

V, TOKENS, LIMIT = 101, 37, 5e-5
BASE = dict(hidden_size=64, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=3, vocab_size=V,
            max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
HEADS = dict(BASE, head_dim=16)
EXPERTS = dict(HEADS, num_experts_per_tok=2, moe_intermediate_size=24)
LATENT = dict(BASE, num_key_value_heads=4, kv_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=10, v_head_dim=14, num_experts_per_tok=3,
              n_routed_experts=8, n_shared_experts=2, moe_intermediate_size=12, q_lora_rank=None, first_k_dense_replace=1)
ENCODER = dict(hidden_size=64, intermediate_size=48, num_attention_heads=4, num_hidden_layers=3, vocab_size=V, max_position_embeddings=64,
               pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
FAMILIES = {
    "llama": ("CausalLM", HEADS), "mistral": ("CausalLM", dict(HEADS, sliding_window=None)), "mixtral": ("CausalLM", dict(HEADS, num_local_experts=4)),
    "qwen2": ("CausalLM", HEADS), "qwen3": ("CausalLM", HEADS),
    "qwen2_moe": ("CausalLM", dict(EXPERTS, num_experts=4, shared_expert_intermediate_size=24)), "qwen3_moe": ("CausalLM", dict(EXPERTS, num_experts=4)),
    "gemma": ("CausalLM", HEADS), "gemma2": ("CausalLM", dict(HEADS, sliding_window=64)), "gemma3_text": ("CausalLM", dict(HEADS, sliding_window=24, layer_types=KINDS)),
    "gemma4_text": ("CausalLM", dict(HEADS, sliding_window=24, layer_types=KINDS[1:] + KINDS[1:2], global_head_dim=24, hidden_size_per_layer_input=6,
                                      vocab_size_per_layer_input=V)),
    "phi3": ("CausalLM", HEADS), "smollm3": ("CausalLM", HEADS), "olmo2": ("CausalLM", HEADS), "olmo3": ("CausalLM", dict(HEADS, sliding_window=24, layer_types=KINDS)),
    "granite": ("CausalLM", HEADS), "seed_oss": ("CausalLM", HEADS), "gpt_oss": ("CausalLM", dict(HEADS, num_local_experts=4, num_experts_per_tok=2, sliding_window=24)),
    "deepseek_v2": ("CausalLM", dict(LATENT, topk_method="greedy")), "deepseek_v3": ("CausalLM", dict(LATENT, n_group=4, topk_group=2)),
    "glm4_moe_lite": ("CausalLM", dict({key: value for key, value in LATENT.items() if key != "first_k_dense_replace"}, n_group=4, topk_group=2)),
    "gpt2": ("CausalLM", dict(n_embd=64, n_layer=3, n_head=4, n_positions=64, vocab_size=V, bos_token_id=1, eos_token_id=2)),
    "bert": ("MaskedLM", ENCODER), "roberta": ("MaskedLM", ENCODER), "xlm-roberta": ("MaskedLM", ENCODER), "camembert": ("MaskedLM", ENCODER),
    "distilbert": ("MaskedLM", dict(dim=64, hidden_dim=48, n_heads=4, n_layers=3, vocab_size=V, max_position_embeddings=64, pad_token_id=0)),
    "modernbert": ("MaskedLM", ENCODER), "nomic_bert": ("MaskedLM", dict(ENCODER, type_vocab_size=2)),
}
FAMILIES["kimi_k2"] = FAMILIES["deepseek_v3"]
READ_AS = {"kimi_k2": "deepseek_v3"}  # of transformers, which has no class of that name
IMAGES = {family: next((kind, config) for name, kind, config in models_with_images() if name.split(" ")[0] == family)
          for family in ("qwen3_vl", "qwen3_vl_moe", "kimi_k25")}
SCALINGS = [
    {}, {"type": "linear"}, {"rope_type": "linear"}, {"type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 2.0}, {"factor": 2.0},
    {"rope_type": "default"}, {"type": "default", "factor": 3.0}, {"rope_theta": 77.0}, {"rope_type": "default", "rope_theta": 77.0},
    {"rope_type": "dynamic", "factor": 2.0}, {"type": "dynamic", "factor": 2.0}, {"type": "yarn", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}, {"rope_type": "yarn", "original_max_position_embeddings": 16},
    {"rope_type": "yarn"}, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.3},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.5},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 8, "beta_slow": 2, "truncate": False},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 99.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}, {"rope_type": "llama3", "factor": 8.0},
    {"rope_type": "longrope", "short_factor": [1.0 + i / 10 for i in range(8)], "long_factor": [2.0 + i for i in range(8)]},
    {"type": "longrope", "short_factor": [1.0 + i / 10 for i in range(8)], "long_factor": [2.0 + i for i in range(8)],
     "original_max_position_embeddings": 16},
    {"type": "su", "short_factor": [1.0 + i / 10 for i in range(8)], "long_factor": [2.0 + i for i in range(8)]},
    {"rope_type": "default", "partial_rotary_factor": 0.5}, {"partial_rotary_factor": 0.5, "rope_theta": 50.0},
    {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}, {"rope_type": "proportional"}, {"rope_type": "made_up", "factor": 2.0},
    {"full_attention": {"rope_type": "default", "rope_theta": 55.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 33.0}},
    {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 55.0}, "sliding_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 33.0}},
    {"full_attention": {"rope_type": "default", "rope_theta": 55.0}}, {"sliding_attention": {"rope_type": "default", "rope_theta": 33.0}},
    {"full_attention": {"rope_type": "linear", "factor": 2.0}, "sliding_attention": {"rope_type": "default"}},
]
VALUES = {
    "is_causal": [False, True], "use_bidirectional_attention": [True, False], "is_decoder": [True, False], "add_cross_attention": [True],
    "partial_rotary_factor": [0.5, 1.0], "rope_theta": [100.0, None], "rope_local_base_freq": [100.0], "global_rope_theta": [100.0], "local_rope_theta": [100.0],
    "rope_interleave": [True, False], "rope_interleaved": [True], "rope_scaling": SCALINGS + [None], "rope_parameters": SCALINGS + [None],
    "original_max_position_embeddings": [16], "max_position_embeddings": [48, None], "no_rope_layers": [[1, 0, 1], [0, 0, 0]], "no_rope_layer_interval": [2],
    "rotary_dim": [8], "rotary_pct": [0.5], "rope_pct": [0.5], "position_embedding_type": ["absolute", "relative_key", "rotary"],
    "attn_logit_softcapping": [0.5, None], "final_logit_softcapping": [0.5, None], "query_pre_attn_scalar": [7, None], "logit_scale": [0.5],
    "attention_multiplier": [0.3], "embedding_multiplier": [3.0], "residual_multiplier": [0.5], "logits_scaling": [2.0],
    "scale_attn_weights": [False], "scale_attn_by_inverse_layer_idx": [True], "reorder_and_upcast_attn": [True], "attention_scale": [0.3],
    "sliding_window": [9, None, 0], "use_sliding_window": [True, False], "max_window_layers": [1], "sliding_window_pattern": [2], "layer_types": [KINDS, None],
    "local_attention": [10], "global_attn_every_n_layers": [2], "attention_chunk_size": [8],
    "hidden_act": ["gelu", "relu", "silu", "gelu_new"], "hidden_activation": ["gelu", "gelu_new", "silu", "gelu_pytorch_tanh", None],
    "activation_function": ["gelu", "relu"], "activation": ["relu", "gelu"], "classifier_activation": ["relu"],
    "rms_norm_eps": [0.1], "layer_norm_eps": [0.1], "layer_norm_epsilon": [0.1], "norm_eps": [0.1], "norm_epsilon": [0.1],
    "attention_bias": [True, False], "qkv_bias": [True, False], "mlp_bias": [True, False], "use_bias": [True], "norm_bias": [True], "decoder_bias": [False],
    "tie_word_embeddings": [True, False], "head_dim": [16, None], "n_inner": [None], "num_key_value_heads": [None], "type_vocab_size": [2],
    "use_qk_norm": [True], "qk_layernorm": [True], "clip_qkv": [0.5], "pretraining_tp": [2], "use_cache": [False], "attention_dropout": [0.5],
    "hidden_dropout_prob": [0.5], "attn_pdrop": [0.5], "resid_pdrop": [0.5], "embd_pdrop": [0.5], "initializer_range": [3.0], "torch_dtype": ["float32"],
    "num_experts_per_tok": [1], "norm_topk_prob": [True, False], "router_aux_loss_coef": [9.0], "output_router_logits": [True],
    "router_jitter_noise": [0.5], "decoder_sparse_step": [2], "mlp_only_layers": [[0], []], "swiglu_limit": [0.5], "swiglu_alpha": [1.0],
    "routed_scaling_factor": [3.0], "topk_method": ["greedy", "group_limited_greedy", "noaux_tc"], "scoring_func": ["softmax", "sigmoid"],
    "n_group": [2, None], "topk_group": [1, None], "first_k_dense_replace": [1], "moe_layer_freq": [2, 1], "num_nextn_predict_layers": [0], "seq_aux": [False],
    "aux_loss_alpha": [2.0], "ep_size": [1], "num_local_experts": [4], "num_experts": [4], "n_routed_experts": [8], "sinusoidal_pos_embds": [True],
    "summary_type": ["mean"], "chunk_size_feed_forward": [4], "attention_type": ["original_full"], "embedding_size": [32], "classifier_pooling": ["mean"],
    "pad_token_id": [3, None], "cross_attention_hidden_size": [32], "mamba_enabled": [True], "problem_type": ["regression"], "use_mrope": [True],
    "attn_temperature_tuning": [True], "layernorm_epsilon": [0.1], "parallel_attn": [True], "use_parallel_residual": [True], "tf_legacy_loss": [True],
    "global_head_dim": [24, None], "num_global_key_value_heads": [2], "attention_k_eq_v": [False], "num_kv_shared_layers": [0, 1, 2, 3],
    "use_double_wide_mlp": [True], "hidden_size_per_layer_input": [6], "vocab_size_per_layer_input": [V], "enable_moe_block": [False],
    "per_layer_config": [{}, {"0": {"head_dim": 16}}, {"1": {"head_dim": 24}, "2": {"head_dim": 24}}, {"1": {"sliding_window": 3}}],
    "mlp_layer_types": [["dense", "sparse", "sparse"], ["sparse", "sparse", "dense"], ["sparse"], None], "qk_rope_head_dim": [8],
    "transformers_weights": ["other.safetensors"], "sparse_prediction": [True], "sparse_pred_ignore_index": [-1], "mlp_dropout": [0.4],
}
# Changed together.
TOGETHER = [
    {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}, {"use_sliding_window": True, "sliding_window": 9},
    {"use_sliding_window": False, "sliding_window": 9, "layer_types": KINDS}, {"sliding_window": 9, "layer_types": KINDS},
    {"sliding_window": None, "layer_types": KINDS}, {"use_sliding_window": True, "sliding_window": None, "layer_types": KINDS},
    {"rope_theta": 100.0, "rope_parameters": {"rope_type": "linear", "factor": 2.0}}, {"rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
    {"rope_theta": 100.0, "rope_parameters": {"rope_type": "default", "rope_theta": 33.0}}, {"rope_theta": 100.0, "rope_parameters": {}},
    {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default", "rope_theta": 33.0}},
    {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": None, "rope_theta": 100.0}, {"rope_parameters": None, "rope_theta": 100.0},
    {"partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 2.0}}, {"partial_rotary_factor": 0.5, "rope_parameters": None, "rope_theta": 100.0},
    {"original_max_position_embeddings": 16, "rope_scaling": {"type": "yarn", "factor": 4.0}},
    {"original_max_position_embeddings": 16, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
    {"rope_local_base_freq": 100.0, "rope_parameters": None, "rope_theta": 1000.0}, {"rope_local_base_freq": 100.0, "rope_theta": 1000.0},
    {"rope_local_base_freq": 100.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_theta": 1000.0, "rope_parameters": None},
    {"layer_types": None, "sliding_window_pattern": 2}, {"layer_types": None, "no_rope_layers": None, "no_rope_layer_interval": 2},
    {"layer_types": None, "global_attn_every_n_layers": 2, "local_attention": 10}, {"hidden_act": "gelu", "hidden_activation": None},
    {"head_dim": 8, "partial_rotary_factor": 0.5}, {"is_decoder": True, "is_causal": False},
    {"is_causal": False, "sliding_window": 9, "layer_types": KINDS, "use_sliding_window": True}, {"is_causal": False, "sliding_window": 9},
    {"use_bidirectional_attention": True, "sliding_window": 9, "layer_types": KINDS},
    {"rope_parameters": None, "rope_theta": None}, {"rope_parameters": None, "rope_theta": None, "rope_scaling": None},
]


def make(family, folder):
    torch.manual_seed(1)
    if family in IMAGES:
        kind, config = IMAGES[family]
        model = kind._from_config(config).float()
    else:
        kind, settings = FAMILIES[family]
        model = getattr(transformers, "AutoModelFor" + kind).from_config(transformers.AutoConfig.for_model(READ_AS.get(family, family), **settings)).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 2.0 / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 0.3
            parameter.copy_((1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0) + torch.randn_like(parameter) * scale)
    model.save_pretrained(folder)
    if family in IMAGES:
        store_as_on_hubs(family, folder)
    with open(folder + "/config.json", encoding="utf-8") as file:
        return json.load(file)


def write_config(folder, whole, change, **more):
    """`change`s to the text part's keys."""
    config = {**whole, "text_config": {**whole["text_config"], **change}} if "text_config" in whole else {**whole, **change}
    with open(folder + "/config.json", "w", encoding="utf-8") as file:
        json.dump({**config, **more}, file)


def theirs(family, folder, ids):
    cls = IMAGES[family][0] if family in IMAGES else getattr(transformers, "AutoModelFor" + FAMILIES[family][0])
    model, report = cls.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager",
                                        output_loading_info=True)
    if report["missing_keys"] or report["mismatched_keys"]:
        raise ValueError(f"missing {sorted(report['missing_keys'])[:2]} {sorted(map(str, report['mismatched_keys']))[:1]}")
    with torch.no_grad():
        return model.eval()(torch.tensor(ids, dtype=torch.long)).logits.numpy()


def ours(library, folder, ids):
    model = library.load(folder)
    session = library.session(library.make("graph", "tsr_model_graph", model), "forward", batch=1, symbols=f"T={ids.shape[1]}")
    library.call("tsr_session_write_model", session, model)
    inputs = dict(tokens=ids, positions=np.arange(ids.shape[1], dtype=np.int32)[None])
    if any(it["name"] == "token_types" for it in library.json("tsr_model_info", model)["inputs"]):
        inputs["token_types"] = np.zeros_like(ids)
    library.feed(session, "forward", **inputs)
    library.call("tsr_session_run", session, "forward")
    return library.fetch(session, "forward", "logits")


def cases():
    for key, values in VALUES.items():
        for value in values:
            yield {key: value}
    yield from TOGETHER


def main():
    build, chosen = sys.argv[1], sys.argv[2:] or list(FAMILIES) + list(IMAGES)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    library, wrong = Library(build), []
    ids = np.random.default_rng(5).integers(5, V - 10, (1, TOKENS)).astype(np.int32)
    print(f"transformers {transformers.__version__}\nfamily | same | obeyed | refused here | refused there | wrong")
    for family in chosen:
        counts = collections.Counter()
        with tempfile.TemporaryDirectory() as folder:
            whole = make(family, folder)
            plain = theirs(family, folder, ids)
            for change in cases():
                write_config(folder, whole, change)
                text = json.dumps(change)
                try:
                    exact = theirs(family, folder, ids)
                except Exception as error:  # pylint: disable=broad-exception-caught
                    exact, why = None, str(error).strip().split("\n")[-1]
                if family in READ_AS:
                    write_config(folder, whole, change, model_type=family)
                try:
                    found = ours(library, folder, ids)
                except Failed as error:
                    found, refusal = None, str(error)
                if exact is None:
                    verdict = "refused there" if found is None else "computed here alone"
                    detail = f"{why[:90]} / {refusal[:110] if found is None else ''}"
                elif found is None:
                    verdict, detail = "refused here", refusal[:200]
                else:
                    error = np.abs(found - exact).max() / np.abs(exact).max()
                    obeyed = np.abs(plain - exact).max() / np.abs(exact).max() > 1e-9
                    verdict = "WRONG" if not error <= LIMIT else "obeyed" if obeyed else "same"
                    detail = f"{error:.1e}{'' if verdict != 'WRONG' else ', transformers obeys it' if obeyed else ', transformers ignores it'}"
                counts[verdict] += 1
                if verdict == "WRONG":
                    wrong.append((family, text))
                if verdict in ("WRONG", "computed here alone") or os.environ.get("CONFIG_KEYS_VERBOSE"):
                    print(f"  {family} {text[:150]}: {verdict} {detail}", flush=True)
        print(" | ".join([family] + [str(counts[it]) for it in ("same", "obeyed", "refused here", "refused there", "WRONG")]), flush=True)
    print(f"wrong: {len(wrong)}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
