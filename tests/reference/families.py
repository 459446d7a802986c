#!/usr/bin/env python3
"""families.py BUILD [FAMILY ...]: models of every family that transformers makes at random, against it.

For each: logits against transformers in f64, within 2e-5 of the largest logit or half as much again as transformers' own
f32 is off; gradients likewise within 1e-4 of the largest; 64 greedy tokens, with the cache on both sides. Small odd
shapes: 3 layers, 5 or 7 heads, grouped queries, head sizes unlike width/heads. Needs torch, transformers, safetensors
and numpy (PyPI); never part of `./dev test`."""
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from tessera_c import F32, Failed, Library

VOCABULARY, PROMPT, TOKENS = 97, 8, 64
LLAMA_CPP = os.environ.get("PYTHON_OF_LLAMA_CPP")  # of an environment with llama-cpp-python
CONVERTER = os.environ.get("LLAMA_CPP_SOURCES")  # llama.cpp's repository, for its converter
LLAMA_CPP_LIMIT = 2e-3  # its softmax, norms and caches have fewer bits
SHAPE = {"num_hidden_layers": 3, "hidden_size": 60, "num_attention_heads": 5, "num_key_value_heads": 1, "intermediate_size": 44,
         "vocab_size": VOCABULARY, "max_position_embeddings": 128}
