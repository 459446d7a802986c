#!/usr/bin/env python3
"""exported_tokenizers.py BUILD VOCABULARY.gguf ...: tokenizers of exported folders, against ours.

For each vocabulary (llama.cpp's ggml-vocab-*.gguf, or any model's) a small model with it is exported as a Hugging Face folder
and as a GGUF file. transformers must give the ids and texts that ours gives, and so must we from the GGUF file; what is not
written is said. Needs transformers and numpy (PyPI); never part of `./dev test`."""
import ctypes
import os
import random
import sys
import tempfile

import transformers
from tessera_c import Library

TEXTS = ["Hello, world!", " leading and trailing ", "two  spaces   three\n\nlines\r\n\ttab", "I'll we've DON'T it's", "naïve café Ünïcödé",
         "中文字符 と 日本語 한국어", "1234567 3.14 1,000 x2", "a_b-c/d\\e (f) [g] {h} <i> #j $k %l", "🙂👩‍👩‍👧 emoji", "", "ein Wörterbuch: Straße",
         "def f(x):\n    return x ** 2  # square\n", "\u00a0nbsp \u2003em", "ÀÈÌ\u0300 e\u0301", "<0x41> <s> </s> <unk>"]


def texts():
    rng = random.Random(3)
    alphabet = "abc ABC  \n\t.,'!123éüß中日▁"
    return TEXTS + ["".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 60))) for _ in range(300)]


def encode(library, tokenizer, text, flags=0):
    data, count = text.encode(), ctypes.c_size_t()
    library.call("tsr_tokenizer_encode", tokenizer, data, ctypes.c_size_t(len(data)), ctypes.c_uint32(flags), None, ctypes.c_size_t(0), ctypes.byref(count))
    ids = (ctypes.c_int32 * max(1, count.value))()
    library.call("tsr_tokenizer_encode", tokenizer, data, ctypes.c_size_t(len(data)), ctypes.c_uint32(flags), ids, ctypes.c_size_t(count.value), ctypes.byref(count))
    return list(ids)[:count.value]


def compare(library, vocabulary, folder):
    tokenizer = library.make("tokenizer", "tsr_tokenizer_load", vocabulary) if os.path.isfile(vocabulary) else None
    size = library.c.tsr_tokenizer_vocabulary_size(ctypes.c_void_p(tokenizer.pointer))
    model = library.make("model", "tsr_model_new", f"llama:L=1,C=8,H=2,F=8,V={size},T=64,tied", None)
    library.call("tsr_model_set_tokenizer", model, tokenizer)
    results = []
    report = library.export(model, os.path.join(folder, "hf"))
    if "tokenizer.json" in report["files"]:
        theirs = transformers.AutoTokenizer.from_pretrained(os.path.join(folder, "hf"))
        wrong = [text for text in texts() if encode(library, tokenizer, text, 1) != theirs.encode(text, add_special_tokens=False)]
        both = theirs.encode("some text") in (encode(library, tokenizer, "some text", 3), encode(library, tokenizer, "some text", 1))
        results.append(f"transformers: {len(wrong)} of {len(texts())} texts differ{', ' + repr(wrong[0]) if wrong else ''}{'' if both else ', BOS or EOS differ'}")
        failed = bool(wrong) or not both
    else:
        results.append("; ".join(report["notes"]))
        failed = False
    try:
        library.export(model, os.path.join(folder, "m.gguf"), format="gguf")
        again = library.make("tokenizer", "tsr_tokenizer_load", os.path.join(folder, "m.gguf"))
        wrong = [text for text in texts() if encode(library, tokenizer, text, 1) != encode(library, again, text, 1)]
        results.append(f"gguf: {len(wrong)} differ")
        failed = failed or bool(wrong)
    except Exception as error:
        results.append(f"gguf: {error}")
    print(f"{os.path.basename(vocabulary)}: {' | '.join(results)}{' FAILED' if failed else ''}", flush=True)
    return not failed


def main():
    library = Library(sys.argv[1])
    transformers.logging.set_verbosity_error()
    good = True
    for vocabulary in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as folder:
            good = compare(library, vocabulary, folder) and good
    sys.exit(0 if good else 1)


main()
