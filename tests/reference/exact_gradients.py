"""The gradient of each tensor of a model against transformers in f64.

Within 1e-5 of the tensor's largest number, or 1.5 x the error of torch's f32. The latter is the largest of two passes, the second
with each weight moved by one unit of its last place, and of eight such passes more where two do not suffice: one pass is one draw of
rounding noise, by which a tensor of few numbers may be exact, and whose tail is heavy where a norm divides by little.

A third bound is for sums whose terms cancel: half a unit of the last place, 2^-24, of the model's largest gradient for each token, added as
a random walk, so times the square root of their number. Keys' biases move all
scores of a query alike, and a text of one token has one weight, 1, at each query: such gradients are 0 in exact arithmetic, and
here what roundings of other terms left over; two right programs may then differ by any factor."""
import copy

import numpy as np
import torch
from exact_models import all_f64, load_exact, router_margins

RATE = 2.0 ** 30  # of SGD: the step is the gradient to its last place, whatever the weight
RELATIVE, OF_TORCH, CANCELLED, TIE = 1e-5, 1.5, 2.0 ** -24, 1e-6


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
            parameter.copy_(torch.nextafter(parameter, torch.where(torch.rand_like(parameter) < 0.5, -torch.inf, torch.inf)))
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
        cancelled = CANCELLED * tokens.size ** 0.5 * max(largest.values())
        errors, of_torch = largest_errors(self.ours(tokens, labels, folder), exact), dict.fromkeys(exact, 0.0)
        for draw in range(10):
            drawn = largest_errors(backward(neighbour(self.plain, draw) if draw else self.plain, tokens, labels), exact)
            of_torch = {name: max(it, drawn[name]) for name, it in of_torch.items()}
            bounds = {name: max(RELATIVE * largest[name], OF_TORCH * of_torch[name], cancelled) for name in exact}
            shares = {name: error / bounds[name] if bounds[name] else float(error > 0) for name, error in errors.items()}
            worst = max(shares, key=shares.get)
            if draw and shares[worst] <= 1:
                break
        return shares[worst], worst, errors[worst] / largest[worst] if largest[worst] else errors[worst]
