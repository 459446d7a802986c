#!/usr/bin/env python3
"""adapters.py BUILD [CASE ...]: low-rank adapters of random models, against PEFT.

For each case PEFT makes an adapter with random matrices and saves it. Here: it is opened over the base, and logits are
compared with PEFT's in f64, within 2e-5 of the largest or half as much again as PEFT's own f32 is off; merged, likewise;
exported, when PEFT loads the folder onto the base and its tensors are compared; trained five steps of SGD on both sides,
when PEFT loads ours: its logits equal ours, and those of its own training; and written as a GGUF adapter, which is opened
again, and by llama.cpp where it is installed (llama_cpp_logits.py). Needs torch, transformers, peft, safetensors and numpy (PyPI); never
part of `./dev test`."""
import os
import sys
import tempfile
import warnings

import numpy as np
import peft
import torch
import transformers
from llama_cpp_logits import GELU_LIMIT, Refused, is_installed, logits_of
from tessera_c import Failed, Library

VOCABULARY, COUNT, STEPS, RATE = 97, 24, 5, 0.002
LIMIT = 2e-5
SHAPE = {"num_hidden_layers": 3, "hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 44,
         "vocab_size": VOCABULARY, "max_position_embeddings": 128}
GPT2 = {"n_layer": 3, "n_embd": 60, "n_head": 5, "vocab_size": VOCABULARY, "n_positions": 128, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0}
MODELS = {
    "llama": ("llama", {**SHAPE, "head_dim": 16}),
    "llama tied": ("llama", {**SHAPE, "tie_word_embeddings": True}),
    "llama biases": ("llama", {**SHAPE, "attention_bias": True, "mlp_bias": True}),
    "gpt2": ("gpt2", GPT2),
    "phi3": ("phi3", {**SHAPE, "sliding_window": None}),  # llama.cpp has no windows of it
    "qwen3": ("qwen3", {**SHAPE, "head_dim": 18}),
    "gemma3": ("gemma3_text", {**SHAPE, "head_dim": 16, "sliding_window": 13, "query_pre_attn_scalar": 16}),
    "mixtral": ("mixtral", {**SHAPE, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.0, "num_local_experts": 5, "sliding_window": None}),
}
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
PATTERNS = {"use_rslora": True, "r": 4, "lora_alpha": 6, "target_modules": ATTENTION + ["down_proj"],
            "rank_pattern": {"layers.1.self_attn.q_proj": 3, "down_proj": 5}, "alpha_pattern": {r"layers\.[02]\..*v_proj": 9}}
