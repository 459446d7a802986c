"""The C API of a build, for scripts that compare: calls by name, handles that free themselves, numpy arrays in and out."""
import ctypes
import json
import os
import time

import numpy as np

F32 = np.dtype("float32")
TYPES = {"float32": 0, "float64": 1, "int32": 4, "int64": 5}  # tsr_dtype


class Piece(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("kind", ctypes.c_int32), ("finish", ctypes.c_int32),
                ("token", ctypes.c_int32), ("text", ctypes.c_char_p), ("text_size", ctypes.c_size_t)]


class Entry(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("graph", ctypes.c_void_p), ("plan", ctypes.c_void_p)]


class Event(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("kind", ctypes.c_int32), ("finish", ctypes.c_int32), ("request", ctypes.c_int64),
                ("index", ctypes.c_int32), ("token", ctypes.c_int32), ("text", ctypes.c_char_p), ("text_size", ctypes.c_size_t),
                ("details", ctypes.c_char_p), ("details_size", ctypes.c_size_t)]


TOKEN, PENDING, END = 0, 1, 2  # TSR_EVENT_*


class Failed(Exception):
    """A status of the library, with its message."""


class Handle:
    def __init__(self, library, kind, pointer):
        self.library, self.kind, self.pointer = library, kind, pointer

    def __del__(self):
        if self.pointer:
            function = getattr(self.library.c, f"tsr_{self.kind}_free")
            function.restype = None
            function(ctypes.c_void_p(self.pointer))


