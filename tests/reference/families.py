#!/usr/bin/env python3
"""families.py BUILD [FAMILY ...] [--configurations N] [--lengths T,T,...] [--gradients T,T,...]: the table of all families that
transformers makes at random, against it.

Each line is a model: the named ones of family_models.py, and of each family N more that family_configurations.py draws (the table has 8;
0 unless told). Of each, at every length in its context: logits against transformers in f64, within 2e-5 of the largest logit or half as
much again as transformers' own f32 is off, tokens behind a router's tie of 1e-6 set aside and counted; gradients as
exact_gradients.py says. And 64 greedy tokens; the folder that we export, in transformers; the GGUF file that we export, here with the
same tokens and, where it is installed, in llama.cpp. Small odd shapes: grouped queries, head sizes unlike width/heads, windows shorter
than texts. Needs torch, transformers, safetensors and numpy, and xllamacpp or llama-cpp-python for llama.cpp (PyPI); never part
of `./dev test`."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from exact_gradients import TIE, Gradients, neighbour
from exact_models import all_f64, gelu_of_f16, in_f64, load_exact, random_model, router_margins
from family_configurations import drawn
from family_models import MODELS, NOT_CONVERTED, VOCABULARY
from image_text_models import models_with_images, text_part_error
from llama_cpp_logits import Refused, is_installed, logits_of
from tessera_c import Failed, Library

PROMPT, TOKENS, EXPORTED = 8, 64, 24
LIMIT = 2e-5  # of logits, of the largest one
LENGTHS = "1,2,63,64,65,129"  # 64 are a chunk of the recurrent layers, 129 are more than all windows
CONVERTER = os.environ.get("LLAMA_CPP_SOURCES")  # llama.cpp's repository, for its converter
COLUMNS = "model | logits: error of limit | gradients: error of limit | greedy tokens | export: logits that differ | GGUF | llama.cpp"


def random_ids(count, seed=5):
    return np.random.default_rng(seed).integers(2, VOCABULARY - 2, (2, count)).astype(np.int32)


def depends_on_length(settings):
    """Whether rotations of a long text's first tokens are others than those of a short one."""
    return (settings.get("rope_parameters") or {}).get("rope_type") in ("longrope", "dynamic")


