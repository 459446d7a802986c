#!/usr/bin/env python3
"""training_data.py TESSERA [--only TEMPLATE] [--verbose]: ids and masks of training data against TRL.

Makes a byte-level tokenizer with the control tokens of several families, rows of every kind, and asks `tessera data` for
their tokens. The same rows go through the functions that TRL's SFT, DPO and KTO trainers tokenise with (taken out of its
source, so that torch is not needed) and through its pack_dataset. Ids, masks and packed rows must be equal. Exits with 1
where not. Needs trl (1.16.0), transformers, datasets and jinja2."""
import argparse
import ast
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

import tokenizers
import transformers

TEMPLATES = ["qwen3", "llama3", "gemma", "phi3", "deepseekv3", "qwen2_5", "qwen3_training", "llama3_training"]
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
           "<|eot_id|>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>",
           "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>"]
ENDS = {"qwen": "<|im_end|>", "llama": "<|eot_id|>", "gemma": "<end_of_turn>", "phi": "<|end|>", "deepseek": "<｜end▁of▁sentence｜>"}
TEXT = "What color is the sky? It is blue. The sky is green where grass grows, and nobody said why the answer is blue or green. " * 20


def trl_root():
    return pathlib.Path(importlib.util.find_spec("trl").origin).parent


def nested(path, *names):
    """Functions inside the functions of a module of TRL, by name; of several the first."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name in names and node.name not in found:
            found[node.name] = ast.unparse(node)
    return found


class Quiet:
    def warning_once(self, *_):
        pass


def functions(trainer, *names):
    spec = importlib.util.spec_from_file_location("trl_data_utils", trl_root() / "data_utils.py")
    utils = importlib.util.module_from_spec(spec)
    utils.__package__ = "trl"
    spec.loader.exec_module(utils)
    space = {**vars(utils), "logger": Quiet(), "json": json}
    for source in nested(trl_root() / "trainer" / f"{trainer}_trainer.py", *names).values():
        exec(source, space)
    return space


def make_tokenizer(folder, end):
    """A byte-level BPE with a few hundred merges."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator([TEXT], tokenizers.trainers.BpeTrainer(
        vocab_size=500, special_tokens=SPECIAL, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token=end, pad_token="<|endoftext|>")
    fast.save_pretrained(folder)
    return fast


def message(role, content):
    return {"role": role, "content": content}


ASK, BLUE, GREEN = message("user", "What color is the sky?"), message("assistant", "It is blue."), message("assistant", "It is green.")
TURNS = [ASK, BLUE, message("user", "Why?"), message("assistant", "Nobody said why.")]
ROWS = {
    "text": [{"text": "The sky is blue."}, {"text": "é 日本"}],
    "prompt_completion": [{"prompt": "The sky is", "completion": " blue."}, {"prompt": "The sky is b", "completion": "lue"},
                          {"prompt": "The sky ", "completion": "is"}, {"prompt": "", "completion": "x"}],
    "prompt_completion messages": [{"prompt": [ASK], "completion": [BLUE]}, {"prompt": TURNS[:3], "completion": TURNS[3:]}],
    "messages": [{"messages": [ASK, BLUE]}, {"messages": TURNS}],
    "preference": [{"prompt": "The sky is", "chosen": " blue.", "rejected": " green."}, {"prompt": "The sky is b", "chosen": "lue", "rejected": "ad"},
                   {"chosen": "The sky is blue.", "rejected": "The sky is green."}],
    "preference messages": [{"prompt": [ASK], "chosen": [BLUE], "rejected": [GREEN]}, {"chosen": [ASK, BLUE], "rejected": [ASK, GREEN]}],
    "unpaired": [{"prompt": "The sky is", "completion": " blue.", "label": True}, {"prompt": "The sky is", "completion": " green.", "label": False}],
    "unpaired messages": [{"prompt": [ASK], "completion": [BLUE], "label": True}],
}


