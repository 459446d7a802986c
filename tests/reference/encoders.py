#!/usr/bin/env python3
"""encoders.py BUILD [FAMILY ...]: encoders that transformers makes at random, with every head, against it.

For each: logits (of a model without a head the hidden states) against transformers in f64, within 2e-5 of the largest or
half as much again as transformers' own f32 is off, also of texts of unequal length in one batch; gradients likewise within
1e-4; exported again and loaded by transformers the same to the last bit; through a GGUF file the same here, and from
llama.cpp within its arithmetic where PYTHON_OF_LLAMA_CPP names the Python of an environment with llama-cpp-python. Small
odd shapes: 3 layers, 5 heads. Needs torch, transformers, safetensors and numpy (PyPI); never part of `./dev test`."""
import ctypes
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from tessera_c import Failed, Library

VOCABULARY, CLASSES, LONG, SHORT = 97, 3, 24, 13
LLAMA_CPP = os.environ.get("PYTHON_OF_LLAMA_CPP")
LLAMA_CPP_LIMIT = 5e-3  # gelu of another form, and fewer bits
SHAPE = {"num_hidden_layers": 3, "hidden_size": 60, "num_attention_heads": 5, "intermediate_size": 44, "vocab_size": VOCABULARY,
         "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
DISTIL = {"n_layers": 3, "dim": 60, "n_heads": 5, "hidden_dim": 44, "vocab_size": VOCABULARY, "max_position_embeddings": 64,
          "pad_token_id": 0, "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}
MODERN = {**SHAPE, "num_hidden_layers": 5, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2}
# family: model_type, the prefix of its classes, configuration
FAMILIES = {
    "bert": ("bert", "Bert", SHAPE),
    "bert, 3 types, eps": ("bert", "Bert", {**SHAPE, "type_vocab_size": 3, "layer_norm_eps": 1e-5}),
    "roberta": ("roberta", "Roberta", {**SHAPE, "type_vocab_size": 1, "pad_token_id": 1}),
    "xlm-roberta": ("xlm-roberta", "XLMRoberta", {**SHAPE, "type_vocab_size": 1, "pad_token_id": 3}),
    "camembert": ("camembert", "Camembert", {**SHAPE, "type_vocab_size": 1, "pad_token_id": 1}),
    "distilbert": ("distilbert", "DistilBert", DISTIL),
    "modernbert": ("modernbert", "ModernBert", MODERN),
    "modernbert, all layers whole": ("modernbert", "ModernBert", {**MODERN, "layer_types": ["full_attention"] * 5, "classifier_bias": True}),
    "modernbert, classes of the mean": ("modernbert", "ModernBert", {**MODERN, "classifier_pooling": "mean"}),
    "nomic_bert": ("nomic_bert", "NomicBert", SHAPE),
}
HEADS = ("ForMaskedLM", "ForSequenceClassification", "Model")


def model_class(prefix, head):
    return getattr(transformers, prefix + head)


def random_model(family, head):
    """In f32, with weights far from their usual initial values."""
    model_type, prefix, settings = FAMILIES[family]
    torch.manual_seed(11)
    config = transformers.AutoConfig.for_model(model_type, **settings, num_labels=CLASSES)
    config._attn_implementation = "eager"
    model = model_class(prefix, head)(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name.lower()
            if name.endswith("bias"):
                parameter.copy_(0.3 * torch.randn_like(parameter))
            elif parameter.dim() == 1:
                parameter.copy_((1.0 if is_norm else 0.0) + 0.3 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) * 1.3 / parameter.shape[-1] ** 0.5)
    return model


def result_of(model, ids, types, mask=None):
    extra = {} if types is None else {"token_type_ids": torch.tensor(types, dtype=torch.long)}
    mask = torch.ones(ids.shape, dtype=torch.long) if mask is None else torch.tensor(mask, dtype=torch.long)
    output = model(input_ids=torch.tensor(ids, dtype=torch.long), attention_mask=mask, **extra)
    return output.logits if hasattr(output, "logits") else output.last_hidden_state


class Check:
    def __init__(self, library, family, head, folder):
        self.library, self.family, self.head, self.failures = library, family, head, []
        self.torch_model = random_model(family, head)
        self.torch_model.save_pretrained(folder)
        self.exact = random_model(family, head).double()
        self.model = library.load(folder)
        self.types = getattr(self.torch_model.config, "type_vocab_size", 0)
        self.has_types = self.types > 0 and FAMILIES[family][0] not in ("distilbert", "modernbert")
        self.output = "hidden" if head == "Model" else "logits"
        self.row = [f"{family} {head}"]

    def note(self, text, holds):
        self.row.append(text if holds else f"{text} FAILED")
        if not holds:
            self.failures.append(text)

    def ids(self, count):
        return np.random.default_rng(5).integers(5, VOCABULARY - 2, (2, count)).astype(np.int32)

    def type_ids(self, shape):
        return np.random.default_rng(6).integers(0, self.types, shape).astype(np.int32) if self.has_types else None

    def feed(self, session, entry, ids, types, **more):
        positions = np.tile(np.arange(ids.shape[1], dtype=np.int32), (2, 1))
        if types is not None:
            more["token_types"] = types
        self.library.feed(session, entry, tokens=ids, positions=positions, **more)

    def run(self, model, ids, types, segments=None):
        graph = self.library.make("graph", "tsr_model_graph", model)
        if segments is not None:
            graph = self.library.make("graph", "tsr_graph_segments", graph)
        session = self.library.session(graph, "forward", batch=2, symbols=f"T={ids.shape[1]}")
        self.library.call("tsr_session_write_model", session, model)
        self.feed(session, "forward", ids, types, **({} if segments is None else {"segments": segments}))
        self.library.call("tsr_session_run", session, "forward")
        found = self.library.fetch(session, "forward", self.output)
        return found[:, 0] if self.head == "ForSequenceClassification" else found

    @staticmethod
    def alone(model, ids, types, lengths):
        """Of each text by itself, in one array."""
        rows = []
        with torch.no_grad():
            for row, length in enumerate(lengths):
                part = slice(row, row + 1)
                found = result_of(model, ids[part, :length], None if types is None else types[part, :length])[0].double().numpy()
                rows.append(np.pad(found, ((0, len(ids[0]) - length), (0, 0))) if found.ndim == 2 else found)
        return np.stack(rows)

    def compare(self, lengths):
        ids, mask = self.ids(max(lengths)), np.zeros((2, max(lengths)), np.int32)
        for row, length in enumerate(lengths):
            mask[row, :length] = 1
        is_padded = lengths[0] != lengths[1]
        if is_padded:
            ids[mask == 0] = self.torch_model.config.pad_token_id
        types = self.type_ids(ids.shape)
        ours = self.run(self.model, ids, types, mask if is_padded else None)
        exact, theirs = self.alone(self.exact, ids, types, lengths), self.alone(self.torch_model, ids, types, lengths)
        if self.head != "ForSequenceClassification":
            ours, exact, theirs = ours[mask == 1], exact[mask == 1], theirs[mask == 1]
        largest = np.abs(exact).max()
        limit = max(2e-5, 1.5 * np.abs(theirs - exact).max() / largest)
        error = np.abs(ours - exact).max() / largest
        self.note(f"{error:.1e} of {limit:.1e}", error <= limit)

    def load_again(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            name = json.load(file)["architectures"][0]
        model, report = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                                   output_loading_info=True)
        wrong = {kind: names for kind, names in report.items() if names}
        if wrong:
            raise Failed(f"transformers on the exported folder: {wrong}")
        return model.double().eval()

    def exported(self, folder):
        self.library.export(self.model, folder)
        again = self.load_again(folder)
        ids = self.ids(LONG)
        types = self.type_ids(ids.shape)
        with torch.no_grad():
            error = (result_of(again, ids, types) - result_of(self.exact, ids, types)).abs().max().item()
        self.note(f"{error:g}", error == 0)

    def hidden(self, model, ids):
        """Of ids [2, T] with types of 0, which is what llama.cpp has."""
        embedded = self.library.make("graph", "tsr_model_graph", model)
        session = self.library.session(embedded, "forward", batch=2, symbols=f"T={ids.shape[1]}")
        self.library.call("tsr_session_write_model", session, model)
        self.feed(session, "forward", ids, np.zeros_like(ids) if self.has_types else None)
        self.library.call("tsr_session_run", session, "forward")
        return self.library.fetch(session, "forward", "hidden")

    def gguf(self, path):
        try:
            self.library.export(self.model, path, format="gguf", tokenizer=0)
        except Failed as refusal:
            self.row.append(f"refused: {refusal}")
            return
        ids = self.ids(LONG)
        ours, again = self.hidden(self.model, ids), self.hidden(self.library.load(path), ids)
        error = np.abs(again - ours).max() / np.abs(ours).max()
        self.note(f"{error:g}", error == 0)
        if not LLAMA_CPP or self.head == "ForSequenceClassification":
            return
        done = subprocess.run([LLAMA_CPP, os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_cpp_embeddings.py"), path,
                               json.dumps(ids[0].tolist())], capture_output=True)
        if done.returncode != 0:
            return self.note("llama.cpp: " + (done.stderr.decode(errors="replace").strip().splitlines() or ["?"])[-1][:100], False)
        theirs = np.frombuffer(done.stdout, np.float32).reshape(LONG, -1)
        error = np.abs(theirs - ours[0]).max() / np.abs(ours[0]).max()
        self.note(f"llama.cpp {error:.1e}", error <= LLAMA_CPP_LIMIT)

    def gradients(self, folder):
        """One step of SGD, at a rate at which the gradient is much more than the parameter; ours comes back as an export."""
        if self.head == "Model":
            return
        rate, ids = 1024.0, self.ids(LONG)
        types = self.type_ids(ids.shape)
        labels = np.full(ids.shape, -1, np.int32)
        if self.head == "ForMaskedLM":
            labels[:, 3::4] = self.ids(LONG + 1)[:, 4::4]
        else:
            labels[:, 0] = [2, 0]
        count = int((labels >= 0).sum())
        loss = self.library.make("graph", "tsr_graph_token_loss", self.library.make("graph", "tsr_model_graph", self.model))
        step = self.library.make("graph", "tsr_graph_training", loss,
                                 self.library.options(optimizer="sgd", momentum=0.0, clip_norm=0.0, weight_decay=0.0))
        session = self.library.session(step, "train", batch=2, symbols=f"T={LONG}")
        self.library.call("tsr_session_write_model", session, self.model)
        self.feed(session, "train", ids, types, labels=labels, loss_scale=np.float32(1 / count), lr=np.float32(rate), step=np.float32(1))
        self.library.call("tsr_session_run", session, "train")
        for name in self.library.parameter_names(self.model):
            self.library.call("tsr_model_write", self.model, name, self.library.make("tensor", "tsr_session_read", session, name))
        self.library.export(self.model, folder)
        ours = self.load_again(folder).state_dict()
        error = off = largest = 0.0
        gradients = [self.gradients_of(model, ids, types, labels) for model in (self.exact, self.torch_model)]
        for name, parameter in self.exact.named_parameters():
            if name not in gradients[0]:
                continue
            exact, theirs = gradients[0][name], gradients[1][name].double()
            if name.endswith("position_embeddings.weight"):  # rows that no text reaches
                exact, theirs = exact[2:], theirs[2:]
            found = (parameter.detach() - ours[name]) / rate
            if name.endswith("position_embeddings.weight"):
                found = found[2:]
            error, off = max(error, (found - exact).abs().max().item()), max(off, (theirs - exact).abs().max().item())
            largest = max(largest, exact.abs().max().item())
        limit = max(1e-4, 1.5 * off / largest)
        self.note(f"{error / largest:.1e} of {limit:.1e}", error / largest <= limit)

    def gradients_of(self, model, ids, types, labels):
        model.zero_grad()
        logits = result_of(model, ids, types)
        wanted = torch.tensor(labels[:, 0] if self.head == "ForSequenceClassification" else labels, dtype=torch.long)
        torch.nn.functional.cross_entropy(logits.flatten(0, -2), wanted.flatten(), ignore_index=-1).backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def decoder_vectors(library):
    """Vectors of a decoder's texts: the final norm's output, pooled, as transformers' model without its head has it."""
    torch.manual_seed(11)
    settings = {**SHAPE, "num_key_value_heads": 1, "tie_word_embeddings": True}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings, attn_implementation="eager")).float().eval()
    texts = [np.random.default_rng(i).integers(5, VOCABULARY, count).astype(np.int32) for i, count in enumerate((LONG, SHORT, 1))]
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for pooling in ("mean", "cls", "last"):
            embedder = library.make("embedder", "tsr_embedder_new", library.runtime, library.load(folder), library.options(pooling=pooling))
            ids = np.concatenate(texts)
            lengths = (ctypes.c_size_t * len(texts))(*map(len, texts))
            library.call("tsr_embedder_start_ids", embedder, ctypes.c_void_p(ids.ctypes.data), ctypes.c_size_t(len(ids)), lengths,
                         ctypes.c_size_t(len(texts)))
            done = ctypes.c_double()
            while done.value < 1:
                library.call("tsr_embedder_step", embedder, ctypes.byref(done))
            rows = np.empty((len(texts), SHAPE["hidden_size"]), np.float32)
            library.call("tsr_embedder_rows", embedder, ctypes.c_void_p(rows.ctypes.data), ctypes.c_size_t(rows.size), None)
            error = 0.0
            for row, text in zip(rows, texts):
                with torch.no_grad():
                    hidden = model.double().model(torch.tensor(text[None], dtype=torch.long)).last_hidden_state[0].numpy()
                exact = hidden.mean(0) if pooling == "mean" else hidden[0 if pooling == "cls" else -1]
                error = max(error, np.abs(row - exact).max() / np.abs(hidden).max())
            print(f"llama, vectors pooled by {pooling} | {error:.1e} of 2.0e-05{'' if error <= 2e-5 else ' FAILED'}", flush=True)
            if error > 2e-5:
                failed.append(f"llama {pooling}")
    return failed


def main():
    build, chosen = sys.argv[1], sys.argv[2:]
    library = Library(build)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = []
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    print("model | error of limit | of two lengths | exported: numbers that differ | through GGUF | gradients")
    for family in FAMILIES:
        if chosen and family.split(",")[0] not in chosen and family not in chosen:
            continue
        for head in HEADS:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    check = Check(library, family, head, folder)
                    check.compare((LONG, LONG))
                    check.compare((LONG, SHORT))
                    check.exported(os.path.join(folder, "exported"))
                    check.gguf(os.path.join(folder, "exported.gguf"))
                    check.gradients(os.path.join(folder, "trained"))
                    if check.failures:
                        failed.append(f"{family} {head}")
                    print(" | ".join(check.row), flush=True)
                except Failed as error:
                    failed.append(f"{family} {head}")
                    print(f"{family} {head} | FAILED: {error}", flush=True)
    if not chosen or "llama" in chosen:
        failed += decoder_vectors(library)
    print(f"failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