class Check:
    def __init__(self, library, name, model_type, settings, folder):
        self.library, self.name, self.failures, self.ties = library, name, [], 0
        self.settings, self.folder = settings, folder
        self.torch_model = random_model(model_type, settings)
        self.torch_model.save_pretrained(folder)
        self.exact = in_f64(random_model(model_type, settings))
        self.model = library.load(folder)
        self.row = [name]

    def note(self, text, holds):
        self.row.append(text if holds else f"{text} FAILED")
        if not holds:
            self.failures.append(text)

    def exact_logits(self, ids):
        """f64 [B, T, V]; and [B, T], whether a token is before the first tie of a router."""
        margins = []
        with torch.no_grad(), all_f64(), router_margins(margins):
            exact = self.exact(torch.tensor(ids, dtype=torch.long)).logits.numpy()
        tied = np.zeros(ids.shape, bool)
        for margin in margins:
            tied |= (margin < TIE).numpy().reshape(ids.shape)
        self.ties += int(tied.sum())
        return exact, np.cumsum(tied, 1) == 0

    def f32_logits(self, ids, seed=0):
        """transformers' own; with a seed those of a neighbour."""
        with torch.no_grad():
            model = neighbour(self.torch_model, seed) if seed else self.torch_model
            return model(torch.tensor(ids, dtype=torch.long)).logits.double().numpy()

    def logits(self, lengths):
        """The worst of all lengths. A token's logits in a text are those in any longer one, except in a few families. Where one pass of
        transformers in f32 does not suffice as the measure, ten more with weights moved by a unit of the last place (exact_gradients.py)."""
        ids, found, worst = random_ids(max(lengths)), {}, (0.0, 0.0, 0.0, 0)
        for count in sorted(lengths, reverse=True):
            if not found or depends_on_length(self.settings):
                exact, is_clear = self.exact_logits(ids[:, :count])
                theirs = self.f32_logits(ids[:, :count])
            found[count] = self.library.logits(self.model, ids[:, :count])
            clear, wanted = is_clear[:, :count], exact[:, :count]
            if not clear.any():
                continue
            largest = np.abs(wanted).max()
            error, off = (np.abs(it[:, :count] - wanted)[clear].max() / largest for it in (found[count], theirs))
            for seed in range(1, 11):
                if error > max(LIMIT, 1.5 * off):
                    off = max(off, np.abs(self.f32_logits(ids[:, :count], seed) - wanted)[clear].max() / largest)
            limit = max(LIMIT, 1.5 * off)
            worst = max(worst, (error / limit, error, limit, count))
        share, error, limit, count = worst
        self.limit = limit
        self.note(f"{error:.1e} of {limit:.1e}" + (f" at T={count}" if share > 1 else ""), share <= 1)

    def gradients(self, lengths):
        gradients, worst = Gradients(self.library, self.folder, self.exact, self.torch_model), (0.0, "", 0.0, 0)
        with tempfile.TemporaryDirectory() as folder:
            for count in lengths:
                compared = None
                for seed in range(5, 10):  # other texts instead of one with a tie
                    compared = compared or gradients.compare(random_ids(count + 1, seed), folder)
                    self.ties += not compared
                worst = max(worst, (*(compared or (np.inf, "only texts with ties", np.inf)), count))
        share, name, error, count = worst
        self.note(f"{share:.2f}" + (f" ({error:.1e} of {name}'s largest at T={count})" if share > 1 else ""), share <= 1)

    def continued(self, model):
        return self.library.continue_tokens(self.library.generator(model, context=PROMPT + TOKENS, max_tokens=TOKENS), random_ids(PROMPT)[0].tolist())

    def tokens(self):
        """Each token the likeliest of exact logits after those before it; where the two likeliest are within the limit of
        logits, any of them."""
        self.greedy = self.continued(self.model)
        if depends_on_length(self.settings):
            return self.generated()
        text = np.array([random_ids(PROMPT)[0].tolist() + self.greedy], np.int32)
        exact, is_clear = self.exact_logits(text[:, :-1])
        rows, clear = exact[0, PROMPT - 1:], is_clear[0, PROMPT - 1:]
        behind = (rows.max(-1) - rows[np.arange(len(self.greedy)), self.greedy]) / np.abs(rows).max()
        wrong, near = int((clear & (behind > LIMIT)).sum()), int((clear & (behind > 0) & (behind <= LIMIT)).sum())
        self.ties += near
        self.note(f"{len(self.greedy) - wrong} of {TOKENS}", wrong == 0 and len(self.greedy) == TOKENS)

    def generated(self):
        """The tokens of transformers' own generation, whose cached keys stay as they were rotated when the text was shorter."""
        self.exact.generation_config.eos_token_id = None  # all tokens are wanted
        prompt = torch.tensor(random_ids(PROMPT)[:1], dtype=torch.long)
        with torch.no_grad(), all_f64():
            theirs = self.exact.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=TOKENS, do_sample=False)[0, PROMPT:].tolist()
        same = sum(a == b for a, b in zip(self.greedy, theirs))
        self.note(f"{same} of {TOKENS}", self.greedy == theirs)

    def exported(self, folder):
        """Exported again, transformers computes the same bits: these are the same weights."""
        self.library.export(self.model, folder)
        again = load_exact(folder)
        ids = torch.tensor(random_ids(EXPORTED), dtype=torch.long)
        with torch.no_grad(), all_f64():
            error = (again(ids).logits - self.exact(ids).logits).abs().max().item()
        self.note(f"{error:g}", error == 0)

    def stacked(self, folder):
        """With experts stacked as hubs have them, and several blocks that predict further tokens, which are left out: the same logits."""
        wanted = self.library.logits(self.model, random_ids(EXPORTED))
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
        same = np.array_equal(wanted, self.library.logits(self.library.load(folder), random_ids(EXPORTED)))
        self.note("stacked: equal" if same else "stacked", same)

    def gguf(self, path):
        """Through a GGUF file, the same logits and tokens from us, and the same logits from llama.cpp."""
        try:
            notes = self.library.export(self.model, path, format="gguf", tokenizer=0)["notes"]
        except Failed as refusal:
            return self.row.extend([f"refused: {refusal}", "-"])
        ids, twin = random_ids(EXPORTED), self.library.load(path)
        ours, again = self.library.logits(self.model, ids), self.library.logits(twin, ids)
        error = np.abs(again - ours).max() / np.abs(ours).max()
        same = self.continued(twin) == self.greedy
        self.note(f"{error:.1e}" + ("" if same else ", other tokens"), same and error <= LIMIT)  # rows of rotations in another order
        if not is_installed():
            return self.row.append("not installed")
        try:
            theirs = logits_of(path, ids[0].tolist())
        except Refused as refusal:
            is_known = any(said in note for note in notes for said in ("will not open", "may not open", "will not run")) or "unknown model architecture" in str(refusal)
            return self.note(str(refusal).removeprefix("does not open exported.gguf: llama_model_load: error loading model: "), is_known)
        error = np.abs(theirs - ours[0]).max() / np.abs(ours[0]).max()
        said = [note for note in notes if "llama.cpp" in note]
        limit = max(2 * self.limit, 1.5 * self.error_of_gelu(ids[:1]))  # of two programs, each with its error
        self.note(f"{error:.1e}" + (f" ({said[0]})" if said and error > limit else ""), error <= limit or bool(said))

    def error_of_gelu(self, ids):
        """By how much transformers' logits change with the gelu that llama.cpp has, of the largest one; 0: another activation."""
        ids = torch.tensor(ids, dtype=torch.long)
        with torch.no_grad(), all_f64():
            exact = self.exact(ids).logits
            with gelu_of_f16():
                changed = self.exact(ids).logits
        return ((changed - exact).abs().max() / exact.abs().max()).item()

    def converted(self, path):
        """The folder through llama.cpp's own converter, against transformers."""
        done = subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_cpp_convert.py"), CONVERTER,
                               self.folder, path], capture_output=True)
        if done.returncode != 0:
            self.row.append("not converted: " + (done.stderr.decode(errors="replace").strip().splitlines() or ["?"])[-1][:90])
            return
        ids = random_ids(EXPORTED)
        try:
            ours = self.library.logits(self.library.load(path), ids)
        except Failed as refusal:
            return self.note(f"converted: {refusal}", False)
        exact = self.exact_logits(ids)[0]
        error = np.abs(ours - exact).max() / np.abs(exact).max()
        if self.name in NOT_CONVERTED:
            self.row.append(f"converted without {NOT_CONVERTED[self.name]} {error:.1e}")
        else:
            self.note(f"converted {error:.1e}", error <= LIMIT)


