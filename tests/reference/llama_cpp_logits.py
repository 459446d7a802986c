#!/usr/bin/env python3
"""llama_cpp_logits.py FILE IDS [ADAPTER]: the logits of llama.cpp after each token, f32 [tokens, vocabulary], on stdout.

IDS is a JSON list, ADAPTER a GGUF adapter of FILE. Needs llama-cpp-python and numpy; families.py and adapters.py run it."""
import ctypes
import json
import os
import sys

import numpy as np

path, ids = sys.argv[1], json.loads(sys.argv[2])
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what the library prints
import llama_cpp as ll  # noqa: E402

parameters = ll.llama_model_default_params()
parameters.n_gpu_layers = 0
model = ll.llama_model_load_from_file(path.encode(), parameters)
if not model:
    raise SystemExit("the file was not loaded")
settings = ll.llama_context_default_params()
settings.n_ctx = settings.n_batch = settings.n_ubatch = 64
settings.type_k = settings.type_v = 0  # f32
settings.flash_attn_type = 0
context = ll.llama_init_from_model(model, settings)
if not context:
    raise SystemExit("no context")
if len(sys.argv) > 3:
    adapter = ll.llama_adapter_lora_init(model, sys.argv[3].encode())
    if not adapter:
        raise SystemExit("the adapter was not loaded")
    if ll.llama_set_adapters_lora(context, (ll.llama_adapter_lora_p_ctypes * 1)(adapter), 1, (ctypes.c_float * 1)(1.0)):
        raise SystemExit("the adapter was not set")
batch = ll.llama_batch_init(len(ids), 0, 1)
batch.n_tokens = len(ids)
for i, token in enumerate(ids):
    batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
    batch.seq_id[i][0] = 0
if ll.llama_decode(context, batch) != 0:
    raise SystemExit("llama_decode failed")
size = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
for i in range(len(ids)):
    out.write(np.ctypeslib.as_array(ll.llama_get_logits_ith(context, i), (size,)).tobytes())