SEVEN = {**SHAPE, "hidden_size": 70, "num_attention_heads": 7, "num_key_value_heads": 7}
GROUPS = {**SHAPE, "hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 2}
EXPERTS = {"num_experts_per_tok": 2, "router_aux_loss_coef": 0.0}  # which ours adds to every training loss
GEMMA4 = {**SHAPE, "num_hidden_layers": 4, "head_dim": 12, "global_head_dim": 16, "sliding_window": 13, "hidden_size_per_layer_input": 0,
          "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]}
GEMMA4_E = {**GEMMA4, "num_hidden_layers": 8, "layer_types": 4 * ["sliding_attention", "full_attention"], "hidden_size_per_layer_input": 6,
            "vocab_size_per_layer_input": VOCABULARY}
GEMMA4_EXPERTS = {"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 20}
LATENT = {**SHAPE, "num_key_value_heads": 5, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 10, "v_head_dim": 14,
          "num_experts_per_tok": 3, "n_routed_experts": 8, "n_shared_experts": 2, "moe_intermediate_size": 12, "num_mtp_layers": 0}
GLM4 = {**{key: value for key, value in LATENT.items() if key != "num_mtp_layers"}, "q_lora_rank": 24}
GPT2 = {"n_layer": 3, "n_embd": 60, "n_head": 5, "vocab_size": VOCABULARY, "n_positions": 128, "n_ctx": 128, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32, "rope_theta": 500000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
LINEAR = {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}


# Of qwen3_5: heads of values, of keys, and their widths.
DELTA = {"num_hidden_layers": 5, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 12,
         "linear_value_head_dim": 10}
# Of state spaces: 6 heads of 24 numbers, twice the width.
STATES = {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"], "mamba_n_heads": 6,
          "mamba_d_head": 24, "mamba_d_state": 10, "shared_intermediate_size": 40, "embedding_multiplier": 3.0, "attention_multiplier": 0.2,
          "residual_multiplier": 0.7, "logits_scaling": 2.5}
HALVES = {**{key: value for key, value in GROUPS.items() if key != "num_hidden_layers"}, "head_dim": 16,
          "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention", "mlp"], "mamba_num_heads": 6, "mamba_head_dim": 8,
          "n_groups": 2, "ssm_state_size": 10}
CONVOLUTIONS = {**GROUPS, "num_hidden_layers": 5, "layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"]}


def longrope(pairs):
    return {"rope_type": "longrope", "short_factor": [1.0 + 0.01 * i for i in range(pairs)],
            "long_factor": [1.5 + 0.3 * i for i in range(pairs)], "rope_theta": 10000.0}


# What the converter's files do not say of a model, so that it is another one.
NOT_CONVERTED = {
    "llama, yarn, mscale": "mscale", "mistral": "the window", "qwen2, tied, window": "windows", "qwen3_moe, not normalised": "norm_topk_prob",
    "gemma2": "query_pre_attn_scalar", "gemma3": "layer_types, query_pre_attn_scalar", "gemma3, defaults": "query_pre_attn_scalar",
    "gemma, untied": "the output projection", "gpt_oss, 7 heads": "swiglu_limit",
    "deepseek_v3, yarn": "mscale",
}
# transformers' step of one token with a cache does not bound state steps by time_step_limit, its forward pass of a text does: greedy tokens of
# the latter are those to compare with.
WITHOUT_CACHE = {"granitemoehybrid, experts, rope"}
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
    "gemma2, scaled as in GGUF": ("gemma2", {**SHAPE, "head_dim": 16, "sliding_window": 13, "query_pre_attn_scalar": 16}),
    "gemma3": ("gemma3_text", {**GROUPS, "head_dim": 16, "sliding_window": 13, "query_pre_attn_scalar": 16,
                               "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                               "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                                   "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
    "gemma3, defaults": ("gemma3_text", {**SHAPE, "head_dim": 20, "num_hidden_layers": 7, "sliding_window": 10}),
    "gemma3, scaled as in GGUF": ("gemma3_text", {**SHAPE, "head_dim": 20, "num_hidden_layers": 7, "sliding_window": 10,
                                                  "query_pre_attn_scalar": 20}),
    "gemma4": ("gemma4_text", {**GEMMA4, "final_logit_softcapping": 20.0}),
    "gemma4, keys as values": ("gemma4_text", {**GEMMA4, "num_attention_heads": 6, "attention_k_eq_v": True, "num_global_key_value_heads": 2,
                                               "num_key_value_heads": 3}),
    "gemma4, shared": ("gemma4_text", {**GEMMA4_E, "num_kv_shared_layers": 4, "use_double_wide_mlp": True}),
    "gemma4, shared, narrow": ("gemma4_text", {**GEMMA4_E, "num_kv_shared_layers": 1, "head_dim": 12, "global_head_dim": 12,
                                               "final_logit_softcapping": 9.0}),
    "gemma4, layer inputs": ("gemma4_text", {**GEMMA4_E, "num_hidden_layers": 6, "layer_types": None, "sliding_window": 5}),
    "gemma4, keys as values, shared": ("gemma4_text", {**GEMMA4_E, "num_kv_shared_layers": 2, "attention_k_eq_v": True,
                                                       "num_global_key_value_heads": 1, "num_attention_heads": 4, "num_key_value_heads": 2}),
    "gemma4, experts": ("gemma4_text", {**GEMMA4, **GEMMA4_EXPERTS}),
    "gemma4, experts, keys as values": ("gemma4_text", {**GEMMA4, **GEMMA4_EXPERTS, "num_experts": 4, "top_k_experts": 1, "attention_k_eq_v": True,
                                                        "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 5e4,
                                                                                               "partial_rotary_factor": 0.5},
                                                                            "sliding_attention": {"rope_type": "default", "rope_theta": 1e3}}}),
    "gemma4, unified": ("gemma4_unified_text", {**GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1}),
    "phi3": ("phi3", {**GROUPS, "sliding_window": 17}),
    "phi3, longrope": ("phi3", {**GROUPS, "original_max_position_embeddings": 32, "rope_parameters": longrope(6)}),
    "phi3, phi-4": ("phi3", {**GROUPS, "hidden_size": 120, "num_attention_heads": 12, "num_key_value_heads": 3,
                             "rope_parameters": {"rope_type": "default", "rope_theta": 250000.0}}),
    "phi3, phi-4 mini": ("phi3", {**GROUPS, "hidden_size": 96, "tie_word_embeddings": True, "original_max_position_embeddings": 32,
                                  "rope_parameters": {**longrope(6), "partial_rotary_factor": 0.75}}),
    "phi3, phi-4 mini, short": ("phi3", {**GROUPS, "hidden_size": 96, "tie_word_embeddings": True, "max_position_embeddings": 96,
                                         "original_max_position_embeddings": 96, "rope_parameters": {**longrope(6), "partial_rotary_factor": 0.75}}),
    "phi3, partial": ("phi3", {**GROUPS, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5, "rope_theta": 1e4}}),
    "ministral3": ("ministral3", {**GROUPS, "head_dim": 16, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}}),
    "ministral3, tied, window": ("ministral3", {**SEVEN, "head_dim": 12, "tie_word_embeddings": True, "sliding_window": 9, "rope_parameters": {
        "rope_type": "default", "rope_theta": 500.0, "original_max_position_embeddings": 8, "llama_4_scaling_beta": 0.3}}),
    "qwen3_5": ("qwen3_5_text", {**GROUPS, **DELTA}),
    "qwen3_5, one to one, tied": ("qwen3_5_text", {**SEVEN, **DELTA, "linear_num_key_heads": 3, "linear_num_value_heads": 3,
                                                   "linear_value_head_dim": 14, "tie_word_embeddings": True}),
    "qwen3_5, one key head": ("qwen3_5_text", {**SHAPE, **DELTA, "linear_num_key_heads": 1, "linear_num_value_heads": 5, "linear_conv_kernel_dim": 3,
                                               "linear_key_head_dim": 7, "layer_types": ["full_attention"] + 4 * ["linear_attention"],
                                               "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}}),
    "qwen3_5_moe": ("qwen3_5_moe_text", {**GROUPS, **DELTA, **EXPERTS, "num_experts": 6, "moe_intermediate_size": 20,
                                         "shared_expert_intermediate_size": 28}),
    "qwen3_next": ("qwen3_next", {**GROUPS, **DELTA, **EXPERTS, "num_experts": 6, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 28,
                                  "mlp_only_layers": [1]}),
    "granitemoehybrid": ("granitemoehybrid", {**GROUPS, **STATES, "num_local_experts": 0}),
    "granitemoehybrid, experts, rope": ("granitemoehybrid", {**GROUPS, **STATES, **EXPERTS, "num_local_experts": 5, "mamba_n_groups": 2,
                                                             "position_embedding_type": "rope", "time_step_limit": (0.3, 1.2)}),
    "nemotron_h": ("nemotron_h", HALVES),
    "nemotron_h, experts": ("nemotron_h", {**HALVES, "layers_block_type": ["linear_attention", "moe", "full_attention", "linear_attention", "moe"],
                                           "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20,
                                           "moe_shared_expert_intermediate_size": 28, "routed_scaling_factor": 1.7}),
    "nemotron_h, narrow experts": ("nemotron_h", {**HALVES, "layers_block_type": ["moe", "linear_attention", "mlp", "full_attention"], "n_groups": 3,
                                                  "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "moe_latent_size": 32,
                                                  "moe_shared_expert_intermediate_size": 28, "n_group": 2, "topk_group": 1}),
    "lfm2": ("lfm2", CONVOLUTIONS),
    "lfm2, biases, width as given": ("lfm2", {**CONVOLUTIONS, "conv_bias": True, "conv_L_cache": 5, "block_auto_adjust_ff_dim": False,
                                              "tie_word_embeddings": False}),
    "lfm2, width by factor": ("lfm2", {**CONVOLUTIONS, "block_ffn_dim_multiplier": 1.7, "block_multiple_of": 12}),
    "lfm2_moe": ("lfm2_moe", {**CONVOLUTIONS, **EXPERTS, "num_experts": 6, "moe_intermediate_size": 20, "num_dense_layers": 1}),
    "lfm2_moe, all experts, weights as they are": ("lfm2_moe", {**CONVOLUTIONS, **EXPERTS, "num_experts": 5, "moe_intermediate_size": 28,
                                                                 "num_dense_layers": 0, "norm_topk_prob": False, "tie_word_embeddings": False}),
    "lfm2_moe, no bias, a factor": ("lfm2_moe", {**CONVOLUTIONS, **EXPERTS, "num_experts": 6, "moe_intermediate_size": 20, "num_dense_layers": 2,
                                                 "use_expert_bias": False, "routed_scaling_factor": 1.7, "conv_bias": True}),
    "smollm3": ("smollm3", {**SHAPE, "num_hidden_layers": 5, "head_dim": 12}),
    "gpt2": ("gpt2", GPT2),
    "gemma": ("gemma", {**SHAPE, "head_dim": 16}),
    "gemma, untied": ("gemma", {**GROUPS, "head_dim": 12, "tie_word_embeddings": False}),
    "olmo2": ("olmo2", GROUPS),
    "olmo2, 7 heads, biases": ("olmo2", {**SEVEN, "attention_bias": True}),
    "olmo3": ("olmo3", {**GROUPS, "num_hidden_layers": 5, "sliding_window": 9,
                        "rope_parameters": {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
    "granite": ("granite", {**GROUPS, "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.7,
                            "logits_scaling": 2.5, "attention_bias": True, "mlp_bias": True}),
    "granite, tied": ("granite", {**SEVEN, "tie_word_embeddings": True, "attention_multiplier": 10 ** -0.5}),
    "qwen2_moe": ("qwen2_moe", {**GROUPS, **EXPERTS, "num_experts": 6, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 28}),
    "qwen2_moe, some dense": ("qwen2_moe", {**GROUPS, **EXPERTS, "num_hidden_layers": 4, "num_experts": 6, "moe_intermediate_size": 20,
                                            "shared_expert_intermediate_size": 28, "mlp_only_layers": [0], "decoder_sparse_step": 2,
                                            "norm_topk_prob": True}),
    "gpt_oss": ("gpt_oss", {**GROUPS, **EXPERTS, "num_local_experts": 5, "head_dim": 16, "sliding_window": 9}),
    "gpt_oss, 7 heads": ("gpt_oss", {**SEVEN, **EXPERTS, "num_local_experts": 4, "head_dim": 12, "sliding_window": 9, "swiglu_limit": 1.5}),
    "deepseek_v2": ("deepseek_v2", {**LATENT, "q_lora_rank": None, "topk_method": "greedy", "first_k_dense_replace": 1}),
    "deepseek_v2, groups": ("deepseek_v2", {**LATENT, "q_lora_rank": 24, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2,
                                            "routed_scaling_factor": 1.7, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    "deepseek_v3": ("deepseek_v3", {**LATENT, "q_lora_rank": 24, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1}),
    "deepseek_v3, yarn": ("deepseek_v3", {**LATENT, "q_lora_rank": None, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0,
                                          "attention_bias": True, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.6}}),
    "glm4_moe_lite": ("glm4_moe_lite", GLM4),
    "glm4_moe_lite, groups": ("glm4_moe_lite", {**GLM4, "n_group": 4, "topk_group": 2, "q_lora_rank": None, "n_shared_experts": 1}),
    "glm4_moe_lite, dense last": ("glm4_moe_lite", {**GLM4, "mlp_layer_types": ["sparse", "sparse", "dense"], "norm_topk_prob": False}),
    "glm4_moe_lite, no dense": ("glm4_moe_lite", {**GLM4, "mlp_layer_types": 3 * ["sparse"], "attention_bias": True, "num_experts_per_tok": 1}),
    "glm4_moe_lite, yarn": ("glm4_moe_lite", {**GLM4, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    "glm4_moe_lite, halves": ("glm4_moe_lite", {**GLM4, "rope_interleave": False, "routed_scaling_factor": 0.7}),
    "glm4_moe_lite, tied": ("glm4_moe_lite", {**GLM4, "tie_word_embeddings": True, "rms_norm_eps": 1e-6, "v_head_dim": 18}),
    "glm4_moe_lite, theta": ("glm4_moe_lite", {**GLM4, "rope_parameters": {"rope_type": "default", "rope_theta": 333.0}, "rms_norm_eps": 1e-3}),
}


@contextlib.contextmanager
def all_f64():
    """Modules that compute in f32 whatever the model's type then compute in f64, as the exact model does."""
    to, as_type, wide = torch.Tensor.to, torch.Tensor.type, torch.Tensor.float

    def widened(change):
        of = lambda value: torch.float64 if value is torch.float32 else value
        return lambda self, *args, **named: change(self, *map(of, args), **{name: of(value) for name, value in named.items()})

    torch.Tensor.to, torch.Tensor.type, torch.Tensor.float = widened(to), widened(as_type), lambda self: self.double()
    try:
        yield
    finally:
        torch.Tensor.to, torch.Tensor.type, torch.Tensor.float = to, as_type, wide


def random_model(model_type, settings):
    """In f32, with weights far from their usual initial values."""
    torch.manual_seed(11)
    ids = {"bos_token_id": 1, "eos_token_id": VOCABULARY - 1, "pad_token_id": 0}
    config = transformers.AutoConfig.for_model(model_type, **{**ids, **settings})
    config._attn_implementation = config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            less_one = model_type.startswith("gemma") and not model_type.startswith("gemma4")
            around = 0.0 if less_one and "norm" in name else 1.0 if "norm" in name or "ln_" in name or "scale" in name else 0.0
            if model_type.startswith("gemma4") and name.endswith(("q_norm.weight", "k_norm.weight")):
                around = 0.5  # scores are not scaled: with larger ones rounding grows a thousandfold in 8 layers
            if name.endswith("bias"):
                parameter.copy_(0.3 * torch.randn_like(parameter))
            elif parameter.dim() == 1:  # of few bits, so that 1 + w is exact
                parameter.copy_((around + 0.3 * torch.randn_like(parameter)).mul(4096).round() / 4096)
            else:
                parameter.copy_(torch.randn_like(parameter) * 1.3 / parameter.shape[-1] ** 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.fill_(0.5 + torch.rand(()).item())
    return model


def models_with_images():
    """Models that also read images, at random: by name, the class and its configuration."""
    text = {**GROUPS, "head_dim": 16}
    pixtral = transformers.PixtralVisionConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28,
                                               patch_size=14, head_dim=8)
    siglip = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    gemma = {**text, "sliding_window": 13, "query_pre_attn_scalar": 16, "num_hidden_layers": 6}
    yield "gemma3", transformers.Gemma3ForConditionalGeneration, transformers.Gemma3Config(
        text_config=gemma, vision_config=siglip, mm_tokens_per_image=1, image_token_index=VOCABULARY - 2)
    for name, inner, tied in (("ministral3", transformers.Ministral3Config(**text, rope_parameters=MODELS["ministral3"][1]["rope_parameters"]), True),
                              ("mistral", transformers.MistralConfig(**text, sliding_window=None), False)):
        yield f"mistral3 of {name}", transformers.Mistral3ForConditionalGeneration, transformers.Mistral3Config(
            text_config=inner, vision_config=pixtral, image_token_index=VOCABULARY - 2, tie_word_embeddings=tied)
    rope = {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": [3, 3, 2], "mrope_interleaved": True}
    yield "qwen3_vl", transformers.Qwen3VLForConditionalGeneration, transformers.Qwen3VLConfig(
        text_config={**text, "rope_parameters": rope}, image_token_id=VOCABULARY - 2, video_token_id=VOCABULARY - 3,
        vision_start_token_id=VOCABULARY - 4, vision_end_token_id=VOCABULARY - 5,
        vision_config={"hidden_size": 16, "intermediate_size": 16, "depth": 1, "num_heads": 2, "patch_size": 14, "out_hidden_size": 72,
                       "deepstack_visual_indexes": [0], "num_position_embeddings": 16})
    images = {"image_token_id": VOCABULARY - 2, "video_token_id": VOCABULARY - 3, "vision_start_token_id": VOCABULARY - 4,
              "vision_end_token_id": VOCABULARY - 5}
    for how, more in (("", {}), ("as saved", {}), ("layer 1 dense", {"mlp_only_layers": [1]}), ("each second dense", {"decoder_sparse_step": 2}),
                      ("one expert, biases", {"num_experts_per_tok": 1, "attention_bias": True}), ("tied", {"tie_word_embeddings": True}),
                      ("as many heads", {"num_key_value_heads": 6}), ("all experts", {"num_experts_per_tok": 6, "head_dim": 8})):
        yield f"qwen3_vl_moe {how}", transformers.Qwen3VLMoeForConditionalGeneration, transformers.Qwen3VLMoeConfig(
            text_config={**text, "rope_parameters": rope, "num_experts": 6, "moe_intermediate_size": 20, "num_experts_per_tok": 2, **more}, **images,
            vision_config={"hidden_size": 16, "intermediate_size": 16, "depth": 1, "num_heads": 2, "patch_size": 14, "out_hidden_size": 72,
                           "deepstack_visual_indexes": [0], "num_position_embeddings": 16})
    yield "kimi_k25", transformers.Kimi_K25ForConditionalGeneration, transformers.Kimi_K25Config(
        text_config={**LATENT, "model_type": "deepseek_v3", "q_lora_rank": 24, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1}, **images,
        vision_config={"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 14},
        projection_hidden_size=16, tie_word_embeddings=False)
    yield "qwen3_5", transformers.Qwen3_5ForConditionalGeneration, transformers.Qwen3_5Config(
        text_config={**text, **DELTA, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5,
                                                          "mrope_section": [2, 1, 1], "mrope_interleaved": True}},
        image_token_id=VOCABULARY - 2, video_token_id=VOCABULARY - 3, vision_start_token_id=VOCABULARY - 4, vision_end_token_id=VOCABULARY - 5,
        vision_config={"hidden_size": 16, "intermediate_size": 16, "depth": 1, "num_heads": 2, "patch_size": 14, "out_hidden_size": 72,
                       "num_position_embeddings": 16})
    yield "llava of llama", transformers.LlavaForConditionalGeneration, transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**text), vision_config=transformers.CLIPVisionConfig(**siglip), image_token_index=VOCABULARY - 2)


def store_as_on_hubs(name, folder):
    """Tensors as published files have them. Kimi: transformers saves layers of the text part under the vision tower's name for them. Qwen3-VL:
    stacked experts are transposed."""
    tensors = {}
    for tensor, value in load_file(os.path.join(folder, "model.safetensors")).items():
        if name.startswith("qwen3_vl_moe") and tensor.endswith(("experts.gate_up_proj", "experts.down_proj")):
            value = value.transpose(1, 2).contiguous()
        if name.startswith("kimi"):
            tensor = tensor.replace("language_model.model.blocks.", "language_model.model.layers.")
        tensors[tensor] = value
    save_file(tensors, os.path.join(folder, "model.safetensors"))


def text_part_error(library, name, kind, config):
    """The largest difference of logits of texts, of the largest logit."""
    torch.manual_seed(4)
    model = kind._from_config(config, attn_implementation="eager", experts_implementation="eager").float().eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        if "as saved" not in name:
            store_as_on_hubs(name, folder)
        ours_model = library.load(folder)
    check = Check.__new__(Check)
    check.library = library
    ids = np.random.default_rng(5).integers(2, VOCABULARY - 6, (2, 24)).astype(np.int32)
    ours = check.run(ours_model, ids)
    with torch.no_grad():
        exact = model.double()(input_ids=torch.tensor(ids, dtype=torch.long)).logits.numpy()
    return np.abs(ours - exact).max() / np.abs(exact).max()


def in_f64(model):
    """With scales of embeddings that f32 has not rounded."""
    model = model.double().eval()
    for module in model.modules():
        if hasattr(module, "scalar_embed_scale"):
            module.embed_scale.fill_(module.scalar_embed_scale)
    return model


def load_exact(folder):
    model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                                      experts_implementation="eager", output_loading_info=True)
    wrong = {kind: names for kind, names in report.items() if names}
    if wrong:
        raise Failed(f"transformers on the exported folder: {wrong}")
    return in_f64(model)


class Check:
    def __init__(self, library, name, folder):
        self.library, self.name, self.failures = library, name, []
        model_type, settings = MODELS[name]
        self.torch_model = random_model(model_type, settings)
        self.torch_model.save_pretrained(folder)
        self.exact = in_f64(random_model(model_type, settings))
        self.model = library.load(folder)
        self.row = [name]

    def note(self, text, holds):
        self.row.append(text if holds else f"{text} FAILED")
        if not holds:
            self.failures.append(text)

    def ids(self, count):
        return np.random.default_rng(5).integers(2, VOCABULARY - 2, (2, count)).astype(np.int32)

    def run(self, model, ids):
        graph = self.library.make("graph", "tsr_model_graph", model)
        session = self.library.session(graph, "forward", batch=2, symbols=f"T={ids.shape[1]}")
        self.library.call("tsr_session_write_model", session, model)
        positions = np.tile(np.arange(ids.shape[1], dtype=np.int32), (2, 1))
        self.library.feed(session, "forward", tokens=ids, positions=positions)
        self.library.call("tsr_session_run", session, "forward")
        return self.library.fetch(session, "forward", "logits")

    def logits(self, count):
        ids = self.ids(count)
        ours = self.run(self.model, ids)
        with torch.no_grad():
            with all_f64():
                exact = self.exact(torch.tensor(ids, dtype=torch.long)).logits.numpy()
            theirs = self.torch_model(torch.tensor(ids, dtype=torch.long)).logits.double().numpy()
        largest = np.abs(exact).max()
        limit = max(2e-5, 1.5 * np.abs(theirs - exact).max() / largest)
        error = np.abs(ours - exact).max() / largest
        self.note(f"{error:.1e} of {limit:.1e}", error <= limit)

    def exported(self, folder):
        """Exported again, transformers computes the same bits: these are the same weights."""
        self.library.export(self.model, folder)
        again = load_exact(folder)
        ids = torch.tensor(self.ids(24), dtype=torch.long)
        with torch.no_grad(), all_f64():
            error = (again(ids).logits - self.exact(ids).logits).abs().max().item()
        self.note(f"{error:g}", error == 0)

    def stacked(self, folder, wanted):
        """With experts stacked as hubs have them, and several blocks that predict further tokens, which are left out: the logits `wanted`."""
        experts = re.compile(r"(model\.layers\.\d+\.mlp\.experts\.)(\d+)\.(gate|up|down)_proj\.weight")
        found = {}
        tensors = {"mtp.fc.weight": torch.zeros(4, 4)}
        with open(os.path.join(folder, "config.json"), "r+") as file:
            config = {**json.load(file), "mtp_num_hidden_layers": 2}
            file.seek(0)
            json.dump(config, file)
            file.truncate()
        for name, value in load_file(os.path.join(folder, "model.safetensors")).items():
            match = experts.fullmatch(name)
            if match:
                found.setdefault(match[1], {}).setdefault(match[3], {})[int(match[2])] = value
            else:
                tensors[name] = value
        if not found:
            return
        for prefix, parts in found.items():
            gate, up, down = (torch.stack([parts[part][i] for i in sorted(parts[part])]) for part in ("gate", "up", "down"))
            tensors[prefix + "gate_up_proj"], tensors[prefix + "down_proj"] = torch.cat([gate, up], 1).contiguous(), down.contiguous()
        save_file(tensors, os.path.join(folder, "model.safetensors"))
        same = np.array_equal(wanted, self.run(self.library.load(folder), self.ids(24)))
        self.note("stacked: equal" if same else "stacked", same)

    def gguf(self, path):
        """Through a GGUF file, the same logits from us, and from llama.cpp where PYTHON_OF_LLAMA_CPP has it."""
        try:
            notes = self.library.export(self.model, path, format="gguf", tokenizer=0)["notes"]
        except Failed as refusal:
            self.row.append(f"refused: {refusal}")
            return
        count = 24
        ids = self.ids(count)
        ours, again = self.run(self.model, ids), self.run(self.library.load(path), ids)
        error = np.abs(again - ours).max() / np.abs(ours).max()
        self.note(f"{error:.1e}", error <= 2e-5)  # rows of rotations in another order
        if not LLAMA_CPP:
            return
        done = subprocess.run([LLAMA_CPP, os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_cpp_logits.py"), path,
                               json.dumps(ids[0].tolist())], capture_output=True)
        if done.returncode != 0 and any("will not open" in note for note in notes):
            self.row.append("llama.cpp will not open it")
            return
        if done.returncode != 0:
            return self.note("llama.cpp: " + (done.stderr.decode(errors="replace").strip().splitlines() or ["?"])[-1][:100], False)
        theirs = np.frombuffer(done.stdout, np.float32).reshape(count, VOCABULARY)
        error = np.abs(theirs - ours[0]).max() / np.abs(ours[0]).max()
        self.note(f"llama.cpp {error:.1e}", error <= LLAMA_CPP_LIMIT or any("llama.cpp" in note for note in notes))

    def converted(self, folder, path):
        """The folder through llama.cpp's own converter, against transformers."""
        done = subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_cpp_convert.py"), CONVERTER,
                               folder, path], capture_output=True)
        if done.returncode != 0:
            self.row.append("not converted: " + (done.stderr.decode(errors="replace").strip().splitlines() or ["?"])[-1][:90])
            return
        ids = self.ids(24)
        try:
            ours = self.run(self.library.load(path), ids)
        except Failed as refusal:
            return self.note(f"converted: {refusal}", False)
        with torch.no_grad():
            exact = self.exact(torch.tensor(ids, dtype=torch.long)).logits.numpy()
        error = np.abs(ours - exact).max() / np.abs(exact).max()
        if self.name in NOT_CONVERTED:
            self.row.append(f"converted without {NOT_CONVERTED[self.name]} {error:.1e}")
        else:
            self.note(f"converted {error:.1e}", error <= 2e-5)

    def gradients(self, folder):
        """One step of SGD, at a rate at which the gradient is much more than the parameter, on both sides; ours comes back
        as an export. Within 1e-4 of the largest gradient, or half as much again as transformers' own f32 is off."""
        count, rate = 24, 1024.0
        ids = self.ids(count + 1)
        tokens, labels = np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])
        loss = self.library.make("graph", "tsr_graph_token_loss", self.library.make("graph", "tsr_model_graph", self.model))
        step = self.library.make("graph", "tsr_graph_training", loss,
                                 self.library.options(optimizer="sgd", momentum=0.0, clip_norm=0.0, weight_decay=0.0))
        session = self.library.session(step, "train", batch=2, symbols=f"T={count}")
        self.library.call("tsr_session_write_model", session, self.model)
        self.library.feed(session, "train", tokens=tokens, labels=labels, positions=np.tile(np.arange(count, dtype=np.int32), (2, 1)),
                          loss_scale=np.float32(1 / labels.size), lr=np.float32(rate), step=np.float32(1))
        self.library.call("tsr_session_run", session, "train")
        for name in self.library.parameter_names(self.model):
            self.library.call("tsr_model_write", self.model, name, self.library.make("tensor", "tsr_session_read", session, name))
        self.library.export(self.model, folder)
        ours = load_exact(folder).state_dict()
        error = off = largest = 0.0
        with all_f64():
            gradients = [self.gradients_of(self.exact, tokens, labels)]
        gradients.append(self.gradients_of(self.torch_model, tokens, labels))
        for name, parameter in self.exact.named_parameters():
            exact, theirs = gradients[0][name], gradients[1][name].double()
            found = (parameter.detach() - ours[name]) / rate
            error, off = max(error, (found - exact).abs().max().item()), max(off, (theirs - exact).abs().max().item())
            largest = max(largest, exact.abs().max().item())
        limit = max(1e-4, 1.5 * off / largest)
        self.note(f"{error / largest:.1e} of {limit:.1e}", error / largest <= limit)

    @staticmethod
    def gradients_of(model, tokens, labels):
        model.zero_grad()
        logits = model(torch.tensor(tokens, dtype=torch.long)).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels, dtype=torch.long).flatten()).backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    def tokens(self):
        prompt = self.ids(PROMPT)[0].tolist()
        generator = self.library.generator(self.model, context=PROMPT + TOKENS, max_tokens=TOKENS)
        ours = self.library.continue_tokens(generator, prompt)
        self.exact.generation_config.eos_token_id = None  # all tokens are wanted
        with torch.no_grad(), all_f64():
            theirs = self.exact.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), max_new_tokens=TOKENS,
                                         do_sample=False, use_cache=self.name not in WITHOUT_CACHE)[0, PROMPT:].tolist()
        same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        self.note(f"{same} of {len(theirs)}", ours == theirs)


