"""Tokenizer: text to token ids and back."""
from __future__ import annotations

import array
import json
from typing import Any, Iterable, NamedTuple, Sequence

from . import arguments, raw
from .errors import result, text_bytes
from .handle import Handle


class Encoded(NamedTuple):
    ids: array.array[int]  # int32
    begins: array.array[int]  # the byte offset of each token


def _flags(special: bool, bos: bool, around: bool) -> int:
    return (raw.TSR_ENCODE_SPECIAL * bool(special) | raw.TSR_ENCODE_BOS * bool(bos)
            | raw.TSR_ENCODE_AROUND * bool(around))


class Tokenizer(Handle):
    """The tokenizer of a .tsr or GGUF file, of a Hugging Face folder or its tokenizer.json. Immutable; any thread. Ids are
    arrays of int32, which are buffers."""

    _free = raw.tsr_tokenizer_free

    def __init__(self, path: Any):
        self._pointer = self._made(raw.tsr_tokenizer_load(arguments.path("path", path)))

    @classmethod
    def of_bytes(cls) -> Tokenizer:
        """256 tokens, one a byte."""
        return cls._own(raw.tsr_tokenizer_new_bytes())

    def encode(self, text: str | bytes, *, special: bool = False, bos: bool = False, around: bool = False) -> array.array[int]:
        """special: control tokens written out in the text are these tokens. bos: with the beginning-of-sequence token, when
        there is one. around: with all that the tokenizer puts around texts."""
        data = arguments.text("text", text)
        with self._pointer as c:
            return arguments.counted("i", lambda ids: raw.tsr_tokenizer_encode(c, data, _flags(special, bos, around), ids))

    def encode_ranges(self, text: str | bytes, literal: Iterable[tuple[int, int]] = (), *, special: bool = True,
                      bos: bool = False, around: bool = False) -> Encoded:
        """literal: first byte and end of parts in which no control token is recognised, in order and disjoint."""
        data = arguments.text("text", text)
        bounds = arguments.items("literal", "Q", "uint64", [bound for part in literal for bound in part])
        flags, count = _flags(special, bos, around), len(data) + 16
        with self._pointer as c:
            while True:
                ids, begins = array.array("i", bytes(4 * count)), array.array("Q", bytes(8 * count))
                needed = result(raw.tsr_tokenizer_encode_ranges(c, data, flags, bounds, ids, begins))
                if needed <= count:
                    return Encoded(ids[:needed], begins[:needed])
                count = needed

    def encode_batch(self, texts: Sequence[str | bytes], *, special: bool = False, bos: bool = False, around: bool = False,
                     threads: int = 0) -> list[array.array[int]]:
        """Several texts at once. threads: 0 for one a core."""
        data, lengths = arguments.joined_texts("texts", texts)
        flags, counts = _flags(special, bos, around), array.array("Q", bytes(8 * len(lengths)))
        with self._pointer as c:
            ids = arguments.counted(
                "i", lambda ids: raw.tsr_tokenizer_encode_batch(c, data, lengths, flags, threads, ids, counts))
        found, begin = [], 0
        for count in counts:
            found.append(ids[begin:begin + count])
            begin += count
        return found

    def written_control(self, text: str | bytes) -> dict[str, Any]:
        """{"tokens": {text: count}, "note": str}: control tokens that stand written out in a text, as where a chat template
        rendered it before; without `special` they are encoded as letters."""
        with self._pointer as c:
            return json.loads(text_bytes(raw.tsr_tokenizer_written_control(c, arguments.text("text", text))))

    def decode_bytes(self, ids: Any) -> bytes:
        """The bytes of ids, which are not necessarily whole characters."""
        with self._pointer as c:
            return text_bytes(raw.tsr_tokenizer_decode(c, arguments.ids("ids", ids)))

    def decode(self, ids: Any, errors: str = "replace") -> str:
        """The text of ids. errors: what becomes of bytes that are no UTF-8, as for bytes.decode."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    @property
    def vocabulary_size(self) -> int:
        with self._pointer as c:
            return raw.tsr_tokenizer_vocabulary_size(c)

    def __len__(self) -> int:
        return self.vocabulary_size

    @property
    def bos(self) -> int | None:
        """The token that begins texts; None where there is none."""
        with self._pointer as c:
            found = raw.tsr_tokenizer_bos(c)
        return None if found < 0 else found

    @property
    def eos(self) -> int | None:
        """The token that ends texts; None where there is none."""
        with self._pointer as c:
            found = raw.tsr_tokenizer_eos(c)
        return None if found < 0 else found

    @property
    def end_ids(self) -> list[int]:
        """Every token that ends generation: of a text, a turn or a message."""
        with self._pointer as c:
            return list(arguments.counted("i", lambda ids: raw.tsr_tokenizer_end_ids(c, ids)))
