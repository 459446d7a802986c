"""Tokenizers of libtessera.so by ctypes, and adversarial strings for them: shared by the checks of tokenizers."""
import ctypes
import random
import unicodedata


# ---- Tessera

class Tessera:
    def __init__(self, library, path):
        self.library = ctypes.CDLL(library)
        for name in ("tsr_status_message", "tsr_text_data"):
            getattr(self.library, name).restype = ctypes.c_void_p
        self.library.tsr_text_size.restype = ctypes.c_size_t
        self.handle = ctypes.c_void_p()
        self.call("tsr_tokenizer_load", str(path).encode(), ctypes.byref(self.handle))

    def __del__(self):
        self.library.tsr_tokenizer_free(self.handle)

    def call(self, name, *args):
        function = getattr(self.library, name)
        function.restype = ctypes.c_void_p
        status = function(*args)
        if status:
            raise ValueError(ctypes.string_at(self.library.tsr_status_message(ctypes.c_void_p(status))).decode())

    def encode(self, text, special, begins=False):
        data = text.encode() if isinstance(text, str) else text
        most = 40 * len(data) + 16
        ids, places, count = (ctypes.c_int32 * most)(), (ctypes.c_size_t * most)(), ctypes.c_size_t()
        self.call("tsr_tokenizer_encode_ranges", self.handle, data, ctypes.c_size_t(len(data)), ctypes.c_uint32(special),
                  None, ctypes.c_size_t(0), ids, ctypes.c_size_t(most), places if begins else None, ctypes.byref(count))
        assert count.value <= most
        return (ids[:count.value], places[:count.value]) if begins else ids[:count.value]

    def count(self, data, special):
        count = ctypes.c_size_t()
        self.call("tsr_tokenizer_encode", self.handle, data, ctypes.c_size_t(len(data)), ctypes.c_uint32(special), None,
                  ctypes.c_size_t(0), ctypes.byref(count))
        return count.value

    def decode_bytes(self, ids):
        text = ctypes.c_void_p()
        self.call("tsr_tokenizer_decode", self.handle, (ctypes.c_int32 * len(ids))(*ids), ctypes.c_size_t(len(ids)),
                  ctypes.byref(text))
        data = ctypes.string_at(self.library.tsr_text_data(text), self.library.tsr_text_size(text))
        self.library.tsr_text_free(text)
        return data

    def decode(self, ids):
        return self.decode_bytes(ids).decode("utf-8", "replace")


# ---- strings

RANGES = [(0x20, 0x7e)] * 6 + [(0xa0, 0xff), (0x100, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff),
          (0x590, 0x5f4), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe5b), (0x1100, 0x11ff), (0x1e00, 0x1fff),
          (0x2000, 0x206f), (0x20a0, 0x20bf), (0x2100, 0x214f), (0x2150, 0x218f), (0x2460, 0x24ff), (0x2580, 0x27bf),
          (0x3000, 0x30ff), (0x3130, 0x318e), (0x3400, 0x3500), (0x4e00, 0x9fa5), (0xac00, 0xd7a3), (0xe000, 0xe010),
          (0xf900, 0xfa2d), (0xfb00, 0xfb4f), (0xfe00, 0xfe6b), (0xff00, 0xffef), (0x10400, 0x1044f), (0x1d400, 0x1d7ff),
          (0x1f300, 0x1f64f), (0x20000, 0x20100), (0, 0x1f), (0x7f, 0x9f)]
BITS = ["'s", "'T", "'re", "'VE", "'ll", "I'm", "don't", " do not", " n't", " 123", "4567890", "3.14", "\n", "\r\n", "\n\n",
        "\t", " ", "  ", "    ", "\u00a0", "\u2028", "\u3000", "\u180e", "\u200b", "\u200d", "\ufeff", "\ufffd", "\u0130",
        "\u01c5", "e\u0301", "\u00e9", "\u1e9b\u0323", "\uac01", "\u1100\u1161\u11a8", "\uff76\uff9e", "\ufb01", "\u2460",
        "\u00b2", "ﷺ", "👩‍👩‍👧", "🇩🇪", "▁", "▁▁", "Ġ", "</w>", "##", "##a", "<0x41>", "<0xFF>", "<unk>", "<s>", "</s>",
        "[CLS]", "[UNK]", "[MASK]", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<tool>", "hello", "Hello", "world", "the",
        "The", "straße", "ΣΑΣ", "naïve", "I", "l", "a", "_", "--", "...", "?!", "$100", "x=1;", "def f():", "http://a.b/c?d=e",
        "中文", "日本語", "カタカナ", "ひらがな", "한국어", "ไทย", "हिन्दी", "العربية", "עברית", "Ελληνικά", "русский"]


def make_strings(count, seed, extra=()):
    draw = random.Random(seed)
    known = [[c for c in range(a, b + 1) if c != 0x61d and unicodedata.category(chr(c)) not in ("Cn", "Cs")] for a, b in RANGES]
    bits = BITS + list(extra)
    strings = ["", " ", "  ", "a", "\n", " a", "a "]
    while len(strings) < count:
        kind, parts = draw.random(), []
        for _ in range(draw.randint(1, 12)):
            if kind < 0.25:
                parts.append(draw.choice(bits))
            elif kind < 0.5:
                parts.append("".join(chr(draw.choice(draw.choice(known))) for _ in range(draw.randint(1, 4))))
            elif kind < 0.75:
                parts.append(draw.choice(bits) if draw.random() < 0.5 else chr(draw.choice(draw.choice(known))))
            else:
                letters = draw.choice(["abcdefghijklmnopqrstuvwxyz", "ab", "aeiou tnsr", "01", " \n\t", "АБвг ", "éàü "])
                parts.append("".join(draw.choice(letters) for _ in range(draw.randint(1, 9))) + draw.choice(["", " ", "\n"]))
        strings.append("".join(parts))
    return strings
