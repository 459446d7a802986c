#!/usr/bin/env python3
"""llama_cpp_embeddings.py FILE IDS [pooled]: the vector of each token by llama.cpp, f32 [tokens, width], on stdout; with
"pooled" one of the text, as the file says, behind its Dense modules.

IDS is a JSON list; of texts in place of numbers: the vector of each text, pooled as the file says and scaled to length
1. Needs llama-cpp-python and numpy; dense_modules.py, encoders.py and sentence_embeddings.py run it."""
import json
import os
import sys

import numpy as np

path, ids = sys.argv[1], json.loads(sys.argv[2])
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what the library prints
import llama_cpp as ll  # noqa: E402

if ids and isinstance(ids[0], str):
    embedder = ll.Llama(path, embedding=True, n_ctx=512, n_batch=512, n_ubatch=512, n_threads=1, verbose=False)
    out.write(np.array([embedder.embed(text, normalize=True, truncate=True) for text in ids], np.float32).tobytes())
    out.flush()
    os._exit(0)
parameters = ll.llama_model_default_params()
parameters.n_gpu_layers = 0
model = ll.llama_model_load_from_file(path.encode(), parameters)
if not model:
    raise SystemExit("the file was not loaded")
settings = ll.llama_context_default_params()
settings.n_ctx = settings.n_batch = settings.n_ubatch = 64
settings.n_threads = settings.n_threads_batch = 1
settings.embeddings = True
is_pooled = sys.argv[3:] == ["pooled"]
settings.pooling_type = ll.LLAMA_POOLING_TYPE_UNSPECIFIED if is_pooled else ll.LLAMA_POOLING_TYPE_NONE
settings.flash_attn_type = 0
context = ll.llama_init_from_model(model, settings)
if not context:
    raise SystemExit("no context")
batch = ll.llama_batch_init(len(ids), 0, 1)
batch.n_tokens = len(ids)
for i, token in enumerate(ids):
    batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
    batch.seq_id[i][0] = 0
if ll.llama_encode(context, batch) != 0:
    raise SystemExit("llama_encode failed")
width = ll.llama_model_n_embd(model)
if is_pooled:
    out.write(np.ctypeslib.as_array(ll.llama_get_embeddings_seq(context, 0), (width,)).tobytes())
for i in range(0 if is_pooled else len(ids)):
    out.write(np.ctypeslib.as_array(ll.llama_get_embeddings_ith(context, i), (width,)).tobytes())
