"""Random configurations of the families of families.py, in transformers' words: heads, head sizes, widths odd and even, patterns of layers,
windows, experts, biases and tied tables, within what a family's class accepts. The same seed draws the same ones. Not drawn, as the
library refuses them by name: state spaces with biases at their products, latent experts with biases."""
import zlib

import numpy as np
from family_models import EXPERTS, LATENT, LINEAR, LLAMA3, VOCABULARY, YARN, longrope


class Draw:
    """Choices of one configuration."""

    def __init__(self, family, number):
        self.rng = np.random.default_rng([zlib.crc32(family.encode()), number])

    def one(self, *values):
        return values[self.rng.integers(len(values))]

    def number(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def maybe(self):
        return bool(self.rng.integers(2))

    def kinds(self, count, *kinds):
        """Of `count` layers, each kind once at least."""
        layers = list(kinds) + [self.one(*kinds) for _ in range(count - len(kinds))]
        self.rng.shuffle(layers)
        return [str(it) for it in layers]

    # ---- parts of configurations

    def shape(self, layers=(2, 4), of_heads=False):
        """`of_heads`: with a width that is a multiple of the heads, as some classes want one."""
        groups, heads = self.number(1, 3), self.number(1, 3)
        unit = groups * heads if of_heads else 1
        width = unit * self.number(40 // unit + 1, 80 // unit)
        return {"num_hidden_layers": self.number(*layers), "hidden_size": width, "num_attention_heads": groups * heads, "num_key_value_heads": heads,
                "intermediate_size": self.number(29, 52), "head_dim": 2 * self.number(3, 9),
                "vocab_size": VOCABULARY, "max_position_embeddings": 160, "rms_norm_eps": self.one(1e-6, 1e-5, 1e-3)}

    def whole(self, unit=2, **given):
        """A shape of a class whose head size is width/heads."""
        shape = {**self.shape(), **given}
        head = unit * self.number(2, 18 // unit)
        del shape["head_dim"]
        return {**shape, "hidden_size": head * shape["num_attention_heads"]}

    def tied(self):
        return {"tie_word_embeddings": self.maybe()}

    def biased(self, *names):
        """Seldom: many GGUF architectures have no words for them."""
        return {name: self.number(1, 4) == 1 for name in names or ("attention_bias",)}

    def window(self):
        return self.one(1, 5, 11, 17, 64)

    def theta(self, **more):
        return {"rope_type": "default", "rope_theta": self.one(333.0, 1e4, 1e6), **more}

    def rope(self):
        return {"rope_parameters": self.one(self.theta(), self.theta(), LLAMA3, LINEAR, YARN)}

    def experts(self, name="num_experts", width="moe_intermediate_size"):
        count = self.number(2, 7)
        return {**EXPERTS, name: count, "num_experts_per_tok": self.number(1, count), **({width: self.number(13, 30)} if width else {})}

    def some_dense(self, layers):
        return {"decoder_sparse_step": self.one(1, 1, 2), "mlp_only_layers": [i for i in range(layers) if self.number(1, 4) == 1]}

    def full_attention_by_turns(self, layers):
        return self.kinds(layers, "sliding_attention", "full_attention")


# ---- families: a Draw to settings

def llama(d):
    return {**d.shape(of_heads=True), **d.rope(), **d.tied(), **d.biased("attention_bias", "mlp_bias")}


def mistral(d):
    return {**d.shape(), **d.rope(), **d.tied(), "sliding_window": d.one(None, d.window())}


def mixtral(d):
    return {**mistral(d), **d.experts("num_local_experts", None)}


def qwen2(d):
    windows = d.one({}, {"use_sliding_window": True, "sliding_window": d.window(), "max_window_layers": d.number(0, 2)})
    return {**d.whole(), **d.rope(), **d.tied(), **windows}


def qwen3(d):
    return {**d.shape(), **d.rope(), **d.tied(), **d.biased()}


def qwen3_moe(d):
    shape = d.shape()
    return {**shape, **d.rope(), **d.tied(), **d.biased(), **d.experts(), **d.some_dense(shape["num_hidden_layers"]), "norm_topk_prob": d.maybe()}


def qwen2_moe(d):
    shape = d.whole()
    return {**shape, **d.tied(), **d.experts(), **d.some_dense(shape["num_hidden_layers"]), "norm_topk_prob": d.maybe(),
            "shared_expert_intermediate_size": d.number(17, 40)}


def gemma(d):
    return {**d.shape(), "tie_word_embeddings": d.one(True, True, False)}


def gemma2(d):
    shape = d.shape(of_heads=True)
    return {**shape, "sliding_window": d.window(), "query_pre_attn_scalar": d.one(shape["head_dim"], 24), "final_logit_softcapping": d.one(None, 9.0),
            "attn_logit_softcapping": d.one(None, 5.0), "layer_types": d.full_attention_by_turns(shape["num_hidden_layers"])}


def gemma3(d):
    shape = d.shape((2, 7), of_heads=True)
    rope = {"full_attention": d.one(d.theta(), LINEAR), "sliding_attention": d.theta()}
    return {**shape, "sliding_window": d.window(), "query_pre_attn_scalar": d.one(shape["head_dim"], 24), "rope_parameters": rope,
            "layer_types": d.full_attention_by_turns(shape["num_hidden_layers"]), "final_logit_softcapping": d.one(None, 9.0)}


def gemma4(d):
    shape, kind = d.shape((4, 8)), d.one("dense", "layer inputs", "experts")
    layers, heads = shape["num_hidden_layers"], shape["num_attention_heads"]
    size = 4 * d.number(2, 5)
    rope = {"full_attention": {"rope_type": "proportional", "rope_theta": 5e4, "partial_rotary_factor": d.one(0.25, 0.5, 1.0)},
            "sliding_attention": d.theta()}
    settings = {**shape, "global_head_dim": size, "sliding_window": d.window(), "rope_parameters": rope, "hidden_size_per_layer_input": 0,
                "layer_types": d.kinds(layers - 1, "sliding_attention", "full_attention") + ["full_attention"],
                "final_logit_softcapping": d.one(None, 15.0)}
    if d.maybe():
        settings |= {"attention_k_eq_v": True, "num_global_key_value_heads": d.one(*(it for it in range(1, heads + 1) if heads % it == 0))}
    if kind == "experts":
        experts = d.number(2, 7)
        settings |= {"enable_moe_block": True, "num_experts": experts, "top_k_experts": d.number(1, experts),
                     "moe_intermediate_size": d.number(13, 30)}
    if kind == "layer inputs":
        kinds = settings["layer_types"]
        both = next(i for i in range(1, layers + 1) if len(set(kinds[:i])) == 2)  # layers that others read keys of
        shared = d.number(0, layers - both)
        settings |= {"hidden_size_per_layer_input": d.number(3, 9), "vocab_size_per_layer_input": VOCABULARY, "num_kv_shared_layers": shared,
                     "use_double_wide_mlp": bool(shared) and d.maybe()}
    return settings


def phi3(d):
    factor = d.one(None, 0.5)
    shape = d.whole(4)
    pairs = shape["hidden_size"] // shape["num_attention_heads"] // 2
    rope = d.theta(**({"partial_rotary_factor": factor} if factor else {}))
    long = d.one({}, {"original_max_position_embeddings": 32, "rope_parameters": longrope(pairs)}) if not factor else {}
    return {**shape, **d.tied(), "sliding_window": d.one(None, d.window()), "rope_parameters": rope, **long}


def ministral3(d):
    scaled = {**YARN, "original_max_position_embeddings": d.one(8, 16, 32), "mscale": 1.0, "mscale_all_dim": 1.0,
              "llama_4_scaling_beta": d.one(0.1, 0.3)}
    plain = d.theta(original_max_position_embeddings=d.one(8, 50), llama_4_scaling_beta=0.2)
    return {**d.shape(), **d.tied(), "sliding_window": d.one(None, d.window()), "rope_parameters": d.one(scaled, plain)}


def qwen3_5(d):
    shape = d.shape((3, 6))
    keys = d.number(1, 3)
    head = 4 * d.number(2, 5)
    return {**shape, **d.tied(), **d.biased(), "head_dim": head, "linear_num_key_heads": keys, "linear_num_value_heads": keys * d.number(1, 3),
            "linear_key_head_dim": d.number(5, 16), "linear_value_head_dim": d.number(5, 16), "linear_conv_kernel_dim": d.number(2, 5),
            "layer_types": d.kinds(shape["num_hidden_layers"], "linear_attention", "full_attention"),
            "rope_parameters": d.theta(partial_rotary_factor=d.one(0.25, 0.5, 1.0) if head % 8 == 0 else d.one(0.5, 1.0))}


def qwen3_5_moe(d):
    return {**qwen3_5(d), **d.experts(), "shared_expert_intermediate_size": d.number(17, 40)}


def qwen3_next(d):
    settings = {**qwen3_5_moe(d), "norm_topk_prob": d.maybe()}
    return {**settings, **d.some_dense(settings["num_hidden_layers"])}


def granite(d):
    scales = {"embedding_multiplier": d.one(1.0, 3.0), "attention_multiplier": d.one(0.1, 0.25), "residual_multiplier": d.one(1.0, 0.7),
              "logits_scaling": d.one(1.0, 2.5)}
    return {**d.whole(), **scales, **d.tied(), **d.biased("attention_bias", "mlp_bias")}


def granitemoehybrid(d):
    expand, groups, size, layers = d.number(1, 3), d.number(1, 3), 4 * d.number(1, 3), d.number(2, 5)
    heads = d.number(1, 3)
    width = heads * d.number(1, 3) * size  # of queries
    of_heads = groups * d.one(*(it for it in (1, 2, 3) if (expand * width) % (groups * it) == 0)) if expand * width % groups == 0 else 1
    settings = {**granite(d), "hidden_size": width, "num_attention_heads": width // size, "num_key_value_heads": heads, "num_hidden_layers": layers,
                "mamba_expand": expand, "mamba_n_heads": of_heads, "mamba_d_head": expand * width // of_heads,
                "mamba_n_groups": groups if of_heads % groups == 0 else 1, "mamba_d_state": d.number(5, 16), "mamba_d_conv": d.number(2, 5),
                "mamba_conv_bias": d.maybe(), "shared_intermediate_size": d.number(29, 52), "num_local_experts": 0,
                "layer_types": d.kinds(layers, "linear_attention", "full_attention"), "position_embedding_type": d.one("rope", None)}
    del settings["mlp_bias"]
    return {**settings, **d.one({}, d.experts("num_local_experts", None))}


def nemotron_h(d):
    groups = d.number(1, 3)
    shape = d.shape()
    del shape["num_hidden_layers"], shape["rms_norm_eps"]
    has_experts = d.maybe()
    kinds = ("linear_attention", "full_attention", "moe" if has_experts else "mlp")
    # transformers' attention has no biases, whatever attention_bias says; shared experts with biases are refused.
    biased = d.biased("use_conv_bias") if has_experts else d.biased("mlp_bias", "use_conv_bias")
    settings = {**shape, **d.tied(), **biased, "layers_block_type": d.kinds(d.number(3, 6), *kinds),
                "mamba_num_heads": groups * d.number(1, 3), "mamba_head_dim": d.number(5, 12), "n_groups": groups, "ssm_state_size": d.number(5, 16),
                "conv_kernel": d.number(2, 5)}
    if not has_experts:
        return settings
    of_group = d.number(2, 3)
    groups = d.one(1, 2)
    experts = groups * of_group
    return {**settings, "n_routed_experts": experts, "n_group": groups, "topk_group": 1, "num_experts_per_tok": d.number(1, of_group),
            "moe_intermediate_size": d.number(13, 30), "moe_shared_expert_intermediate_size": d.number(17, 40), "norm_topk_prob": d.maybe(),
            "moe_latent_size": d.one(None, 31), "routed_scaling_factor": d.one(1.0, 1.7)}


def lfm2(d):
    shape = d.whole()
    del shape["rms_norm_eps"]
    layers = d.number(2, 6)
    width = d.one({"block_auto_adjust_ff_dim": False}, {"block_ffn_dim_multiplier": 1.7, "block_multiple_of": d.number(5, 12)})
    return {**shape, "num_hidden_layers": layers, "layer_types": d.kinds(layers, "conv", "full_attention"), "conv_bias": d.maybe(),
            "conv_L_cache": d.number(2, 5), "norm_eps": d.one(1e-6, 1e-3), **d.tied(), **width}


def lfm2_moe(d):
    settings = lfm2(d)
    for name in ("block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of"):
        settings.pop(name, None)
    return {**settings, **d.experts(), "num_dense_layers": d.number(0, settings["num_hidden_layers"] - 1), "norm_topk_prob": d.maybe(),
            "use_expert_bias": d.maybe(), "routed_scaling_factor": d.one(1.0, 1.7)}


def smollm3(d):
    return {**d.shape((3, 6)), **d.tied(), **d.biased("attention_bias", "mlp_bias")}


def seed_oss(d):
    return {**d.shape(), **d.rope(), **d.tied(), "attention_bias": d.maybe(), **d.biased("attention_out_bias", "mlp_bias")}


def gpt2(d):
    heads = d.number(1, 5)
    return {"n_layer": d.number(1, 4), "n_embd": heads * d.number(5, 16), "n_head": heads, "vocab_size": VOCABULARY, "n_positions": 160, "n_ctx": 160,
            "n_inner": d.one(None, 53), "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "layer_norm_epsilon": d.one(1e-5, 1e-3)}


def olmo2(d):
    return {**d.whole(), **d.rope(), **d.tied(), **d.biased()}


def olmo3(d):
    shape = d.whole()
    kinds = d.full_attention_by_turns(shape["num_hidden_layers"])
    return {**shape, **d.tied(), **d.biased(), "sliding_window": d.window(), "layer_types": kinds}


def gpt_oss(d):
    shape = d.shape()
    kinds = d.full_attention_by_turns(shape["num_hidden_layers"])
    return {**shape, **d.experts("num_local_experts", None), **d.tied(), "sliding_window": d.window(), "layer_types": kinds}


def latent(d):
    groups, of_group = d.number(1, 3), d.number(2, 4)
    chosen = d.number(1, groups)
    heads = d.number(1, 5)
    return {**LATENT, "num_hidden_layers": d.number(2, 4), "hidden_size": heads * d.number(40 // heads + 1, 80 // heads),
            "num_attention_heads": heads, "num_key_value_heads": heads,
            "q_lora_rank": d.one(None, d.number(11, 30)), "kv_lora_rank": d.number(11, 40), "qk_rope_head_dim": 2 * d.number(1, 5),
            "qk_nope_head_dim": d.number(5, 14), "v_head_dim": d.number(5, 18), "n_routed_experts": groups * of_group, "n_group": groups,
            "topk_group": chosen, "num_experts_per_tok": d.number(1, chosen * of_group), "n_shared_experts": d.number(1, 2),
            "moe_intermediate_size": d.number(9, 20), "intermediate_size": d.number(29, 52), "routed_scaling_factor": d.one(1.0, 1.7),
            "rope_parameters": d.one(d.theta(), {**YARN, "mscale": 1.0, "mscale_all_dim": d.one(0.6, 1.0)}), **d.biased()}


def deepseek_v2(d):
    settings = {**latent(d), "topk_method": "group_limited_greedy", "first_k_dense_replace": d.number(0, 1)}
    return settings if d.maybe() else {**settings, "topk_method": "greedy", "n_group": 1, "topk_group": 1}


def deepseek_v3(d):
    return {**latent(d), **d.tied(), "norm_topk_prob": d.maybe(), "first_k_dense_replace": d.number(0, 1)}


def glm4_moe_lite(d):
    settings = {**latent(d), **d.tied(), "norm_topk_prob": d.maybe()}
    del settings["num_mtp_layers"]
    kinds = d.kinds(settings["num_hidden_layers"], "sparse", "dense")
    return {**settings, "mlp_layer_types": kinds, "rope_interleave": d.maybe()}


# family: model_type, draw
FAMILIES = {"gemma3": ("gemma3_text", gemma3), "gemma4": ("gemma4_text", gemma4), "qwen3_5": ("qwen3_5_text", qwen3_5),
            "qwen3_5_moe": ("qwen3_5_moe_text", qwen3_5_moe)}
FAMILIES |= {it.__name__: (it.__name__, it) for it in (
    llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, qwen2_moe, gemma, gemma2, phi3, ministral3, qwen3_next, granite, granitemoehybrid, nemotron_h,
    lfm2, lfm2_moe, smollm3, seed_oss, gpt2, olmo2, olmo3, gpt_oss, deepseek_v2, deepseek_v3, glm4_moe_lite)}


def drawn(family, count):
    """Name, model_type and settings of `count` configurations."""
    model_type, settings_of = FAMILIES[family]
    for number in range(1, count + 1):
        yield f"{family}, drawn {number}", model_type, settings_of(Draw(family, number))
