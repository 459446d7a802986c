#!/usr/bin/env python3
"""llama_cpp_logits.py FILE IDS [ADAPTER]: the logits of llama.cpp after each token, f32 [tokens, vocabulary], on stdout.

IDS is a JSON list, ADAPTER a GGUF adapter of FILE. Keys and values in f32, no flash attention, one thread. Needs numpy and a
library of llama.cpp (tests/bench/llama_cpp_library.py). families.py and adapters.py run it with logits_of, in a process of its own:
llama.cpp ends the process of a file with which it does not agree."""
import json
import os
import subprocess
import sys

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from llama_cpp_library import LlamaCpp, library_path  # noqa: E402

GELU_LIMIT = 2e-3  # of logits: its gelu is a table of f16


class Refused(Exception):
    """llama.cpp's reason."""


def is_installed():
    try:
        return bool(os.environ.get("PYTHON_OF_LLAMA_CPP") or library_path())
    except SystemExit:
        return False


def logits_of(path, ids, *adapter):
    """[tokens, vocabulary], by this Python or the one that PYTHON_OF_LLAMA_CPP names."""
    python = os.environ.get("PYTHON_OF_LLAMA_CPP", sys.executable)
    done = subprocess.run([python, os.path.abspath(__file__), path, json.dumps(ids), *adapter], capture_output=True,
                          env={**os.environ, "GGML_NO_BACKTRACE": "1"})
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"ended with {done.returncode}"]
        reason = next((it for it in lines if "GGML_ASSERT" in it), lines[-1])
        raise Refused(" ".join(reason.split()).removeprefix("llama.cpp "))
    return np.frombuffer(done.stdout, np.float32).reshape(len(ids), -1)


def main():
    path, ids = sys.argv[1], json.loads(sys.argv[2])
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints
    llama = LlamaCpp(path, max(64, len(ids)), max(64, len(ids)), threads=1, exact=True)
    for adapter in sys.argv[3:]:
        llama.set_adapter(adapter)
    out.write(llama.rows(ids).tobytes())
    out.flush()
    os._exit(0)  # without the destructors of a library that another one contains


if __name__ == "__main__":
    main()
