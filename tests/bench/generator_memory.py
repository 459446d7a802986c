#!/usr/bin/env python3
"""generator_memory.py BUILD MODEL [CONTEXT]: memory of 1, 4 and 16 generators over one model, against their reports.

Each generator writes as many tokens as its context holds, so that all of its caches are touched. Anonymous memory and
pages of files are counted separately, as by the kernel; what a further generator costs is compared with what its
report says is its own (arena_bytes less shared_weight_bytes)."""
import ctypes
import json
import os
import sys

BUILD, MODEL = sys.argv[1:3]
CONTEXT = int(sys.argv[3]) if len(sys.argv) > 3 else 128
library = ctypes.CDLL(os.path.join(BUILD, "capi", "libtessera.so"))
library.tsr_status_message.restype = ctypes.c_char_p
library.tsr_text_data.restype = ctypes.c_char_p
MIB = 1 << 20


class Piece(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("kind", ctypes.c_int32), ("finish", ctypes.c_int32),
                ("token", ctypes.c_int32), ("text", ctypes.c_char_p), ("text_size", ctypes.c_size_t)]


def call(name, *args):
    function = getattr(library, name)
    function.restype = ctypes.c_void_p
    status = function(*args)
    if status:
        raise SystemExit(library.tsr_status_message(ctypes.c_void_p(status)).decode())


def made(name, *args):
    handle = ctypes.c_void_p()
    call(name, *args, ctypes.byref(handle))
    return handle


def resident():
    """Anonymous and file bytes."""
    found = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return tuple(int(found[key].split()[0]) * 1024 for key in ("RssAnon", "RssFile"))


runtime = made("tsr_runtime_new", None)
before = resident()
model = made("tsr_model_load", MODEL.encode())
options = made("tsr_options_new")
for key, value in (("context", CONTEXT), ("max_tokens", 0), ("seed", 1)):
    call("tsr_options_set_i64", options, key.encode(), ctypes.c_int64(value))
call("tsr_options_set_str", options, b"stop_ids", b"")
generators = []
print(f"{MODEL}: {os.path.getsize(MODEL) / MIB:.1f} MiB, context {CONTEXT}")
print("generators | anonymous MiB | file pages MiB | own by the reports MiB | measured / predicted growth")
first = None
for wanted in (1, 4, 16):
    while len(generators) < wanted:
        generator = made("tsr_generator_new", runtime, model, options)
        generators.append(generator)
        ids = (ctypes.c_int32 * (CONTEXT - 2))(*range(10, CONTEXT + 8))
        call("tsr_generator_start_tokens", generator, ids, ctypes.c_size_t(len(ids)))
        piece = Piece(ctypes.sizeof(Piece))
        while piece.kind != 2:
            call("tsr_generator_next", generator, ctypes.c_double(-1), ctypes.byref(piece))
    own = 0
    for generator in generators:
        text = made("tsr_generator_report", generator)
        for device in json.loads(library.tsr_text_data(text))["devices"]:
            own += device["arena_bytes"]["predicted"] - device.get("shared_weight_bytes", 0)
        library.tsr_text_free(text)
    anonymous, pages = (now - then for now, then in zip(resident(), before))
    grown = "" if first is None else f"{(anonymous - first[0]) / (own - first[1]):.3f}"
    if first is None:
        first = anonymous, own
    print(f"{wanted:10} | {anonymous / MIB:13.1f} | {pages / MIB:14.1f} | {own / MIB:22.1f} | {grown}")