class Library:
    def __init__(self, build):
        self.c = ctypes.CDLL(os.path.join(build, "capi", "libtessera.so"))
        for name in ("tsr_status_message", "tsr_text_data"):
            getattr(self.c, name).restype = ctypes.c_char_p
        for name in ("tsr_tensor_data", "tsr_tensor_writable"):
            getattr(self.c, name).restype = ctypes.c_void_p
        self.c.tsr_tensor_dims.restype = ctypes.POINTER(ctypes.c_int64)
        self.runtime = self.make("runtime", "tsr_runtime_new", None)

    @staticmethod
    def _argument(value):
        if isinstance(value, Handle):
            return ctypes.c_void_p(value.pointer)
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bool) or isinstance(value, int):
            return ctypes.c_int64(value)
        if isinstance(value, float):
            return ctypes.c_double(value)
        return value

    def call(self, name, *arguments):
        function = getattr(self.c, name)
        function.restype = ctypes.c_void_p
        if status := function(*map(self._argument, arguments)):
            message = self.c.tsr_status_message(ctypes.c_void_p(status)).decode(errors="replace")
            self.c.tsr_status_free(ctypes.c_void_p(status))
            raise Failed(message)

    def make(self, kind, name, *arguments):
        pointer = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(pointer))
        return Handle(self, kind, pointer.value)

    def text(self, name, *arguments):
        text = self.make("text", name, *arguments)
        return self.c.tsr_text_data(ctypes.c_void_p(text.pointer)).decode()

    def json(self, name, *arguments):
        return json.loads(self.text(name, *arguments))

    def options(self, **values):
        options = self.make("options", "tsr_options_new")
        for key, value in values.items():
            kind = "str" if isinstance(value, str) else "f64" if isinstance(value, float) else "i64"
            self.call(f"tsr_options_set_{kind}", options, key, value)
        return options

    def tensor(self, array):
        array = np.asarray(array, order="C")
        dims = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
        kind = TYPES[array.dtype.name]
        tensor = self.make("tensor", "tsr_tensor_new", ctypes.c_int32(kind), ctypes.c_int32(array.ndim), dims)
        ctypes.memmove(self.c.tsr_tensor_writable(ctypes.c_void_p(tensor.pointer)), array.ctypes.data, array.nbytes)
        return tensor

    def array(self, tensor, dtype=F32):
        pointer = ctypes.c_void_p(tensor.pointer)
        rank = self.c.tsr_tensor_rank(pointer)
        shape = tuple(self.c.tsr_tensor_dims(pointer)[i] for i in range(rank))
        data = ctypes.string_at(self.c.tsr_tensor_data(pointer), int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        return np.frombuffer(data, dtype).reshape(shape).copy()

    # ---- models

    def load(self, path):
        return self.make("model", "tsr_model_load", path)

    def parameter_names(self, model):
        count, size, name = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
        self.call("tsr_model_parameter_count", model, ctypes.byref(count))
        names = []
        for i in range(count.value):
            self.call("tsr_model_parameter_name", model, ctypes.c_size_t(i), name, ctypes.c_size_t(256), ctypes.byref(size))
            names.append(name.value.decode())
        return names

    def export(self, model, path, **options):
        """A model in memory as a Hugging Face folder or GGUF file; the report."""
        work = self.make("work", "tsr_export_begin_for_model", None, model, path, self.options(**options))
        done = ctypes.c_int32()
        while not done.value:
            self.call("tsr_work_step", work, ctypes.byref(done))
        return self.json("tsr_export_finish", work)

    def session(self, graph, entry, devices="cpu:1", **options):
        """A session of one entry."""
        devices = self.make("devices", "tsr_devices_open", self.runtime, devices)
        plan = self.make("plan", "tsr_plan_new_for_graph", devices, graph, self.options(**options))
        described = Entry(ctypes.sizeof(Entry), entry.encode(), graph.pointer, plan.pointer)
        program = self.make("program", "tsr_program_new", devices, ctypes.byref(described), ctypes.c_size_t(1))
        return self.make("session", "tsr_session_new", program, None)

    def feed(self, session, entry, **inputs):
        for name, value in inputs.items():
            self.call("tsr_session_feed", session, entry, name, self.tensor(value))

    def fetch(self, session, entry, output):
        return self.array(self.make("tensor", "tsr_session_fetch", session, entry, output))

    def logits(self, model, ids):
        """Of texts ids [B, T], [B, T, V]."""
        session = self.session(self.make("graph", "tsr_model_graph", model), "forward", batch=ids.shape[0], symbols=f"T={ids.shape[1]}")
        self.call("tsr_session_write_model", session, model)
        self.feed(session, "forward", tokens=ids, positions=np.tile(np.arange(ids.shape[1], dtype=np.int32), (ids.shape[0], 1)))
        self.call("tsr_session_run", session, "forward")
        return self.fetch(session, "forward", "logits")

    def generator(self, model, **options):
        return self.make("generator", "tsr_generator_new", self.runtime, model, self.options(temperature=0.0, **options))

    def continue_tokens(self, generator, ids):
        self.call("tsr_generator_start_tokens", generator, (ctypes.c_int32 * len(ids))(*ids), ctypes.c_size_t(len(ids)))
        out, piece = [], Piece(ctypes.sizeof(Piece))
        while True:
            self.call("tsr_generator_next", generator, ctypes.c_double(-1), ctypes.byref(piece))
            if piece.kind == 2:
                return out
            if piece.token >= 0:
                out.append(piece.token)

    def engine(self, model, **options):
        return self.make("engine", "tsr_engine_new", self.runtime, model, self.options(**options))

    def submit_tokens(self, engine, ids, options=None):
        request = ctypes.c_int64()
        self.call("tsr_engine_submit_tokens", engine, options, (ctypes.c_int32 * len(ids))(*ids), ctypes.c_size_t(len(ids)), ctypes.byref(request))
        return request.value

    def serve(self, engine, prompts, options):
        """Texts of prompts submitted at once, each with options(its number), as token ids; and the seconds that all took."""
        event, texts = Event(), {}
        begin = time.perf_counter()
        for number, ids in enumerate(prompts):
            texts[self.submit_tokens(engine, ids, self.options(**options(number)))] = []
        while True:
            self.next_event(engine, event)
            if event.kind == PENDING:
                return list(texts.values()), time.perf_counter() - begin
            if event.kind == TOKEN and event.token >= 0:
                texts[event.request].append(event.token)

    def next_event(self, engine, event, timeout_s=-1.0):
        """Into `event`, an Event of the caller."""
        event.struct_size = ctypes.sizeof(Event)
        self.call("tsr_engine_next", engine, timeout_s, ctypes.byref(event))
