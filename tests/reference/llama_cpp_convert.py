#!/usr/bin/env python3
"""llama_cpp_convert.py SOURCES FOLDER GGUF: llama.cpp's own converter (SOURCES: its repository, as in the source package of
llama-cpp-python) on a Hugging Face folder, in f32 and without a vocabulary, of which it knows only published ones."""
import json
import logging
import sys
from pathlib import Path

sources, folder, path = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
sys.path[:0] = [sources, f"{sources}/gguf-py"]
logging.disable(logging.WARNING)

import gguf  # noqa: E402
from conversion import get_model_class  # noqa: E402
from conversion.base import ModelBase, ModelType, get_model_architecture  # noqa: E402

parameters = ModelBase.load_hparams(folder, False)
if not (folder / "tokenizer.json").exists():  # whose size Gemma's takes
    vocabulary = {str(i): i for i in range(parameters["vocab_size"])}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []}))
architecture = get_model_architecture(parameters, ModelType.TEXT)
model_class = get_model_class(architecture)
model_class.set_vocab = lambda self: None
model_class(folder, gguf.LlamaFileType.ALL_F32, path).write()
