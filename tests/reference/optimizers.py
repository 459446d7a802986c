#!/usr/bin/env python3
"""optimizers.py BUILD [CASE ...]: ten steps of a random Llama with every optimizer, against PyTorch's and transformers'.

AdamW and Muon are torch.optim's, Adafactor is transformers' (with the rate given), Lion its authors' formula. The trained
models are compared as Hugging Face folders: of every tensor the difference, in the norm, is at most a share of the way that
training moved it: gradients of biases of keys are hardly more than rounding, which AdamW makes steps of. torch.optim.Muon computes
its iteration in bf16; here it is made to keep f32. Needs torch (2.9 or later), transformers and numpy (PyPI); never part of
`./dev test`."""
import os
import sys
import tempfile

import numpy as np
import torch
import transformers
from tessera_c import Failed, Library
from transformers.optimization import Adafactor

STEPS, RATE, DECAY, COUNT, VOCABULARY = 10, 1e-3, 0.1, 24, 97
LIMIT = 5e-3
SHAPE = {"num_hidden_layers": 2, "hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 44,
         "vocab_size": VOCABULARY, "max_position_embeddings": 128, "head_dim": 16, "attention_bias": True, "initializer_range": 0.2}


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, groups, lr):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.sub_(group["lr"] * ((0.9 * m + 0.1 * p.grad).sign() + group["weight_decay"] * p))
                m.mul_(0.99).add_(p.grad, alpha=0.01)


def decayed(named, rate=RATE):
    """Matrices with decay, the rest without."""
    return [{"params": [p for _, p in named if p.dim() > 1], "weight_decay": DECAY, "lr": rate},
            {"params": [p for _, p in named if p.dim() == 1], "weight_decay": 0.0, "lr": rate}]


class Both:
    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def step(self):
        for it in self.optimizers:
            it.step()


def muon(model, scale):
    inner = [(n, p) for n, p in model.named_parameters() if p.dim() == 2 and ".layers." in n]
    rest = [(n, p) for n, p in model.named_parameters() if not (p.dim() == 2 and ".layers." in n)]
    return Both(torch.optim.Muon([p for _, p in inner], lr=RATE, weight_decay=DECAY, adjust_lr_fn=scale),
                torch.optim.AdamW(decayed(rest), betas=(0.9, 0.95)))


def grouped(model):
    """The groups of the case "groups"."""
    named = list(model.named_parameters())
    q = [p for n, p in named if n.endswith("q_proj.weight")]
    norms = [p for n, p in named if "norm" in n]
    rest = [(n, p) for n, p in named if "norm" not in n and not n.endswith("q_proj.weight")]
    return torch.optim.AdamW([{"params": q, "lr": 0.25 * RATE, "weight_decay": DECAY},
                              {"params": norms, "lr": RATE, "weight_decay": 0.5}, *decayed(rest)])


# name: our options, what makes the other optimizer of a model
CASES = {
    "adamw": ({"optimizer": "adamw"}, lambda m: torch.optim.AdamW(decayed(list(m.named_parameters())))),
    "groups": ({"optimizer": "adamw", "groups": '[{"match": "block.*.q", "lr_factor": 0.25}, {"match": "*norm*", "weight_decay": 0.5}]'},
               grouped),
    "lion": ({"optimizer": "lion"}, lambda m: Lion(decayed(list(m.named_parameters())), RATE)),
    "adafactor": ({"optimizer": "adafactor"},
                  lambda m: Adafactor(decayed(list(m.named_parameters())), lr=RATE, scale_parameter=False, relative_step=False,
                                      warmup_init=False)),
    "muon": ({"optimizer": "muon"}, lambda m: muon(m, "match_rms_adamw")),
    "muon, original": ({"optimizer": "muon", "muon_scale": "original"}, lambda m: muon(m, "original")),
}


def trained_here(library, base, tokens, labels, path, options):
    model = library.load(base)
    loss = library.make("graph", "tsr_graph_token_loss", library.make("graph", "tsr_model_graph", model))
    step = library.make("graph", "tsr_graph_training", loss, library.options(clip_norm=0.0, weight_decay=DECAY, **options))
    session = library.session(step, "train", batch=2, symbols=f"T={COUNT}")
    library.call("tsr_session_write_model", session, model)
    positions = np.tile(np.arange(COUNT, dtype=np.int32), (2, 1))
    for number in range(STEPS):
        library.feed(session, "train", tokens=tokens, labels=labels, positions=positions, loss_scale=np.float32(1 / labels.size),
                     lr=np.float32(RATE), step=np.float32(number + 1))
        library.call("tsr_session_run", session, "train")
    for name in library.parameter_names(model):
        library.call("tsr_model_write", model, name, library.make("tensor", "tsr_session_read", session, name))
    library.export(model, path)
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).state_dict()


def trained_there(base, tokens, labels, make):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    optimizer = make(model)
    narrow = torch.bfloat16
    torch.bfloat16 = torch.float32
    try:
        for _ in range(STEPS):
            model.zero_grad()
            logits = model(input_ids=torch.tensor(tokens, dtype=torch.long)).logits
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels, dtype=torch.long).flatten()).backward()
            optimizer.step()
    finally:
        torch.bfloat16 = narrow
    return model.state_dict()


def check(library, name, folder):
    options, make = CASES[name]
    base = os.path.join(folder, "base")
    torch.manual_seed(11)
    ids = {"bos_token_id": 1, "eos_token_id": VOCABULARY - 1, "pad_token_id": 0}
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model("llama", **SHAPE, **ids)).float()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, 0.5, 0.2)  # what does not decay is not 0
    model.save_pretrained(base)
    drawn = np.random.default_rng(5).integers(2, VOCABULARY, (2, COUNT + 1)).astype(np.int32)
    tokens, labels = np.ascontiguousarray(drawn[:, :-1]), np.ascontiguousarray(drawn[:, 1:])
    here = trained_here(library, base, tokens, labels, os.path.join(folder, "here"), options)
    there = trained_there(base, tokens, labels, make)
    start = model.state_dict()
    worst = ("", 0.0)
    for key, wanted in there.items():
        share = ((here[key] - wanted).norm() / (wanted - start[key]).norm()).item()
        if not share <= worst[1]:
            worst = key, share
    print(f"{name} | apart by {worst[1]:.1e} of the way ({worst[0]})", flush=True)
    if not worst[1] < LIMIT:
        raise Failed(f"{worst[0]} is {worst[1]:.1e} apart")


def main():
    library, chosen = Library(sys.argv[1]), sys.argv[2:]
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    failed = []
    for name in chosen or CASES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(library, name, folder)
            except Failed as error:
                failed.append(f"{name}: {error}")
    print("\n".join(failed) or "ok: all")
    sys.exit(bool(failed))


main()
