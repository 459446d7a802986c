#!/usr/bin/env python3
"""tokenizer_folders.py LIBTESSERA.so [--folders N] [--seed S]: folders of a tokenizer whose side files (tokenizer_config.json,
special_tokens_map.json, added_tokens.json, config.json) are drawn at random, with a tokenizer.model, a sentencepiece.bpe.model
of XLM-R, a tokenizer.json or vocab.json with merges.txt: ids with what stands around texts, and EOS, against transformers' AutoTokenizer.

Texts leave out what transformers approximates of SentencePiece: a ▁ written out, spelt bytes, characters that a Unigram
model's table maps, and </s>, which it does not know as a control token where extra ones are named. Needs transformers, tokenizers, sentencepiece (PyPI); never part of `./dev test`."""
import ctypes
import json
import os
import pathlib
import random
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false")
import sentencepiece  # noqa: E402
import transformers  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers  # noqa: E402

from tokenizer_library import Tessera, make_strings  # noqa: E402

LIBRARY = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]


def argument(name, otherwise):
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else otherwise


def sentencepiece_models(folder):
    made = {}
    for name, options in (("bpe", {}), ("bpe trims", {"remove_extra_whitespaces": True}), ("bpe bare", {"add_dummy_prefix": False}),
                          ("unigram", {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc", "remove_extra_whitespaces": True})):
        given = dict(input=str(ROOT / "docs/guides/serving.md"), model_prefix=str(folder / "m"), vocab_size=400, model_type="bpe",
                     normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True,
                     hard_vocab_limit=False, character_coverage=1.0, minloglevel=9)
        sentencepiece.SentencePieceTrainer.train(**{**given, **options})
        made[name] = (folder / "m.model").read_bytes()
    return made


def byte_level_json():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.train_from_iterator([(ROOT / "docs/guides/serving.md").read_text()], trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<s>", "</s>", "<|endoftext|>"],
        show_progress=False))
    plain = json.loads(made.to_str())
    made.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 0)])
    return plain, json.loads(made.to_str())


def draw_folder(draw, folder, pieces, plain, post):
    """Writes the files; returns what they are and the texts' restriction."""
    kind, config, texts = draw.choice(["model", "model", "json", "post", "vocab", "xlm-r", "xlm-r"]), {}, lambda text: True
    model_type, size = draw.choice(["llama", "llama", "mistral", "phi3"]), 400
    if kind == "model":
        model = draw.choice(sorted(pieces))
        (folder / "tokenizer.model").write_bytes(pieces[model])
        llama = [] if model == "unigram" else ["LlamaTokenizer", "LlamaTokenizerFast"]
        config["tokenizer_class"] = draw.choice(llama + ["PreTrainedTokenizerFast", "TokenizersBackend"])
        if draw.random() < 0.5:
            config["legacy"] = draw.random() < 0.5
        texts = lambda text: not any(x in text for x in ("▁", "</s>")) and (model != "unigram" or text.isascii() and "<0x" not in text)
        size = sentencepiece.SentencePieceProcessor(model_proto=pieces[model]).get_piece_size()
    elif kind == "xlm-r":
        model_type, config["tokenizer_class"] = "xlm-roberta", draw.choice(["XLMRobertaTokenizer", "XLMRobertaTokenizerFast"])
        (folder / "sentencepiece.bpe.model").write_bytes(pieces["unigram"])
        size = sentencepiece.SentencePieceProcessor(model_proto=pieces["unigram"]).get_piece_size() + 2
    elif kind == "vocab":
        model_type, config["tokenizer_class"] = "gpt2", "GPT2Tokenizer"
        (folder / "vocab.json").write_text(json.dumps(plain["model"]["vocab"]))
        merges = [m if isinstance(m, str) else " ".join(m) for m in plain["model"]["merges"]]
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    else:
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        (folder / "tokenizer.json").write_text(json.dumps(plain if kind == "json" else post))
    if draw.random() < 0.8:
        config.update(bos_token="<s>", eos_token="</s>" if kind == "xlm-r" else draw.choice(["</s>", "<|a|>"]))
    for name in ("add_bos_token", "add_eos_token"):
        if draw.random() < 0.4:
            config[name] = draw.random() < 0.5
    added, files = ["<|a|>", "<|b|>", "<|c d|>"][:draw.randint(0, 3)], {}
    how = draw.choice(["decoder", "added", "map", "extra"])
    if added and how == "decoder":
        flag = lambda chance: draw.random() < chance
        config["added_tokens_decoder"] = {
            str(size + i): dict(content=text, lstrip=flag(.2), normalized=False, rstrip=flag(.2), single_word=flag(.1), special=flag(.6))
            for i, text in enumerate(added)}
        files["special_tokens_map.json"] = {"eos_token": "<|zz|>"}
    elif added and how == "extra":
        config["extra_special_tokens"] = added
    elif added:
        files["added_tokens.json"] = {text: size + i for i, text in enumerate(added)}
        if how == "map":
            files["special_tokens_map.json"] = {"eos_token": draw.choice(added + ["</s>"]), "additional_special_tokens": added[:1]}
    files["tokenizer_config.json"], files["config.json"] = config, {"model_type": model_type, "vocab_size": 512}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return f"{kind} {files}", texts


def main():
    draw, failed, seen = random.Random(argument("--seed", 1)), 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        pieces, (plain, post) = sentencepiece_models(pathlib.Path(scratch)), byte_level_json()
        while seen < argument("--folders", 100):
            folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
            what, keeps = draw_folder(draw, folder, pieces, plain, post)
            theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), Tessera(LIBRARY, folder)
            seen += 1
            wrong = 0
            strings = make_strings(150, seen, ["<|a|>", "<|b|>", "<|c d|>", "<s>", "<|a|>hi", " <|b|> x", "<|zz|>"])
            for text in filter(keeps, strings):
                data, count = text.encode(), ctypes.c_size_t()
                ids = (ctypes.c_int32 * (40 * len(data) + 16))()
                ours.call("tsr_tokenizer_encode", ours.handle, data, ctypes.c_size_t(len(data)), ctypes.c_uint32(5), ids,
                          ctypes.c_size_t(len(ids)), ctypes.byref(count))
                wanted = theirs(text)["input_ids"]
                wrong += list(ids[:count.value]) != list(wanted)
                if wrong == 1 and list(ids[:count.value]) != list(wanted):
                    print(f"  {text!r}\n    ours   {ids[:count.value]}\n    theirs {wanted}")
            ours.library.tsr_tokenizer_eos.argtypes = [ctypes.c_void_p]
            eos = ours.library.tsr_tokenizer_eos(ours.handle)
            if wrong or eos != (-1 if theirs.eos_token_id is None else theirs.eos_token_id):
                failed += 1
                print(f"{what}: {wrong} texts differ; EOS {eos}, theirs {theirs.eos_token_id}", flush=True)
    print(f"{seen} folders: {failed} differ")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
