"""Sequence: tokens of a prompt and its text as a value."""
from __future__ import annotations

import array

from . import arguments, raw
from .errors import InvalidArgumentError, check
from .handle import Handle


class Sequence(Handle):
    """The tokens of a prompt and of its text, whose keys and values stay in the engine's cache while it has room, and are
    computed again where it has not. It holds nothing but its tokens, so any number may be kept, with or without their engine.
    `request.sequence()` gives one, `engine.submit(sequence=...)` goes on with it."""

    _free = raw.tsr_sequence_free
    _exclusive = True

    def fork(self) -> Sequence:
        """A copy, which goes its own way."""
        with self._pointer as c:
            return Sequence._own(raw.tsr_sequence_fork(c))

    def rewind(self, count: int) -> None:
        """Keeps the first tokens: 1 to all."""
        number = arguments.integer(count)
        if number is None or not 0 <= number < 1 << 63:
            raise InvalidArgumentError(f"count is {count!r}, wanted 1 to as many as the sequence has")
        with self._pointer as c:
            check(raw.tsr_sequence_rewind(c, number))

    @property
    def tokens(self) -> array.array[int]:
        """The ids of prompt and text, int32."""
        with self._pointer as c:
            return arguments.counted("i", lambda ids: raw.tsr_sequence_tokens(c, ids))
