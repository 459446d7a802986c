#!/usr/bin/env python3
"""families.py BUILD [FAMILY ...]: models of every family that transformers makes at random, against it.

For each: logits against transformers in f64, within 2e-5 of the largest logit or half as much again as transformers' own
f32 is off; gradients likewise within 1e-4 of the largest; 64 greedy tokens, with the cache on both sides. Small odd
shapes: 3 layers, 5 or 7 heads, grouped queries, head sizes unlike width/heads. Needs torch, transformers, safetensors
and numpy (PyPI); never part of `./dev test`."""
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from family_models import DELTA, GROUPS, LATENT, MODELS, NOT_CONVERTED, VOCABULARY, WITHOUT_CACHE
from tessera_c import F32, Failed, Library

PROMPT, TOKENS = 8, 64
LLAMA_CPP = os.environ.get("PYTHON_OF_LLAMA_CPP")  # of an environment with llama-cpp-python
CONVERTER = os.environ.get("LLAMA_CPP_SOURCES")  # llama.cpp's repository, for its converter
LLAMA_CPP_LIMIT = 2e-3  # its softmax, norms and caches have fewer bits


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


def models_with_images():
    """Models that also read images, at random: by name, the class and its configuration."""
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
    check = Check.__new__(Check)
    check.library = library
    ids = np.random.default_rng(5).integers(2, VOCABULARY - 6, (2, 24)).astype(np.int32)
    ours = check.run(ours_model, ids)
    with torch.no_grad():
        exact = model.double()(input_ids=torch.tensor(ids, dtype=torch.long)).logits.numpy()
    return np.abs(ours - exact).max() / np.abs(exact).max()


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


