#!/usr/bin/env python3
"""decoder_heads.py BUILD [FAMILY ...]: what follows a decoder's last block, as its folder has it, against transformers.

For each family of config_keys.py that is a decoder: saved from the class without a head, with and without prefixes (hidden
states); a stored head with a configuration that ties it to the embedding, in one file and in shards (logits, also of the
exported folder); classes of texts (…ForSequenceClassification) of several lengths, padding tokens within them, by the
embedder, and exported again. Within 2e-5 of the largest number, transformers in f64. For BERT and its relatives an output
projection, and a bias, that are not the copies that they are said to be. Needs torch, transformers, safetensors and numpy
(PyPI); never part of `./dev test`."""
import ctypes
import json
import os
import sys
import tempfile

import numpy as np
import torch
import transformers
from config_keys import FAMILIES, V
from safetensors.torch import load_file, save_file
from tessera_c import Failed, Library

LIMIT, CLASSES, PAD = 2e-5, 3, 7
IDS = np.random.default_rng(5).integers(8, V - 2, (1, 37)).astype(np.int32)


def model_of(family, cls, **settings):
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(family, **{**FAMILIES[family][1], **settings})
    model = getattr(transformers, cls).from_config(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 1.5 / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 0.3
            parameter.copy_((1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0) + torch.randn_like(parameter) * scale)
    return model


def again(folder, cls):
    model, report = getattr(transformers, cls).from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                                               experts_implementation="eager", output_loading_info=True)
    if any(report[it] for it in ("missing_keys", "mismatched_keys", "unexpected_keys")):
        raise Failed(f"transformers: {report}")
    return model.eval()


def output_of(library, model, name):
    session = library.session(library.make("graph", "tsr_model_graph", model), "forward", batch=1, symbols=f"T={IDS.shape[1]}")
    library.call("tsr_session_write_model", session, model)
    inputs = dict(tokens=IDS, positions=np.arange(IDS.shape[1], dtype=np.int32)[None])
    if any(it["name"] == "token_types" for it in library.json("tsr_model_info", model)["inputs"]):
        inputs["token_types"] = np.zeros_like(IDS)
    library.feed(session, "forward", **inputs)
    library.call("tsr_session_run", session, "forward")
    return library.fetch(session, "forward", name)


def rows_of(library, model, texts, output):
    embedder = library.make("embedder", "tsr_embedder_new", library.runtime, model, library.options(output=output))
    ids = [token for text in texts for token in text]
    lengths, done, width = (ctypes.c_size_t * len(texts))(*map(len, texts)), ctypes.c_double(), ctypes.c_size_t()
    library.call("tsr_embedder_start_ids", embedder, (ctypes.c_int32 * len(ids))(*ids), ctypes.c_size_t(len(ids)), lengths, ctypes.c_size_t(len(texts)))
    while done.value < 1:
        library.call("tsr_embedder_step", embedder, ctypes.byref(done))
    library.call("tsr_embedder_width", embedder, ctypes.byref(width))
    rows = np.zeros((len(texts), width.value), np.float32)
    library.call("tsr_embedder_rows", embedder, rows.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(rows.size), None)
    return rows


