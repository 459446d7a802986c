#!/usr/bin/env python3
"""check_docs.py HEADER: every function of tessera.h is documented, and what its "Conventions" promise of all holds of each.

A function is documented by the comment before it, or behind it, by that of the group (no blank line between) that it is in,
or by name in another's comment. Of errors: it returns tsr_status*, and then the comment before it, or before its group, has a line
"Codes:" of codes that exist, or one of the values that cannot fail. Of ownership:
whatever handle it makes has a tsr_*_free. Of arrays: what it fills has a capacity. Of const: a handle that is only read is const. Of threads: one at a time may use a handle, but for the kinds that the header names
under "Threads", which exist, and for tsr_*_cancel, whose comment says "Any thread". First plants a function without each,
and checks that it is found."""
import re
import sys

from public_header import FUNCTION, functions

DECLARATION = re.compile(FUNCTION.pattern + r"([^\n]*)", re.M)
TOTAL = {"void", "int32_t", "uint32_t", "size_t", "tsr_code", "tsr_dtype", "const char*", "const int64_t*", "const void*",
         "void*"}
CODES = re.compile(r"\bCodes: (none|TSR_\w+(?:, TSR_\w+)*)\. \*/")
FILLED = re.compile(r"(?:^|, )(?:char|u?int(?:8|32|64)_t|float|size_t|tsr_value)\* (?!out_)\w+")
READERS = re.compile(r"tsr_(?!\w*begin)\w+_(?:info|report|print|explain|page|summary|text|width|find|type|count|name)$")
MADE = re.compile(r"\b(tsr_\w+)\*\* out_\w+")


def blocks(text):
    """Runs of lines without a blank one between them, outside of comments."""
    masked = re.sub(r"/\*.*?\*/", lambda comment: comment[0].replace("\n\n", "\n\0\n"), text, flags=re.S)
    return [block.replace("\0", "") for block in re.split(r"\n\s*\n", masked)]


def faults(text):
    found, comments = [], " ".join(re.findall(r"/\*.*?\*/", text, re.S))
    names = {name for _, name, _ in functions(text)}
    known = set(re.findall(r"^  (TSR_\w+) = \d+,? +/\*", re.search(r"typedef int32_t tsr_code;.*?};", text, re.S)[0], re.M)) | {"TSR_TIMEOUT"}
    handles = set(re.findall(r"^typedef struct (tsr_\w+) \1;", text, re.M))
    threads = re.search(r"\* Threads  .*?\n \* fork  ", text, re.S)[0]
    listed = re.search(r"immutable handles \((.*?)\)", re.sub(r"\s*\n \*\s*", " ", threads))[1].split(", ")
    found += [f"Threads: there is no handle tsr_{noun}" for noun in listed if f"tsr_{noun}" not in handles]
    for block in blocks(text):
        documented, comment = False, ""
        for part in re.finditer(r"/\*.*?\*/|" + DECLARATION.pattern, block, re.S | re.M):
            if part[0].startswith("/*"):
                documented, comment = documented or not part[0].startswith("/* ===="), part[0]
                continue
            result, name, arguments, behind = re.sub(r"\s+", " ", part[1]).replace(" *", "*").strip(), part[2], part[3], part[4]
            own = name.endswith("_free") or "/*" in behind
            if not documented and not own and not re.search(rf"\b{name}\b", comments):
                found.append(f"{name}: no comment says what it does")
            if result == "tsr_status*":
                codes = CODES.search(re.sub(r"\s*\n \*\s*", " ", comment))
                if codes is None:
                    found.append(f"{name}: the comment before it does not end with \"Codes: ...\"")
                elif codes[1] != "none":
                    found += [f"{name}: there is no code {code}" for code in codes[1].split(", ") if code not in known]
            elif result not in TOTAL:
                found.append(f"{name}: returns {result}, which can neither tell an error nor always be right")
            plain = re.sub(r"\s+", " ", arguments)
            if FILLED.search(plain) and "size_t capacity" not in plain:
                found.append(f"{name}: fills an array without a capacity")
            if READERS.match(name) and re.match(r"tsr_\w+\* ", plain):
                found.append(f"{name}: reads a handle that is not const")
            for handle in MADE.findall(arguments):
                if f"{handle}_free" not in names:
                    found.append(f"{name}: makes a {handle}, which no {handle}_free frees")
            if name.endswith("_cancel") and "Any thread" not in comment:
                found.append(f"{name}: its comment does not say \"Any thread\"")
    return found


text = open(sys.argv[1]).read()
for planted, wanted in (("\n\nTSR_API tsr_status* tsr_model_planted(tsr_model* model);\n", "no comment"),
                        ("\n\n/* Plants. */\nTSR_API tsr_status* tsr_model_planted(tsr_model* model);\n", "does not end with"),
                        ("\n\n/* Plants. Codes: TSR_PLANTED. */\nTSR_API tsr_status* tsr_model_planted(tsr_model* model);\n", "no code TSR_PLANTED"),
                        ("\n\n/* Plants. */\nTSR_API double tsr_model_planted(tsr_model* model);\n", "neither tell an error"),
                        ("\n\n/* Plants. */\nTSR_API tsr_status* tsr_model_planted(tsr_planted** out_planted);\n", "no tsr_planted_free"),
                        ("\n\n/* Plants. */\nTSR_API void tsr_model_planted(float* items, size_t count);\n", "without a capacity"),
                        ("\n\n/* Plants. */\nTSR_API void tsr_planted_report(tsr_model* model);\n", "not const"),
                        ("\n\n/* Plants. */\nTSR_API void tsr_planted_cancel(tsr_model* model);\n", "Any thread")):
    assert any("planted" in line and wanted in line for line in faults(text + planted)), f"not found: {planted.strip()}"
bad = faults(text)
print("\n".join(bad) if bad else "every function is documented, with errors, ownership and threads")
sys.exit(bool(bad))