class Check:
    def __init__(self, library, name, folder):
        self.library, self.name, self.failures = library, name, []
        model_type, settings = MODELS[name]
        self.torch_model = random_model(model_type, settings)
        self.torch_model.save_pretrained(folder)
        self.exact = in_f64(random_model(model_type, settings))
        self.model = library.load(folder)
        self.row = [name]

    def note(self, text, holds):
        self.row.append(text if holds else f"{text} FAILED")
        if not holds:
            self.failures.append(text)

    def ids(self, count):
        return np.random.default_rng(5).integers(2, VOCABULARY - 2, (2, count)).astype(np.int32)

    def run(self, model, ids):
        graph = self.library.make("graph", "tsr_model_graph", model)
        session = self.library.session(graph, "forward", batch=2, symbols=f"T={ids.shape[1]}")
        self.library.call("tsr_session_write_model", session, model)
        positions = np.tile(np.arange(ids.shape[1], dtype=np.int32), (2, 1))
        self.library.feed(session, "forward", tokens=ids, positions=positions)
        self.library.call("tsr_session_run", session, "forward")
        return self.library.fetch(session, "forward", "logits")

    def logits(self, count):
        ids = self.ids(count)
        ours = self.run(self.model, ids)
        with torch.no_grad():
            with all_f64():
                exact = self.exact(torch.tensor(ids, dtype=torch.long)).logits.numpy()
            theirs = self.torch_model(torch.tensor(ids, dtype=torch.long)).logits.double().numpy()
        largest = np.abs(exact).max()
        limit = max(2e-5, 1.5 * np.abs(theirs - exact).max() / largest)
        error = np.abs(ours - exact).max() / largest
        self.note(f"{error:.1e} of {limit:.1e}", error <= limit)

    def exported(self, folder):
        """Exported again, transformers computes the same bits: these are the same weights."""
        self.library.export(self.model, folder)
        again = load_exact(folder)
        ids = torch.tensor(self.ids(24), dtype=torch.long)
        with torch.no_grad(), all_f64():
            error = (again(ids).logits - self.exact(ids).logits).abs().max().item()
        self.note(f"{error:g}", error == 0)

    def stacked(self, folder, wanted):
        """With experts stacked as hubs have them, and several blocks that predict further tokens, which are left out: the logits `wanted`."""
        experts = re.compile(r"(model\.layers\.\d+\.mlp\.experts\.)(\d+)\.(gate|up|down)_proj\.weight")
        found = {}
        tensors = {"mtp.fc.weight": torch.zeros(4, 4)}
        with open(os.path.join(folder, "config.json"), "r+") as file:
            config = {**json.load(file), "mtp_num_hidden_layers": 2}
            file.seek(0)
            json.dump(config, file)
            file.truncate()
        for name, value in load_file(os.path.join(folder, "model.safetensors")).items():
            match = experts.fullmatch(name)
            if match:
                found.setdefault(match[1], {}).setdefault(match[3], {})[int(match[2])] = value
            else:
                tensors[name] = value
        if not found:
            return
        for prefix, parts in found.items():
            gate, up, down = (torch.stack([parts[part][i] for i in sorted(parts[part])]) for part in ("gate", "up", "down"))
            tensors[prefix + "gate_up_proj"], tensors[prefix + "down_proj"] = torch.cat([gate, up], 1).contiguous(), down.contiguous()
        save_file(tensors, os.path.join(folder, "model.safetensors"))
        same = np.array_equal(wanted, self.run(self.library.load(folder), self.ids(24)))
        self.note("stacked: equal" if same else "stacked", same)

    def gguf(self, path):
        """Through a GGUF file, the same logits from us, and from llama.cpp where PYTHON_OF_LLAMA_CPP has it."""
        try:
            notes = self.library.export(self.model, path, format="gguf", tokenizer=0)["notes"]
        except Failed as refusal:
            self.row.append(f"refused: {refusal}")
            return
        count = 24
        ids = self.ids(count)
        ours, again = self.run(self.model, ids), self.run(self.library.load(path), ids)
        error = np.abs(again - ours).max() / np.abs(ours).max()
        self.note(f"{error:.1e}", error <= 2e-5)  # rows of rotations in another order
        if not LLAMA_CPP:
            return
        done = subprocess.run([LLAMA_CPP, os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_cpp_logits.py"), path,
                               json.dumps(ids[0].tolist())], capture_output=True)
        if done.returncode != 0 and any("will not open" in note for note in notes):
            self.row.append("llama.cpp will not open it")
            return
        if done.returncode != 0:
            return self.note("llama.cpp: " + (done.stderr.decode(errors="replace").strip().splitlines() or ["?"])[-1][:100], False)
        theirs = np.frombuffer(done.stdout, np.float32).reshape(count, VOCABULARY)
        error = np.abs(theirs - ours[0]).max() / np.abs(ours[0]).max()
        self.note(f"llama.cpp {error:.1e}", error <= LLAMA_CPP_LIMIT or any("llama.cpp" in note for note in notes))

    def converted(self, folder, path):
        """The folder through llama.cpp's own converter, against transformers."""
        done = subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_cpp_convert.py"), CONVERTER,
                               folder, path], capture_output=True)
        if done.returncode != 0:
            self.row.append("not converted: " + (done.stderr.decode(errors="replace").strip().splitlines() or ["?"])[-1][:90])
            return
        ids = self.ids(24)
        try:
            ours = self.run(self.library.load(path), ids)
        except Failed as refusal:
            return self.note(f"converted: {refusal}", False)
        with torch.no_grad():
            exact = self.exact(torch.tensor(ids, dtype=torch.long)).logits.numpy()
        error = np.abs(ours - exact).max() / np.abs(exact).max()
        if self.name in NOT_CONVERTED:
            self.row.append(f"converted without {NOT_CONVERTED[self.name]} {error:.1e}")
        else:
            self.note(f"converted {error:.1e}", error <= 2e-5)

    def gradients(self, folder):
        """One step of SGD, at a rate at which the gradient is much more than the parameter, on both sides; ours comes back
        as an export. Within 1e-4 of the largest gradient, or half as much again as transformers' own f32 is off."""
        count, rate = 24, 1024.0
        ids = self.ids(count + 1)
        tokens, labels = np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])
        loss = self.library.make("graph", "tsr_graph_token_loss", self.library.make("graph", "tsr_model_graph", self.model))
        step = self.library.make("graph", "tsr_graph_training", loss,
                                 self.library.options(optimizer="sgd", momentum=0.0, clip_norm=0.0, weight_decay=0.0))
        session = self.library.session(step, "train", batch=2, symbols=f"T={count}")
        self.library.call("tsr_session_write_model", session, self.model)
        self.library.feed(session, "train", tokens=tokens, labels=labels, positions=np.tile(np.arange(count, dtype=np.int32), (2, 1)),
                          loss_scale=np.float32(1 / labels.size), lr=np.float32(rate), step=np.float32(1))
        self.library.call("tsr_session_run", session, "train")
        for name in self.library.parameter_names(self.model):
            self.library.call("tsr_model_write", self.model, name, self.library.make("tensor", "tsr_session_read", session, name))
        self.library.export(self.model, folder)
        ours = load_exact(folder).state_dict()
        error = off = largest = 0.0
        with all_f64():
            gradients = [self.gradients_of(self.exact, tokens, labels)]
        gradients.append(self.gradients_of(self.torch_model, tokens, labels))
        for name, parameter in self.exact.named_parameters():
            exact, theirs = gradients[0][name], gradients[1][name].double()
            found = (parameter.detach() - ours[name]) / rate
            error, off = max(error, (found - exact).abs().max().item()), max(off, (theirs - exact).abs().max().item())
            largest = max(largest, exact.abs().max().item())
        limit = max(1e-4, 1.5 * off / largest)
        self.note(f"{error / largest:.1e} of {limit:.1e}", error / largest <= limit)

    @staticmethod
    def gradients_of(model, tokens, labels):
        model.zero_grad()
        logits = model(torch.tensor(tokens, dtype=torch.long)).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels, dtype=torch.long).flatten()).backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    def tokens(self):
        prompt = self.ids(PROMPT)[0].tolist()
        generator = self.library.generator(self.model, context=PROMPT + TOKENS, max_tokens=TOKENS)
        ours = self.library.continue_tokens(generator, prompt)
        self.exact.generation_config.eos_token_id = None  # all tokens are wanted
        with torch.no_grad(), all_f64():
            theirs = self.exact.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), max_new_tokens=TOKENS,
                                         do_sample=False, use_cache=self.name not in WITHOUT_CACHE)[0, PROMPT:].tolist()
        same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        self.note(f"{same} of {len(theirs)}", ours == theirs)