def ours(tessera, model, template, rows, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
        file.flush()
        run = subprocess.run([tessera, "data", file.name, "--model", model, "--template", template, "--seq", "512", "--examples", "1000",
                              "--json", "--quiet", *options], capture_output=True, text=True)
    if run.returncode != 0:
        return run.stderr.strip()
    return [(each["ids"], each["trained"]) for each in json.loads(run.stdout)["first"]]


def theirs(kind, rows, tokenizer, template, part):
    tokenizer.chat_template = template
    end = {"eos_token": tokenizer.eos_token}
    made = []
    for row in rows:
        row = json.loads(json.dumps(row))
        if kind.startswith("preference"):
            space = functions("dpo", "add_eos", "tokenize_fn")
            if "prompt" not in row:
                row = space["extract_prompt"](row)
            if not space["is_conversational"](row):
                row = space["add_eos"](row, **end)
            got = space["tokenize_fn"](row, tokenizer)
            for answer in ("chosen_ids", "rejected_ids"):
                made.append((got["prompt_ids"] + got[answer], [0] * len(got["prompt_ids"]) + [1] * len(got[answer])))
            continue
        if kind.startswith("unpaired"):
            space = functions("kto", "add_eos", "tokenize_fn")
            if not space["is_conversational"](row):
                row = space["add_eos"](row, **end)
            got = space["tokenize_fn"](row, tokenizer)
            made.append((got["prompt_ids"] + got["completion_ids"], [0] * len(got["prompt_ids"]) + [1] * len(got["completion_ids"])))
            continue
        space = functions("sft", "add_eos", "tokenize_fn")
        if not space["is_conversational"](row):
            row = space["add_eos"](row, dataset_text_field="text", **end)
        got = space["tokenize_fn"](row, tokenizer, "text", part == "assistant", template)
        count = len(got["input_ids"])
        masks = [got.get("assistant_masks", [1] * count)]
        if part != "all" and kind.startswith("prompt"):
            masks.append(got["completion_mask"])
        made.append((list(got["input_ids"]), [int(all(bits)) for bits in zip(*masks)]))
    return made


def without_tails(example, end):
    """A part that {% generation %} marks ends with its end of turn here: what the template writes behind it, such as a line's end,
    is not learnt (docs/guides/training-data.md)."""
    ids, marks = example[0], list(example[1])
    is_tail = False
    for i in range(1, len(ids)):
        is_tail = bool(marks[i]) and (is_tail or (ids[i - 1] == end and bool(marks[i - 1])))
        if is_tail:
            marks[i] = 0
    return ids, marks


def check_packing(tessera, model, template, tokenizer):
    import datasets
    utils = functions("sft")
    rows = [{"text": TEXT[:length]} for length in (5, 40, 90, 17, 33, 200, 64, 8, 21, 150)]
    tokens = theirs("text", rows, tokenizer, "", "all")
    different = 0
    for strategy in ("bfd", "bfd_split"):
        packed = utils["pack_dataset"](datasets.Dataset.from_dict({"input_ids": [ids for ids, _ in tokens]}), 32, strategy)
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
            file.flush()
            info = json.loads(subprocess.run([tessera, "data", file.name, "--model", model, "--seq", "32", "--packing", strategy, "--json",
                                              "--quiet"], capture_output=True, text=True, check=True).stdout)
        wanted = (len(packed), sum(len(ids) for ids in packed["input_ids"]))
        found = (info["train_samples"], info["packed_tokens"])
        print(f"packing {strategy}: rows, tokens {found}" + ("" if found == wanted else f", TRL has {wanted}"))
        different += found != wanted
    return different


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--only")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    compared = different = 0
    for name in TEMPLATES:
        path = trl_root() / "chat_templates" / f"{name}.jinja"
        if args.only and args.only != name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            end = next(text for family, text in ENDS.items() if name.startswith(family))
            tokenizer = make_tokenizer(folder, end)
            model = f"{folder}/m.tsr"
            subprocess.run([args.tessera, "new", f"llama:L=1,C=16,H=2,F=16,V={len(tokenizer)},T=512", "--tokenizer", folder, "-o", model],
                           check=True, capture_output=True)
            for kind, rows in ROWS.items():
                parts = ["all"] if kind.split()[0] == "text" or kind == "messages" else ["auto"]
                if kind.startswith("prompt"):
                    parts.append("all")
                if name.endswith("_training") and kind.endswith("messages") and kind[0] in "mp" and "preference" not in kind:
                    parts.append("assistant")
                for part in parts:
                    wanted = theirs(kind, rows, tokenizer, path.read_text(), part)
                    found = ours(args.tessera, model, str(path), rows, "--mask", part)
                    if part == "assistant":
                        wanted = [without_tails(each, tokenizer.eos_token_id) for each in wanted]
                    compared += len(wanted)
                    if found == wanted:
                        continue
                    if isinstance(found, str):
                        different += len(wanted)
                        print(f"{name} {kind} {part}: {found}")
                        continue
                    for i, (ours_, theirs_) in enumerate(zip(found, wanted)):
                        if ours_ == theirs_:
                            continue
                        different += 1
                        print(f"{name} {kind} {part} example {i}: " + ("ids" if ours_[0] != theirs_[0] else "masks") + " differ")
                        if args.verbose:
                            for ids, marks in (ours_, theirs_):
                                print("   ", "".join(f"[{t}]" if m else t for t, m in zip(tokenizer.convert_ids_to_tokens(ids), marks)))
            if name == TEMPLATES[0]:
                different += check_packing(args.tessera, model, str(path), tokenizer)
    print(f"{compared} examples compared, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