def models(chosen, configurations):
    """Named models in their order, and behind each family's last one those that are drawn."""
    by_family = {}
    for name, (model_type, settings) in MODELS.items():
        by_family.setdefault(name.split(",")[0], []).append((name, model_type, settings))
    for family, named in by_family.items():
        for name, model_type, settings in named + list(drawn(family, configurations)):
            if not chosen or family in chosen or name in chosen:
                yield name, model_type, settings


def check_model(library, options, name, model_type, settings):
    """The line of the table, what failed, and the number of ties."""
    with tempfile.TemporaryDirectory() as folder:
        check = Check(library, name, model_type, settings, folder)
        lengths, trained = ([it for it in chosen if it <= settings.get("max_position_embeddings", it)]
                            for chosen in (options.lengths, options.gradients))
        check.logits(lengths)
        check.gradients(trained)
        check.tokens()
        check.exported(os.path.join(folder, "exported"))
        check.gguf(os.path.join(folder, "exported.gguf"))
        if CONVERTER:
            check.converted(os.path.join(folder, "converted.gguf"))
        if name.startswith(("qwen3_5", "qwen3_next")):
            check.stacked(folder)
        return " | ".join(check.row), check.failures, check.ties


def main():
    parser, lengths = argparse.ArgumentParser(), lambda text: [int(it) for it in text.split(",")]
    parser.add_argument("build"), parser.add_argument("families", nargs="*"), parser.add_argument("--configurations", type=int, default=0)
    parser.add_argument("--lengths", type=lengths, default=LENGTHS), parser.add_argument("--gradients", type=lengths, default=LENGTHS)
    options = parser.parse_args()
    library, failed, count, ties, begin = Library(options.build), [], 0, 0, time.time()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, T = {options.lengths}, of gradients {options.gradients}\n{COLUMNS}")
    for name, model_type, settings in models(options.families, options.configurations):
        count += 1
        try:
            row, failures, found = check_model(library, options, name, model_type, settings)
            ties += found
        except Failed as error:
            row, failures = f"{name} | FAILED: {error}", [str(error)]
        print(row, flush=True)
        if failures:
            failed.append(name)
            print(f"  {model_type} {json.dumps(settings)}", flush=True)
    for name, kind, config in models_with_images():
        if options.families and name.split(" ")[0] not in options.families:
            continue
        count += 1
        try:
            error = text_part_error(library, name, kind, config)
        except Failed as refusal:
            error = float("nan")
            print(f"{name}, the text part | FAILED: {refusal}")
        print(f"{name}, the text part | {error:.1e} of {LIMIT:.0e}", flush=True)
        if not error <= LIMIT:
            failed.append(f"{name}, the text part")
    print(f"{count} models in {time.time() - begin:.0f} s; ties set aside: {ties}; failed: {'; '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


main()