# name: model, settings of LoraConfig
CASES = {
    "llama": ("llama", {"r": 4, "lora_alpha": 3, "target_modules": "all-linear"}),
    "llama, q and v": ("llama", {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "v_proj"]}),
    "llama, patterns, rsLoRA": ("llama", PATTERNS),
    "llama, expression": ("llama", {"target_modules": r"model\.layers\.[12]\..*\.(k|up)_proj", "exclude_modules": ["layers.2.mlp.up_proj"]}),
    "llama, layers": ("llama", {"target_modules": ["q_proj", "o_proj"], "layers_to_transform": [0, 2], "layers_pattern": "layers"}),
    "llama, modules to save": ("llama", {"target_modules": ATTENTION, "modules_to_save": ["lm_head", "input_layernorm", "embed_tokens"]}),
    "llama, table and head": ("llama", {"target_modules": ["embed_tokens", "lm_head", "v_proj"], "r": 5}),
    "llama, all biases": ("llama biases", {"target_modules": ["q_proj", "down_proj"], "bias": "all"}),
    "llama, bias of adapters": ("llama biases", {"target_modules": ["q_proj", "down_proj"], "lora_bias": True, "lora_alpha": 20}),
    "llama tied, head": ("llama tied", {"target_modules": ["lm_head", "q_proj"]}),
    "llama tied, table": ("llama tied", {"target_modules": ["embed_tokens", "q_proj"]}),
    "llama tied, saved table": ("llama tied", {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
    "llama, rank above the weight's": ("llama", {"target_modules": ["k_proj"], "r": 70, "lora_alpha": 7}),
    "gpt2": ("gpt2", {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "fan_in_fan_out": True}),
    "gpt2, by default, all biases": ("gpt2", {"r": 4, "bias": "all", "fan_in_fan_out": True}),
    "gpt2, modules to save": ("gpt2", {"target_modules": ["c_fc", "wpe"], "modules_to_save": ["ln_1", "mlp.c_proj"], "fan_in_fan_out": True}),
    "phi3": ("phi3", {"r": 6, "lora_alpha": 9, "target_modules": ["qkv_proj", "gate_up_proj", "down_proj"]}),
    "qwen3": ("qwen3", {"r": 4, "target_modules": "all-linear", "modules_to_save": ["q_norm", "model.norm"]}),
    "gemma3": ("gemma3", {"r": 4, "target_modules": "all-linear", "modules_to_save": ["post_attention_layernorm", "k_norm"]}),
    "qwen3, expression": ("qwen3", {"r": 5, "lora_alpha": 3, "target_modules": r".*\.(q|k|down)_proj"}),
    "gemma3, attention": ("gemma3", {"r": 5, "lora_alpha": 3, "use_rslora": True, "target_modules": ATTENTION}),
    "llama, DoRA": ("llama", {"use_dora": True, "r": 4, "lora_alpha": 6, "target_modules": "all-linear"}),
    "llama, DoRA, patterns, rsLoRA": ("llama", {**PATTERNS, "use_dora": True}),
    "llama biases, DoRA": ("llama biases", {"use_dora": True, "target_modules": ATTENTION + ["down_proj"]}),
    "gpt2, DoRA": ("gpt2", {"use_dora": True, "r": 4, "target_modules": "all-linear", "fan_in_fan_out": True}),
    "phi3, DoRA": ("phi3", {"use_dora": True, "r": 4, "target_modules": ["qkv_proj", "down_proj"]}),
    "qwen3, DoRA": ("qwen3", {"use_dora": True, "target_modules": "all-linear"}),
    "gemma3, DoRA": ("gemma3", {"use_dora": True, "target_modules": ["q_proj", "o_proj", "gate_proj"]}),
    "llama, PiSSA": ("llama", {"init_lora_weights": "pissa", "r": 4, "lora_alpha": 6, "target_modules": "all-linear"}),
    "gpt2, PiSSA": ("gpt2", {"init_lora_weights": "pissa", "r": 4, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True}),
    "phi3, PiSSA": ("phi3", {"init_lora_weights": "pissa", "r": 4, "target_modules": ["qkv_proj", "down_proj"]}),
    "mixtral": ("mixtral", {"r": 4, "target_modules": ATTENTION}),
}


ENCODER = {"hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 44, "vocab_size": VOCABULARY,
           "max_position_embeddings": 64, "num_labels": 3}
# name: model_type, class, settings of the model, settings of LoraConfig; merged weights are compared
ENCODERS = {
    "bert, classes": ("bert", "SequenceClassification", ENCODER, {"task_type": "SEQ_CLS"}),
    "bert, DoRA": ("bert", "MaskedLM", ENCODER, {"target_modules": ["query", "dense"], "use_dora": True, "exclude_modules": "cls.*"}),
    "bert, bare": ("bert", "", ENCODER, {"target_modules": "all-linear", "task_type": "FEATURE_EXTRACTION"}),
    "roberta, classes": ("roberta", "SequenceClassification", ENCODER, {"task_type": "SEQ_CLS", "use_rslora": True}),
    "modernbert, classes": ("modernbert", "SequenceClassification", {**ENCODER, "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2},
                            {"task_type": "SEQ_CLS", "target_modules": ["Wqkv", "Wi", "Wo"]}),
}


def check_encoder(library, name, folder):
    """Merged weights here and there, and what PEFT reads of the export."""
    model_type, kind, settings, adapter = ENCODERS[name]
    path = {key: os.path.join(folder, key) for key in ("base", "adapter", "exported", "merged", "again")}
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(model_type, **settings)
    loader = getattr(transformers, f"AutoModelFor{kind}" if kind else "AutoModel")
    base = loader.from_config(config).float().eval()
    base.save_pretrained(path["base"])
    model = peft.get_peft_model(base, peft.LoraConfig(**adapter))
    randomize(model)
    model.save_pretrained(path["adapter"])
    here = library.make("model", "tsr_model_load_adapters", library.load(path["base"]), path["adapter"], None)
    library.export(here, path["exported"], format="peft")
    again = peft.PeftModel.from_pretrained(loader.from_pretrained(path["base"]), path["exported"])
    library.export(here, path["merged"], merged=1)
    wanted = model.merge_and_unload().state_dict()
    for what, found in (("merged", loader.from_pretrained(path["merged"])), ("PEFT of the export", again.merge_and_unload())):
        found = found.state_dict()
        error = max((found[key].double() - wanted[key].double()).abs().max().item() for key in wanted)
        if not error < 1e-5:
            raise Failed(f"{what} {error:.1e}")
        name += f" | {what} {error:.1e}"
    print(name, flush=True)


def random_model(name):
    model_type, settings = MODELS[name]
    torch.manual_seed(11)
    ids = {"bos_token_id": 1, "eos_token_id": VOCABULARY - 1, "pad_token_id": 0}
    config = transformers.AutoConfig.for_model(model_type, **{**ids, **settings})
    config._attn_implementation = config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 0.0 if model_type.startswith("gemma") and "norm" in name else 1.0 if "norm" in name or "ln_" in name else 0.0
            if parameter.dim() == 1:
                parameter.copy_((around + 0.3 * torch.randn_like(parameter)).mul(4096).round() / 4096)
            else:
                parameter.copy_(torch.randn_like(parameter) * 1.3 / parameter.shape[-1] ** 0.5)
    return model


def randomize(model):
    """Adapters and what trains besides, as if they had trained."""
    torch.manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            if "lora_magnitude" in name:
                parameter.mul_(1 + 0.2 * torch.randn_like(parameter))
            elif "lora_" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.7 / parameter.shape[-1] ** 0.5)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter).mul(4096).round() / 4096)