class Check:
    def __init__(self, library, family):
        self.library, self.family, self.failed = library, family, 0

    def say(self, what, found, exact):
        error = np.abs(found - exact).max() / np.abs(exact).max()
        self.failed += not error <= LIMIT
        print(f"  {self.family} | {what} | {error:.1e}{'' if error <= LIMIT else ' WRONG'}", flush=True)

    def run(self, what, function):
        try:
            function(what)
        except Failed as error:
            self.failed += 1
            print(f"  {self.family} | {what} | REFUSED {str(error)[:200]}", flush=True)

    def base(self, what):
        with tempfile.TemporaryDirectory() as folder:
            model_of(self.family, "AutoModel").save_pretrained(folder)
            with torch.no_grad():
                exact = again(folder, "AutoModel")(torch.tensor(IDS, dtype=torch.long)).last_hidden_state.numpy()
            path = folder + "/model.safetensors"
            plain = load_file(path)
            with open(folder + "/config.json", encoding="utf-8") as file:
                config = json.load(file)
            is_gpt2 = self.family == "gpt2"
            for prefix in ("", "transformer." if is_gpt2 else "model.", "language_model.model.", "model.language_model.", "module.model."):
                for tied in (False, True):
                    with open(folder + "/config.json", "w", encoding="utf-8") as file:
                        json.dump({**config, "tie_word_embeddings": tied}, file)
                    save_file({prefix + name: value for name, value in plain.items()}, path, metadata={"format": "pt"})
                    loaded = self.library.load(folder)
                    text = IDS[0].tolist()
                    found = rows_of(self.library, loaded, [text, text[:20]], "embedding")
                    self.say(f"{what}, prefix '{prefix}', tied {tied}", found, exact[0, [36, 19]])
                    if not tied:
                        self.library.export(loaded, folder + "/out")
                        with torch.no_grad():
                            out = again(folder + "/out", "AutoModel")(torch.tensor(IDS, dtype=torch.long)).last_hidden_state.numpy()
                        self.say(f"{what}, exported", out, exact)

    def stored_head(self, what):
        with tempfile.TemporaryDirectory() as folder:
            cls = "AutoModelForCausalLM"
            model_of(self.family, cls, tie_word_embeddings=True).save_pretrained(folder)
            path = folder + "/model.safetensors"
            tensors = load_file(path)
            table = next(value for name, value in tensors.items() if name.endswith(("embed_tokens.weight", "wte.weight")))
            for kind, head in (("differs", torch.randn(table.shape) * 0.2), ("alike", table.clone()), ("one number off", None)):
                if head is None:
                    head = table.clone()
                    head[-1, -1] += 1
                save_file({**tensors, "lm_head.weight": head}, path, metadata={"format": "pt"})
                with torch.no_grad():
                    exact = again(folder, cls)(torch.tensor(IDS, dtype=torch.long)).logits.numpy()
                loaded = self.library.load(folder)
                self.say(f"{what} {kind}", output_of(self.library, loaded, "logits"), exact)
                self.library.export(loaded, folder + "/out")
                with torch.no_grad():
                    self.say(f"{what} {kind}, exported", again(folder + "/out", cls)(torch.tensor(IDS, dtype=torch.long)).logits.numpy(), exact)
            names = sorted(tensors) + ["lm_head.weight"]
            parts, index = {}, {}
            for i, name in enumerate(names):
                shard = f"model-0000{i % 3 + 1}-of-00003.safetensors"
                parts.setdefault(shard, {})[name] = {**tensors, "lm_head.weight": head}[name]
                index[name] = shard
            os.remove(path)
            for shard, contents in parts.items():
                save_file(contents, os.path.join(folder, shard), metadata={"format": "pt"})
            with open(path + ".index.json", "w", encoding="utf-8") as file:
                json.dump({"metadata": {}, "weight_map": index}, file)
            self.say(f"{what}, shards", output_of(self.library, self.library.load(folder), "logits"), exact)

    def classes(self, what):
        for pad in (PAD, None):
            try:
                model = model_of(self.family, "AutoModelForSequenceClassification", num_labels=CLASSES, pad_token_id=pad)
            except ValueError:
                return  # no such class
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                ids = IDS[0].tolist()
                texts = [ids, ids[:5], ids[:9] + [PAD], ids[:6] + [PAD, PAD, 20], [PAD], ids[:1]]
                exact_model = again(folder, "AutoModelForSequenceClassification")
                with torch.no_grad():
                    exact = np.concatenate([exact_model(torch.tensor([text])).logits.numpy() for text in texts])
                loaded = self.library.load(folder)
                self.say(f"{what}, padding {pad}", rows_of(self.library, loaded, texts, "logits"), exact)
                self.say(f"{what}, probabilities", rows_of(self.library, loaded, texts, "probabilities"), torch.tensor(exact).softmax(-1).numpy())
                self.library.export(loaded, folder + "/out", tokenizer=0)
                back = again(folder + "/out", "AutoModelForSequenceClassification")
                with torch.no_grad():
                    out = np.concatenate([back(torch.tensor([text])).logits.numpy() for text in texts])
                self.say(f"{what}, exported", out, exact)

    def encoder_head(self, what):
        with tempfile.TemporaryDirectory() as folder:
            cls = "AutoModelForMaskedLM"
            model_of(self.family, cls).save_pretrained(folder)
            path = folder + "/model.safetensors"
            tensors = load_file(path)
            state = transformers.AutoModelForMaskedLM.from_pretrained(folder).state_dict()
            weight = next(it for it in state if it.endswith(("decoder.weight", "vocab_projector.weight")))
            bias = next((it for it in state if it.endswith("decoder.bias")), None)
            changes = [{weight: torch.randn_like(state[weight]) * 0.2}]
            if bias is not None and bias not in tensors:
                changes += [{bias: torch.randn_like(state[bias])}, {**changes[0], bias: torch.randn_like(state[bias])}]
            for change in changes:
                save_file({**tensors, **change}, path, metadata={"format": "pt"})
                with torch.no_grad():
                    exact = again(folder, cls)(torch.tensor(IDS, dtype=torch.long)).logits.numpy()
                loaded = self.library.load(folder)
                self.say(f"{what} {' and '.join(change)}", output_of(self.library, loaded, "logits"), exact)
                self.library.export(loaded, folder + "/out")
                with torch.no_grad():
                    self.say(f"{what} {' and '.join(change)}, exported", again(folder + "/out", cls)(torch.tensor(IDS, dtype=torch.long)).logits.numpy(), exact)


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    library, failed = Library(sys.argv[1]), 0
    for family in sys.argv[2:] or FAMILIES:
        check = Check(library, family)
        if FAMILIES[family][0] == "MaskedLM":
            check.run("stored", check.encoder_head)
        else:
            check.run("saved without a head", check.base)
            check.run("a head that", check.stored_head)
            check.run("classes", check.classes)
        failed += check.failed
    print(f"failed: {failed}")
    sys.exit(bool(failed))


main()
