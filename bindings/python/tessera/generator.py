"""Generator and Stream: texts, token by token."""
from __future__ import annotations

import contextlib
import json
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator

from . import arguments, raw
from .arguments import Options
from .errors import FailedPreconditionError, InvalidArgumentError, check, result, text
from .handle import Handle, use
from .runtime import Runtime, chosen_runtime, refuse_runtime
from .tensor import Tensor
from .work import interruptible

if TYPE_CHECKING:
    from .model import Model
    from .trainer import Trainer

_FINISH = {raw.TSR_FINISH_LENGTH: "length", raw.TSR_FINISH_STOP: "stop", raw.TSR_FINISH_CANCELLED: "cancelled"}
_POLL_S = 0.1  # between looks at signals


class Piece(str):
    """Text that became certain, perhaps none, with its token: -1 for text alone. data: its bytes as they are; of those that
    are no UTF-8 the text has U+FFFD."""

    __slots__ = ("token", "data")
    token: int
    data: bytes


class Stream:
    """A text in progress: `for piece in stream`, `async for piece in stream`, `str(stream)` for all of it. Closed, or
    garbage, before its end it is cancelled."""

    def __init__(self, generator: Generator, serial: int, at_end: Callable[[Generator], Any] | None = None):
        self._generator = generator
        self._serial = serial
        self._at_end = at_end
        # No __del__, in which an interrupt would be lost: once the text is complete nothing is left to do.
        self._dropped = weakref.finalize(self, _end_dropped, generator, serial, at_end)
        self._dropped.atexit = False
        self._pieces: list[Piece] = []
        self.finish: str | None = None  #: at the end "length", "stop" or "cancelled"

    @property
    def tokens(self) -> list[int]:
        """Of the pieces so far."""
        return [piece.token for piece in self._pieces if piece.token >= 0]

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    @property
    def generator(self) -> Generator:
        return self._generator

    def poll(self, timeout_s: float = 0) -> Piece | None:
        """The next piece; None when there is none within the timeout, or no more: then `finish` says why."""
        if self.finish is not None:
            return None
        kind, finish, token, data = self._generator._next(self._serial, timeout_s)
        if kind == raw.TSR_END:
            self._end(_FINISH.get(finish, str(finish)))
        if kind != raw.TSR_PIECE:
            return None
        piece = Piece(data.decode("utf-8", "replace"))
        piece.token, piece.data = token, data
        self._pieces.append(piece)
        return piece

    def _end(self, finish: str) -> None:
        self.finish = finish
        self._dropped.detach()
        at_end, self._at_end = self._at_end, None
        if at_end is not None:
            at_end(self._generator)

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        while self.finish is None:
            piece = self.poll(_POLL_S)  # signals are handled in between
            if piece is not None:
                return piece
        raise StopIteration

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Piece:
        import asyncio  # takes longer to load than this package

        while self.finish is None:
            piece = await asyncio.get_running_loop().run_in_executor(None, self.poll, _POLL_S)
            if piece is not None:
                return piece
        raise StopAsyncIteration

    def read(self) -> str:
        """Waits for the end; the whole text."""
        for _ in self:
            pass
        return self.text

    async def aread(self) -> str:
        async for _ in self:
            pass
        return self.text

    def __str__(self) -> str:
        return self.read()

    def __repr__(self) -> str:
        return f"Stream({self.text!r}, finish={self.finish!r})"

    def close(self) -> None:
        """Ends the text, if it is still in progress."""
        if self.finish is None:
            self._generator._cancel(self._serial)
            self._end("cancelled")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _end_dropped(generator: Generator, serial: int, at_end: Callable[[Generator], Any] | None) -> None:
    """Of a stream that is garbage before its text is complete."""
    generator._cancel(serial)
    if at_end is not None:
        at_end(generator)


class Generator(Handle):
    """`Generator(model, devices="cpu:2", max_tokens=100)`. The header lists the options under tsr_generator_new. `Generator(trainer)` is
    one on the weights that a trainer trains, as `Engine(trainer)` is an engine. One text at a time; a new one drops what is left of the one before."""

    _free = raw.tsr_generator_free
    _exclusive = True
    _serial = 0  # of the text in progress

    def __init__(self, model: Model | Trainer, *, runtime: Runtime | None = None, **options: Any):
        from .model import Model
        from .trainer import Trainer
        if isinstance(model, Trainer):
            refuse_runtime(runtime)
            with model._pointer as t, Options(options) as o:
                self._pointer = self._made(raw.tsr_generator_new_for_trainer(t, o))
        else:
            runtime = chosen_runtime(runtime)
            with use(model, Model, "model") as m, runtime._pointer as r, Options(options) as o:
                self._pointer = interruptible(lambda: self._made(raw.tsr_generator_new(r, m, o)), runtime.cancel)

    def generate(self, prompt: Any, **options: Any) -> Stream:
        """Continues a str, or token ids as they are, such as those of Chat.encode. Options, of this text alone:
        max_tokens, temperature, top_k, top_p, seed, echo, special, stop, stop_ids."""
        return self._generate(prompt, options, None)

    def _generate(self, prompt: Any, options: dict[str, Any], at_end: Callable[[Generator], Any] | None) -> Stream:
        is_text = isinstance(prompt, (str, bytes))
        given = arguments.text("prompt", prompt) if is_text else arguments.ids("prompt", prompt)
        with self._pointer as c, Options(options) as o:
            if o == 0:
                check(raw.tsr_generator_start(c, given) if is_text else raw.tsr_generator_start_tokens(c, given))
            elif is_text:
                check(raw.tsr_generator_start_with(c, o, given))
            else:
                check(raw.tsr_generator_start_tokens_with(c, o, given))
            self._serial += 1
            return Stream(self, self._serial, at_end)

    def _next(self, serial: int, timeout_s: float) -> tuple[int, int, int, bytes]:
        with self._pointer as c:
            if serial != self._serial:
                raise FailedPreconditionError("the generator began another text, which dropped what was left of this one")
            return result(raw.tsr_generator_next(c, timeout_s))

    def _cancel(self, serial: int) -> None:
        if serial == self._serial:
            with contextlib.suppress(InvalidArgumentError):  # closed: its text has ended
                self.cancel()

    def cancel(self) -> None:
        """Any thread: the text in progress ends, with finish "cancelled"."""
        with self._pointer.shared() as c:
            raw.tsr_generator_cancel(c)

    def logits(self) -> Tensor:
        """f32 [V] of the last token computed. Once the text is complete."""
        with self._pointer as c:
            return Tensor._own(raw.tsr_generator_logits(c))

    def report(self) -> dict[str, Any]:
        """Tokens, the seed of the text, speed, memory."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_generator_report(c)))

    def trace(self) -> list[dict[str, Any]]:
        """What ran since the last call, in Chrome's trace format. Needs the option trace."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_generator_take_trace(c)))
