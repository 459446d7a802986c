#!/usr/bin/env python3
"""sentencepiece_models.py LIBTESSERA.so [--sets N] [--seed S]: tokenizer.model files of option sets of the SentencePiece
trainer that are drawn at random, trained on the documents of this project; ids and decoded text of adversarial strings
against the library `sentencepiece`, also with each vocabulary written as the GGUF file that converters make of it, where
that format can say what the model does.

Needs sentencepiece and gguf (PyPI); never part of `./dev test`."""
import pathlib
import random
import sys
import tempfile

from made_tokenizers import drawn_sentencepiece_options, train_sentencepiece, write_sentencepiece_gguf
from tokenizer_library import Tessera, make_strings

LIBRARY = sys.argv[1]


def argument(name, otherwise):
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else otherwise


SETS, SEED = argument("--sets", 100), argument("--seed", 1)


def count_differences(name, path, model, strings):
    try:
        ours = Tessera(LIBRARY, path)
    except ValueError as error:
        print(f"{name}: cannot be opened: {error}")
        return 1
    wrong = 0
    for text in strings:
        wanted = model.encode(text)
        try:
            got = ours.encode(text, 0)
            decoded = ours.decode(wanted)
        except ValueError as error:
            got, decoded = str(error), ""
        text_wanted = model.decode(wanted)
        if got == wanted and decoded == text_wanted:
            continue
        wrong += 1
        if wrong <= 2:
            print(f"  {text!r}\n    ours   {got} {decoded!r}\n    theirs {wanted} {text_wanted!r}")
    if wrong:
        print(f"{name}: {wrong} of {len(strings)} strings differ", flush=True)
    return int(wrong > 0)


def main():
    failed = compared = ggufs = trained = 0
    draw = random.Random(SEED)
    with tempfile.TemporaryDirectory() as scratch:
        while trained < SETS:
            options = drawn_sentencepiece_options(draw)
            folder = pathlib.Path(scratch) / str(compared)
            folder.mkdir()
            try:
                model = train_sentencepiece(folder, options)
            except (RuntimeError, OSError):  # the trainer declines what it was asked for
                continue
            finally:
                compared += 1
            trained += 1
            strings = make_strings(300, draw.random(), ["▁▁", "<ud>", "th", "  the  ", "x<ud>y", "\t"])
            failed += count_differences(f"{options}", folder, model, strings)
            gguf = folder / "vocabulary.gguf"
            if write_sentencepiece_gguf(folder / "tokenizer.model", gguf):
                ggufs += 1
                failed += count_differences(f"GGUF of {options}", gguf, model, strings)
    print(f"{trained} option sets and {ggufs} GGUF vocabularies of them: {failed} differ")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
