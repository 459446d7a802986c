"""Configurations of families.py: models of each family, small and with odd shapes, in transformers' words."""
VOCABULARY = 97
SHAPE = {"num_hidden_layers": 3, "hidden_size": 60, "num_attention_heads": 5, "num_key_value_heads": 1, "intermediate_size": 44,
         "vocab_size": VOCABULARY, "max_position_embeddings": 160}
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
GPT2 = {"n_layer": 3, "n_embd": 60, "n_head": 5, "vocab_size": VOCABULARY, "n_positions": 160, "n_ctx": 160, "resid_pdrop": 0.0,
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
    "seed_oss": ("seed_oss", {**GROUPS, "head_dim": 16}),
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