def main():
    build, chosen = sys.argv[1], sys.argv[2:]
    library = Library(build)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = []
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    print("model | logits: error of limit | a longer text | greedy tokens that agree | exported: logits that differ | through GGUF | gradients")
    for name in MODELS:
        if chosen and name.split(",")[0] not in chosen and name not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                check = Check(library, name, folder)
                check.logits(24)
                check.logits(48)
                check.tokens()
                check.exported(os.path.join(folder, "exported"))
                check.gguf(os.path.join(folder, "exported.gguf"))
                if CONVERTER:
                    check.converted(folder, os.path.join(folder, "converted.gguf"))
                wanted = check.run(check.model, check.ids(24))
                check.gradients(os.path.join(folder, "trained"))  # the model has a step of training then
                if name.startswith(("qwen3_5", "qwen3_next")):
                    check.stacked(folder, wanted)
                if check.failures:
                    failed.append(name)
                print(" | ".join(check.row), flush=True)
            except Failed as error:
                failed.append(name)
                print(f"{name} | FAILED: {error}", flush=True)
    for name, kind, config in models_with_images():
        if chosen and name.split(" ")[0] not in chosen:
            continue
        try:
            error = text_part_error(library, name, kind, config)
        except Failed as refusal:
            error = float("nan")
            print(f"{name}, the text part | FAILED: {refusal}")
        print(f"{name}, the text part | {error:.1e} of 2e-5")
        if not error <= 2e-5:
            failed.append(f"{name}, the text part")
    print(f"failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


main()