def main():
    build, chosen = sys.argv[1], sys.argv[2:]
    library = Library(build)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = []
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    print("model | logits: error of limit | a longer text | greedy tokens that agree | exported: logits that differ | through GGUF | gradients")
    for name in MODELS:
        if chosen and name.split(",")[0] not in chosen and name not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                check = Check(library, name, folder)
                check.logits(24)
                check.logits(48)
                check.tokens()
                check.exported(os.path.join(folder, "exported"))
                check.gguf(os.path.join(folder, "exported.gguf"))
                if CONVERTER:
                    check.converted(folder, os.path.join(folder, "converted.gguf"))
                wanted = check.run(check.model, check.ids(24))
                check.gradients(os.path.join(folder, "trained"))  # the model has a step of training then
                if name.startswith(("qwen3_5", "qwen3_next")):
                    check.stacked(folder, wanted)
                if check.failures:
                    failed.append(name)
                print(" | ".join(check.row), flush=True)
            except Failed as error:
                failed.append(name)
                print(f"{name} | FAILED: {error}", flush=True)
    for name, kind, config in models_with_images():
        if chosen and name.split(" ")[0] not in chosen:
            continue
        try:
            error = text_part_error(library, name, kind, config)
        except Failed as refusal:
            error = float("nan")
            print(f"{name}, the text part | FAILED: {refusal}")
        print(f"{name}, the text part | {error:.1e} of 2e-5")
        if not error <= 2e-5:
            failed.append(f"{name}, the text part")
    print(f"failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


main()
