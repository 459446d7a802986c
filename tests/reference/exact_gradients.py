"""The gradient of each tensor of a model against transformers in f64.

Within 1e-5 of the tensor's largest number, or 1.5 x the error of torch's f32. The latter is the largest of two passes, and of twelve more
where two do not suffice: one pass is one draw of rounding noise, by which a tensor of few numbers may be exact, and whose tail is heavy
where a norm divides by little. Draws differ in the attention's backward formula (softmax's own, FlashAttention's), from the third on also
in the weights, each moved by one unit of its last place.

Both formulas, because some gradients are 0 in exact arithmetic: a softmax over one key has none, so neither have k_proj and q_proj (with
their norms) of a text of one token, and keys' biases move all scores of a query alike. softmax's backward subtracts a number from itself
there and has no rounding error at all. FlashAttention's subtracts dout . out from dout . v, equal sums in different orders, as the library
does: what they leave over is the measure. A larger gradient, such as one of a wrong rotation, norm or scale, fails at every T > 1, and
at T = 1 if it exceeds that rounding."""
import contextlib
import copy

import numpy as np
import torch
from exact_models import all_f64, load_exact, router_margins

RATE = 2.0 ** 30  # of SGD: the step is the gradient to its last place, whatever the weight
RELATIVE, OF_TORCH, TIE = 1e-5, 1.5, 1e-6


def moved(values):
    """Each one unit of its last place larger or less."""
    return torch.nextafter(values, torch.where(torch.rand_like(values) < 0.5, -torch.inf, torch.inf))


class FlashAttention(torch.autograd.Function):
    """softmax(scores) value with the backward pass of FlashAttention-2 (Dao, 2023, algorithm 2), which reads a rounded `out` again:
    here one of a neighbour, as another order of the same sum leaves it."""

    @staticmethod
    def forward(context, scores, value):
        weights = torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True))
        out = weights @ value
        context.save_for_backward(weights, value, moved(out))
        return out

    @staticmethod
    def backward(context, grad):
        weights, value, out = context.saved_tensors
        of_scores = weights * (grad @ value.transpose(-1, -2) - (grad * out).sum(-1, keepdim=True))
        return of_scores, weights.transpose(-1, -2) @ grad


@contextlib.contextmanager
def flash_attention():
    """Products of a softmax's result and values are FlashAttention. Attention with sinks drops a column between them and stays as it is."""
    softmax, matmul, last = torch.nn.functional.softmax, torch.matmul, [None, None]

    def noted_softmax(scores, *args, **named):
        last[:] = softmax(scores, *args, **named), scores
        return last[0]

    torch.nn.functional.softmax = noted_softmax
    torch.matmul = lambda left, right: FlashAttention.apply(last[1], right) if left is last[0] else matmul(left, right)
    try:
        yield
    finally:
        torch.nn.functional.softmax, torch.matmul = softmax, matmul


def backward(model, tokens, labels):
    model.zero_grad()
    logits = model(torch.tensor(tokens, dtype=torch.long)).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels, dtype=torch.long).flatten()).backward()
    return {name: torch.zeros_like(it).double() if it.grad is None else it.grad.double() for name, it in model.named_parameters()}


def neighbour(model, seed):
    """A copy whose weights are one unit of the last place larger or less."""
    torch.manual_seed(seed)
    near = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in near.parameters():
            parameter.copy_(moved(parameter))
    return near


def largest_errors(found, exact):
    return {name: (found[name] - wanted).abs().max().item() for name, wanted in exact.items()}


class Gradients:
    """Of a model of `library`: `exact` and `plain` are transformers', in f64 and f32; `folder` is where its files are."""

    def __init__(self, library, folder, exact, plain):
        self.library, self.exact, self.plain = library, exact, plain
        self.model, self.trained = library.load(folder), library.load(folder)
        self.graph = library.make("graph", "tsr_graph_training",
                                  library.make("graph", "tsr_graph_token_loss", library.make("graph", "tsr_model_graph", self.model)),
                                  library.options(optimizer="sgd", momentum=0.0, clip_norm=0.0, weight_decay=0.0))

    def ours(self, tokens, labels, folder):
        """One step of SGD, which comes back as an export to `folder`."""
        library, count = self.library, tokens.shape[1]
        session = library.session(self.graph, "train", batch=2, symbols=f"T={count}")
        library.call("tsr_session_write_model", session, self.model)
        library.feed(session, "train", tokens=tokens, labels=labels, positions=np.tile(np.arange(count, dtype=np.int32), (2, 1)),
                     loss_scale=np.float32(1 / labels.size), lr=np.float32(RATE), step=np.float32(1))
        library.call("tsr_session_run", session, "train")
        for name in library.parameter_names(self.model):
            library.call("tsr_model_write", self.trained, name, library.make("tensor", "tsr_session_read", session, name))
        library.export(self.trained, folder)
        stepped = load_exact(folder).state_dict()
        return {name: (parameter.detach() - stepped[name]) / RATE for name, parameter in self.exact.named_parameters()}

    def compare(self, ids, folder):
        """Of texts ids [B, T + 1]: the largest error as a share of its bound, its tensor, and the error of it; None at a router's tie."""
        tokens, labels = np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])
        margins = []
        with all_f64(), router_margins(margins):
            exact = backward(self.exact, tokens, labels)
        if any(it.min() < TIE for it in margins):
            return None
        largest = {name: it.abs().max().item() for name, it in exact.items()}
        errors, of_torch = largest_errors(self.ours(tokens, labels, folder), exact), dict.fromkeys(exact, 0.0)
        for draw in range(14):
            torch.manual_seed(draw)
            with flash_attention() if draw % 2 else contextlib.nullcontext():
                drawn = largest_errors(backward(neighbour(self.plain, draw) if draw > 1 else self.plain, tokens, labels), exact)
            of_torch = {name: max(it, drawn[name]) for name, it in of_torch.items()}
            bounds = {name: max(RELATIVE * largest[name], OF_TORCH * of_torch[name]) for name in exact}
            shares = {name: error / bounds[name] if bounds[name] else np.inf if error else 0.0 for name, error in errors.items()}
            worst = max(shares, key=shares.get)
            if draw and shares[worst] <= 1:
                break
        return shares[worst], worst, errors[worst] / largest[worst] if largest[worst] else errors[worst]