class Check:
    def __init__(self, library, name, folder):
        self.library, self.name, self.folder, self.failed = library, name, folder, False
        self.kind, self.settings = CASES[name]
        self.base_path, self.path = os.path.join(folder, "base"), os.path.join(folder, "adapter")
        random_model(self.kind).save_pretrained(self.base_path)
        config = peft.LoraConfig(task_type="CAUSAL_LM", **self.settings)
        self.single = peft.get_peft_model(random_model(self.kind), config).eval()
        randomize(self.single)
        self.single.save_pretrained(self.path)
        self.exact = self.opened(self.path)
        self.row = [name]
        self.base = library.load(self.base_path)
        self.model = library.make("model", "tsr_model_load_adapters", self.base, self.path, None)

    def opened(self, path, trainable=False):
        """In f64 by PEFT, of a folder over the base; every tensor of it must have a place."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = peft.PeftModel.from_pretrained(random_model(self.kind), path, is_trainable=trainable)
        for warning in said:
            if "missing" in str(warning.message) or "unexpected" in str(warning.message).lower():
                raise Failed(f"PEFT: {warning.message}")
        return model.double().eval()

    def note(self, text, holds):
        self.row.append(text if holds else f"{text} FAILED")
        self.failed = self.failed or not holds

    @staticmethod
    def ids(count):
        return np.random.default_rng(5).integers(2, VOCABULARY - 2, (2, count)).astype(np.int32)

    @staticmethod
    def theirs(model):
        with torch.no_grad():
            return model(input_ids=torch.tensor(Check.ids(COUNT), dtype=torch.long)).logits.double().numpy()

    def ours(self, model):
        ids = self.ids(COUNT)
        session = self.library.session(self.library.make("graph", "tsr_model_graph", model), "forward", batch=2, symbols=f"T={COUNT}")
        self.library.call("tsr_session_write_model", session, model)
        self.library.feed(session, "forward", tokens=ids, positions=np.tile(np.arange(COUNT, dtype=np.int32), (2, 1)))
        self.library.call("tsr_session_run", session, "forward")
        return self.library.fetch(session, "forward", "logits")

    def compare(self, what, found, wanted, limit=LIMIT):
        error = np.abs(found - wanted).max() / np.abs(wanted).max()
        self.note(f"{what} {error:.1e}", error <= limit)

    def logits(self):
        exact, single, ours = self.theirs(self.exact), self.theirs(self.single), self.ours(self.model)
        limit = max(LIMIT, 1.5 * np.abs(single - exact).max() / np.abs(exact).max())
        plain = self.ours(self.base)
        if np.abs(plain - exact).max() < 100 * limit * np.abs(exact).max():
            raise Failed("the adapter changes nothing")
        self.compare("in", ours, exact, limit)
        try:
            merged = self.library.make("model", "tsr_model_merge_adapters", self.model)
        except Failed as refusal:
            if "lora_bias" not in str(refusal):
                raise
            return self.row.append("no place for the bias")
        self.compare("merged", self.ours(merged), exact, limit)

    def exported(self):
        """What was read is written again."""
        path = os.path.join(self.folder, "exported")
        self.library.export(self.model, path, format="peft")
        self.compare("PEFT of the export", self.theirs(self.opened(path)), self.theirs(self.exact))

    def gguf(self):
        """Through a GGUF adapter the same logits, and from llama.cpp over the base."""
        base, path = os.path.join(self.folder, "base.gguf"), os.path.join(self.folder, "adapter.gguf")
        try:
            self.library.export(self.model, path, format="gguf", adapters=1)
            self.library.export(self.base, base, format="gguf", tokenizer=0)
        except Failed as refusal:
            return self.row.append(f"GGUF refused: {refusal}"[:100])
        ours = self.ours(self.model)
        again = self.library.make("model", "tsr_model_load_adapters", self.library.load(base), path, None)
        self.compare("GGUF", self.ours(again), ours)
        if not is_installed():
            return
        try:
            theirs = logits_of(base, self.ids(COUNT)[0].tolist(), path)
        except Refused as refusal:
            return self.note(f"llama.cpp: {refusal}"[:100], False)
        self.compare("llama.cpp", theirs, ours[0], GELU_LIMIT)

    def trained(self):
        """Five steps of SGD on both sides."""
        ids = self.ids(COUNT + 1)
        tokens, labels = np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])
        library = self.library
        loss = library.make("graph", "tsr_graph_token_loss", library.make("graph", "tsr_model_graph", self.model))
        step = library.make("graph", "tsr_graph_training", loss,
                            library.options(optimizer="sgd", momentum=0.0, clip_norm=0.0, weight_decay=0.0))
        session = library.session(step, "train", batch=2, symbols=f"T={COUNT}")
        library.call("tsr_session_write_model", session, self.model)
        positions = np.tile(np.arange(COUNT, dtype=np.int32), (2, 1))
        for number in range(STEPS):
            library.feed(session, "train", tokens=tokens, labels=labels, positions=positions, loss_scale=np.float32(1 / labels.size),
                         lr=np.float32(RATE), step=np.float32(number + 1))
            library.call("tsr_session_run", session, "train")
        for name in library.parameter_names(self.model):
            library.call("tsr_model_write", self.model, name, library.make("tensor", "tsr_session_read", session, name))
        path = os.path.join(self.folder, "trained")
        library.export(self.model, path, format="peft")
        here, loaded = self.ours(self.model), self.theirs(self.opened(path))
        self.compare("trained, loaded by PEFT", here, loaded)
        theirs = self.opened(self.path, trainable=True)
        rate = torch.optim.SGD([p for p in theirs.parameters() if p.requires_grad], lr=RATE)
        for _ in range(STEPS):
            rate.zero_grad()
            logits = theirs(input_ids=torch.tensor(tokens, dtype=torch.long)).logits
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels, dtype=torch.long).flatten()).backward()
            rate.step()
        there = self.theirs(theirs)
        if np.abs(there - self.theirs(self.exact)).max() < 1e-4 * np.abs(there).max():
            raise Failed("training changes nothing")
        self.compare("trained by PEFT", here, there, 1e-4)


def main():
    build, chosen = sys.argv[1], sys.argv[2:]
    library = Library(build)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    print(f"peft {peft.__version__}, transformers {transformers.__version__}, torch {torch.__version__}")
    failed = []
    for name in CASES:
        if chosen and name not in chosen and name.split(",")[0] not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                check = Check(library, name, folder)
                check.logits()
                check.exported()
                check.gguf()
                check.trained()
                if check.failed:
                    failed.append(name)
                print(" | ".join(check.row), flush=True)
            except (Failed, ValueError, RuntimeError) as error:
                failed.append(name)
                print(f"{name} | FAILED: {error}", flush=True)
    for name in ENCODERS:
        if chosen and name not in chosen and name.split(",")[0] not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                check_encoder(library, name, folder)
            except (Failed, ValueError, RuntimeError, KeyError) as error:
                failed.append(name)
                print(f"{name} | FAILED: {error}", flush=True)
    print(f"failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


main()
