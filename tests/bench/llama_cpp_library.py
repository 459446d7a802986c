"""llama.cpp's shared library through its C functions, with ctypes: that of llama-cpp-python (PyPI), built here with its native flags, of
xllamacpp (PyPI, a build for AVX2), or the file that LLAMA_CPP_LIBRARY names. Structures of parameters are opaque bytes: a place in them is
used only where it holds the default that the header states."""
import ctypes
import importlib.util
import os

import numpy as np

BYTES = 512  # of a structure of parameters, at least


class Parameters(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * BYTES)]

    def set(self, offset, default, value):
        place = ctypes.c_int32.from_buffer(self, offset)
        if place.value != default:
            raise SystemExit(f"llama.cpp's parameters have {place.value} at byte {offset}, wanted the default {default}: another version's layout")
        place.value = value


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


def library_path():
    if path := os.environ.get("LLAMA_CPP_LIBRARY"):
        return path
    for package, file in (("llama_cpp", "lib/libllama.so"), ("xllamacpp", "xllamacpp.abi3.so")):
        found = importlib.util.find_spec(package)
        if found and found.submodule_search_locations:  # a package: llama_cpp.py here is none
            return os.path.join(os.path.dirname(found.origin), file)
    raise SystemExit("no llama.cpp here: wanted llama-cpp-python, xllamacpp, or LLAMA_CPP_LIBRARY")


class LlamaCpp:
    """A model in a context of its own. `exact`: keys and values in f32, and no flash attention."""

    def __init__(self, path, context, batch, threads, exact=False):
        self.library, self.errors = ctypes.CDLL(library_path(), mode=ctypes.RTLD_GLOBAL), []
        self.log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(self._keep_errors)
        self._function("llama_log_set", None)(self.log, None)
        self._function("llama_backend_init", None)()
        model = self._function("llama_model_load_from_file", ctypes.c_void_p)(path.encode(), self._defaults("llama_model_default_params"))
        if model is None:
            raise SystemExit(f"llama.cpp does not open {os.path.basename(path)}: {(self.errors or ['without a reason'])[0]}")
        settings = self._defaults("llama_context_default_params")
        for offset, default, value in ((0, 512, context), (4, 2048, batch), (8, 512, batch), (28, 4, threads), (32, 4, threads)):
            settings.set(offset, default, value)
        for offset, default, value in ((52, -1, 0), (104, 1, 0), (108, 1, 0)) if exact else ():  # flash attention, types of keys and values
            settings.set(offset, default, value)
        self.model = ctypes.c_void_p(model)
        context = self._function("llama_init_from_model", ctypes.c_void_p)(self.model, settings)
        if context is None:
            raise SystemExit(f"llama.cpp makes no context: {(self.errors or ['without a reason'])[0]}")
        self.context = ctypes.c_void_p(context)
        vocabulary = ctypes.c_void_p(self._function("llama_model_get_vocab", ctypes.c_void_p)(self.model))
        self.tokens = self._function("llama_vocab_n_tokens", ctypes.c_int32)(vocabulary)
        self.batch = self._function("llama_batch_init", Batch)(batch, 0, 1)
        self.decode = self._function("llama_decode", ctypes.c_int32)
        self.logits = self._function("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float))

    def _keep_errors(self, level, text, data):
        if level == 4:  # GGML_LOG_LEVEL_ERROR
            self.errors.append(text.decode(errors="replace").strip())

    def _function(self, name, result):
        function = getattr(self.library, name)
        function.restype = result
        return function

    def _defaults(self, name):
        parameters = Parameters()
        function = getattr(self.library, name)  # the result's address is its hidden first argument
        function.restype = None
        function(ctypes.byref(parameters))
        return parameters

    def clear(self):
        memory = ctypes.c_void_p(self._function("llama_get_memory", ctypes.c_void_p)(self.context))
        self._function("llama_memory_clear", None)(memory, True)

    def set_adapter(self, path):
        adapter = self._function("llama_adapter_lora_init", ctypes.c_void_p)(self.model, path.encode())
        if adapter is None:
            raise SystemExit(f"llama.cpp does not open the adapter: {(self.errors or ['without a reason'])[0]}")
        set_adapters = self._function("llama_set_adapters_lora", ctypes.c_int32)
        if set_adapters(self.context, (ctypes.c_void_p * 1)(adapter), ctypes.c_size_t(1), (ctypes.c_float * 1)(1.0)):
            raise SystemExit("llama.cpp did not set the adapter")

    def _decode(self, tokens, start, every):
        """Logits of `tokens`, the first of which is at position `start`: of every one, or of the last."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, start + i, 1, every or i == len(tokens) - 1
            batch.seq_id[i][0] = 0
        if self.decode(self.context, batch) != 0:
            raise SystemExit("llama_decode failed")
        return [np.ctypeslib.as_array(self.logits(self.context, i), (self.tokens,)) for i in range(0 if every else len(tokens) - 1, len(tokens))]

    def rows(self, tokens):
        """The logits after each token of a text, f32 [tokens, vocabulary]."""
        return np.array(self._decode(tokens, 0, every=True), np.float32)

    def step(self, tokens, start):
        """The likeliest token after `tokens`, the first of which is at position `start`."""
        return int(self._decode(tokens, start, every=False)[0].argmax())
