"""Models that read texts and images, at random: the text part of each against transformers in f64."""
import os
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from family_models import DELTA, GROUPS, LATENT, MODELS, VOCABULARY


def models_with_images():
    """Name, class and configuration of each."""
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
    ids = np.random.default_rng(5).integers(2, VOCABULARY - 6, (2, 24)).astype(np.int32)
    ours = library.logits(ours_model, ids)
    with torch.no_grad():
        exact = model.double()(input_ids=torch.tensor(ids, dtype=torch.long)).logits.numpy()
    return np.abs(ours - exact).max() / np.abs(exact).max()
