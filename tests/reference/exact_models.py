"""Random models of transformers, their exact twins in f64, these with llama.cpp's gelu, and the margins of routers."""
import contextlib

import torch
import transformers
from family_models import VOCABULARY
from tessera_c import Failed


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


@contextlib.contextmanager
def gelu_of_f16():
    """The gelu of llama.cpp's build for CPUs: between -10 and 10 a table of f16, by arguments of f16."""
    classes = transformers.activations.GELUTanh, transformers.activations.NewGELUActivation
    own = [each.forward for each in classes]

    def by_table(_, x):
        value = torch.nn.functional.gelu(x.half().double(), approximate="tanh").half().to(x.dtype)
        return torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, value))

    for each in classes:
        each.forward = by_table
    try:
        yield
    finally:
        for each, forward in zip(classes, own):
            each.forward = forward


@contextlib.contextmanager
def router_margins(margins):
    """Into `margins`: of each top-k, a number a token, how far the last choice is above the first that was left out."""
    topk, method = torch.topk, torch.Tensor.topk

    def noted(values, k, *args, **named):
        if k < values.shape[-1]:
            best = topk(values.detach(), k + 1).values.double()
            gaps = best[..., k - 1] - best[..., k]
            margins.append(gaps.flatten(1).amin(1) if gaps.dim() > 1 else gaps)
        return topk(values, k, *args, **named)

    torch.topk = torch.Tensor.topk = noted
    try:
        yield
    finally:
        torch.topk, torch.Tensor.topk = topk, method
