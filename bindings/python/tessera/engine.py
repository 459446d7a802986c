"""Engine, Request and Event: many requests at once."""
from __future__ import annotations

import array
import dataclasses
import json
import time
import weakref
from typing import TYPE_CHECKING, Any, Iterable, Iterator

from . import arguments, raw
from .arguments import Options
from .chat import messages_json
from .embedder import shaped
from .errors import Code, InvalidArgumentError, NotFoundError, TesseraError, check, error_of, result, text
from .event_router import SLICE_S, Entry, EventRouter
from .handle import Handle, use
from .runtime import Runtime, chosen_runtime, refuse_runtime
from .scorer import Scores
from .sequence import Sequence
from .work import interruptible

if TYPE_CHECKING:
    import asyncio

    from .model import Model
    from .trainer import Trainer

_KIND = {raw.TSR_EVENT_TOKEN: "token", raw.TSR_EVENT_END: "end", raw.TSR_EVENT_PROMPT: "prompt",
         raw.TSR_EVENT_LOGITS: "logits"}
_FINISH = {raw.TSR_FINISH_LENGTH: "length", raw.TSR_FINISH_STOP: "stop", raw.TSR_FINISH_CANCELLED: "cancelled",
           raw.TSR_FINISH_FAILED: "failed"}


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """What an engine says of one text of a request."""

    kind: str  #: "token", "end", "prompt" or "logits"
    request: int  #: the request's number
    index: int  #: of the request's texts
    token: int  #: of "token"; -1 for text alone
    text: str  #: of "token": whole characters, perhaps none yet
    finish: str | None  #: of "end": "length", "stop", "cancelled" or "failed"
    details: dict[str, Any]  #: what the header lists under tsr_engine_next; empty where there are none

    @property
    def error(self) -> TesseraError | None:
        """Why the text failed; None for an event that is not such an end."""
        if self.finish != "failed":
            return None
        told = self.details.get("error", {})
        return error_of(int(told.get("code", Code.INTERNAL)), str(told.get("message", "")))


class Request:
    """A prompt in progress: `for event in request`, `async for event in request`, `request.text()`, `await request`. Its
    events are collected once, by one thread or task at a time. At the end of a with statement it is cancelled."""

    def __init__(self, engine: Engine, number: int, entry: Entry):
        self._engine = engine
        self._entry = entry
        self._texts: list[list[str]] = [[] for _ in range(entry.texts)]
        self._error: TesseraError | None = None
        self.number = number  #: what its events have as `request`: 0 for the engine's first
        self.finish: str | None = None  #: of the text that ended last: "length", "stop", "cancelled", "failed"

    @property
    def engine(self) -> Engine:
        return self._engine

    def _take(self) -> Event | None:
        """An event that is there; None where there is none."""
        self._engine._router.choose_each()
        event = self._entry.take()
        if event is not None:
            self._texts[event.index].append(event.text)
            self.finish = event.finish or self.finish
            self._error = self._error or event.error
        return event

    def _at_end(self) -> bool:
        """Whether nothing comes any more; raises why a text failed, once."""
        if not self._entry.is_complete:
            return False
        error, self._error = self._error, None
        if error is not None:
            raise error
        return True

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        """After the end of a text that failed, its error is raised."""
        while True:
            event = self._take()
            if event is not None:
                return event
            if self._at_end():
                raise StopIteration
            self._engine._router.wait(self._entry)

    def __aiter__(self) -> Request:
        return self

    async def __anext__(self) -> Event:
        import asyncio  # takes longer to load than this package

        while True:
            event = self._take()
            if event is not None:
                return event
            if self._at_end():
                raise StopAsyncIteration
            loop = asyncio.get_running_loop()
            changed = loop.create_future()
            self._engine._router.watch(self._entry, lambda: _tell(loop, changed))
            await changed

    def _answer_as_is(self, event: Event) -> None:
        if event.kind == "logits":
            try:
                self.answer(event.index)
            except NotFoundError:
                pass  # cancelled meanwhile

    def texts(self) -> list[str]:
        """Waits for the end of all its texts. Logits that it asks for are answered as they are. Interrupted, it is
        cancelled."""
        self._engine._router.choose_each()
        try:
            for event in self:
                self._answer_as_is(event)
        except BaseException:
            self.cancel()
            raise
        return ["".join(parts) for parts in self._texts]

    def text(self) -> str:
        """The first of `texts()`."""
        return self.texts()[0]

    async def atexts(self) -> list[str]:
        """Likewise; where the task is cancelled, so is the request."""
        self._engine._router.choose_each()
        try:
            async for event in self:
                self._answer_as_is(event)
        except BaseException:
            self.cancel()
            raise
        return ["".join(parts) for parts in self._texts]

    async def atext(self) -> str:
        return (await self.atexts())[0]

    def __await__(self) -> Any:
        return self.atext().__await__()

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Request({self.number}, finish={self.finish!r})"

    def logits(self, index: int = 0) -> array.array[float]:
        """f32 [V] that a text waits with since its event "logits", as the model gives them."""
        return self._engine.logits(self.number, index)

    def answer(self, index: int = 0, logits: Any = None) -> None:
        """Lets that text go on with these logits, -inf excluding a token; None: as they are."""
        self._engine.answer(self.number, index, logits)

    def embedding(self) -> memoryview[float]:
        """Waits for its end and takes what a request with the option embed computed: a buffer of f32 [1, width], or with
        pooling "none" [tokens, width]. NotFoundError for other requests, and the second time."""
        self.texts()
        return self._engine.embedding(self.number)

    def scores(self) -> Scores:
        """Likewise of a request with the option score_from: of the prompt's tokens from that one on."""
        self.texts()
        return self._engine.scores(self.number)

    def sequence(self, index: int = 0) -> Sequence:
        """Of one of its texts, where the request has the option keep, once that text has ended; NotFoundError otherwise, and
        the second time."""
        return self._engine.sequence(self.number, index)

    def cancel(self) -> None:
        """Any thread: its texts end, with finish "cancelled"."""
        self._engine.cancel(self.number)

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *_: Any) -> None:
        self.cancel()


def _tell(loop: asyncio.AbstractEventLoop, changed: asyncio.Future[None]) -> None:
    """From the thread that distributes."""
    try:
        loop.call_soon_threadsafe(lambda: None if changed.done() else changed.set_result(None))
    except RuntimeError:
        pass  # the loop is closed: nobody waits


class Engine(Handle):
    """`Engine(model, devices="cpu:2", sequences=16)`: serves many requests at once. The header lists the options under
    tsr_engine_new. `Engine(trainer, sequences=16)` is one on the weights that a trainer trains, without a copy, by its plan and
    between its updates: see tsr_engine_new_for_trainer. Any thread. Events are collected in one of two ways, and the first call of either decides which; the other
    raises FailedPreconditionError: each request's by the Request, or all by `next` and `events`, in one thread at a time."""

    _free = raw.tsr_engine_free

    def __init__(self, model: Model | Trainer, *, runtime: Runtime | None = None, **options: Any):
        from .model import Model
        from .trainer import Trainer
        if isinstance(model, Trainer):
            refuse_runtime(runtime)
            with model._pointer as t, Options(options) as o:
                self._pointer = self._made(raw.tsr_engine_new_for_trainer(t, o))
        else:
            runtime = chosen_runtime(runtime)
            with use(model, Model, "model") as m, runtime._pointer as r, Options(options) as o:
                self._pointer = interruptible(lambda: self._made(raw.tsr_engine_new(r, m, o)), runtime.cancel)
        self._n = _texts(options, 1)
        reference = weakref.ref(self)
        self._router = EventRouter(lambda: _read(reference))

    def submit(self, prompt: Any = None, *, ids: Any = None, messages: Any = None, sequence: Sequence | None = None,
               **options: Any) -> Request:
        """Continues a prompt, a str; or token ids as they are; or a sequence, and then ids where there are some; or answers
        messages, a list of dicts or JSON. The header lists the options under tsr_engine_submit. What is wrong with it is raised
        here, and does no harm to others."""
        if sequence is not None:
            return self._submit_sequence(sequence, ids, options, prompt is not None or messages is not None)
        given = [name for name, value in (("prompt", prompt), ("ids", ids), ("messages", messages)) if value is not None]
        if len(given) != 1:
            raise InvalidArgumentError(f"found {' and '.join(given) or 'none'} of prompt, ids, messages and sequence, "
                                       "wanted one of them, or a sequence and ids")
        if messages is not None:
            value, submit = messages_json(messages), raw.tsr_engine_submit_messages
        elif ids is not None:
            value, submit = arguments.ids("ids", ids), raw.tsr_engine_submit_tokens
        else:
            value, submit = arguments.text("prompt", prompt), raw.tsr_engine_submit
        with self._pointer as c, Options(options) as o:
            number = result(submit(c, o, value))
        return Request(self, number, self._router.add(number, _texts(options, self._n)))

    def _submit_sequence(self, sequence: Sequence, ids: Any, options: dict[str, Any], others: bool) -> Request:
        if others:
            raise InvalidArgumentError("found a prompt or messages with a sequence, wanted ids or none")
        more = arguments.ids("ids", () if ids is None else ids)
        with use(sequence, Sequence, "sequence") as s, self._pointer as c, Options(options) as o:
            number = result(raw.tsr_engine_submit_sequence(c, o, s, more))
        return Request(self, number, self._router.add(number, _texts(options, self._n)))

    def generate(self, prompts: Iterable[Any], **options: Any) -> list[str]:
        """Submits all prompts at once, each a str or token ids, and waits for their texts. After an exception, such as
        KeyboardInterrupt, what is left of them is cancelled."""
        if isinstance(prompts, (str, bytes)):
            raise InvalidArgumentError(f"prompts: found one {type(prompts).__name__}, wanted several in a list")
        requests: list[Request] = []
        try:
            for prompt in prompts:
                name = "prompt" if isinstance(prompt, (str, bytes)) else "ids"
                requests.append(self.submit(**{name: prompt}, **options))
            return [request.text() for request in requests]
        except BaseException:
            for request in requests:
                request.cancel()
            raise

    def next(self, timeout_s: float | None = None) -> Event | None:
        """The next event of any request; None where nothing came within the timeout, without one where no request is in
        progress."""
        self._router.choose_all()
        end = None if timeout_s is None else time.monotonic() + arguments.seconds("timeout_s", timeout_s)
        while True:
            busy = end is not None or self._router.is_busy
            left = SLICE_S if end is None else max(0.0, min(SLICE_S, end - time.monotonic()))
            event = self._router.read(lambda: self._read(left if busy else 0))
            if event is not None or not busy or left < SLICE_S:
                return event

    def events(self) -> Iterator[Event]:
        """The events of all requests, until none is in progress. Requests may be submitted meanwhile."""
        self._router.choose_all()
        while (event := self.next()) is not None:
            yield event

    def _read(self, timeout_s: float) -> Event | None:
        with self._pointer as c:
            kind, finish, request, index, token, data, details = result(raw.tsr_engine_next(c, timeout_s))
        if kind == raw.TSR_EVENT_PENDING:
            return None
        return Event(_KIND.get(kind, str(kind)), request, index, token, data.decode("utf-8", "replace"),
                     _FINISH.get(finish, str(finish)) if kind == raw.TSR_EVENT_END else None,
                     json.loads(details) if details else {})

    @property
    def descriptor(self) -> int:
        """A file descriptor that can be read while events wait, for selectors and loop.add_reader; then call next(0). It
        stays the engine's."""
        with self._pointer as c:
            return result(raw.tsr_engine_descriptor(c))

    def fileno(self) -> int:
        """The descriptor, as selectors ask for it."""
        return self.descriptor

    def logits(self, request: int, index: int = 0) -> array.array[float]:
        """Of a request by its number; see Request.logits."""
        with self._pointer as c:
            return arguments.counted("f", lambda items: raw.tsr_engine_logits(c, request, index, items))

    def answer(self, request: int, index: int = 0, logits: Any = None) -> None:
        """Of a request by its number; see Request.answer."""
        items = None if logits is None else arguments.items("logits", "f", "float32", logits)
        with self._pointer as c:
            check(raw.tsr_engine_answer(c, request, index, items))

    def cancel(self, request: int) -> None:
        """Any thread: a request ends, by its number. Nothing happens to one that has ended, or never was."""
        if not self.closed:
            with self._pointer as c:
                raw.tsr_engine_cancel(c, request)

    def embedding(self, request: int) -> memoryview[float]:
        """Of a request by its number, once it has ended; see Request.embedding."""
        with self._pointer as c:
            width = result(raw.tsr_engine_embedding_width(c))
            return shaped(arguments.counted("f", lambda items: raw.tsr_engine_take_embedding(c, request, items)), width)

    def scores(self, request: int) -> Scores:
        """Of a request by its number, once it has ended; see Request.scores."""
        with self._pointer as c:
            count = result(raw.tsr_engine_take_scores(c, request, None, None))
            scores = Scores(array.array("f", bytes(4 * count)), array.array("B", bytes(count)))
            check(raw.tsr_engine_take_scores(c, request, scores.logprobs, scores.greedy)[0])
            return scores

    def sequence(self, request: int, index: int = 0) -> Sequence:
        """Of a request by its number; see Request.sequence."""
        with self._pointer as c:
            return Sequence._own(raw.tsr_engine_take_sequence(c, request, index))

    def save_sequence(self, sequence: Sequence, path: Any) -> None:
        """Writes a sequence to a file, with the keys and values that are cached. UnsupportedError for one that was computed
        with an adapter."""
        name = arguments.path("path", path)
        with use(sequence, Sequence, "sequence") as s, self._pointer as c:
            check(raw.tsr_engine_save_sequence(c, s, name))

    def restore_sequence(self, path: Any) -> Sequence:
        """Reads it back, into the cache as far as that has room. CorruptError for a file that is damaged,
        InvalidArgumentError for one of another model or other settings."""
        name = arguments.path("path", path)
        with self._pointer as c:
            return Sequence._own(raw.tsr_engine_restore_sequence(c, name))

    def load_adapter(self, source: Any) -> int:
        """The number of a LoRA adapter, for the option `adapter` of requests: a PEFT folder, a GGUF adapter, or a .tsr file
        with adapters over the engine's model, by its path; or, without a file, a Model's, or that which a Trainer trains, as it
        is now: later steps do not change what the engine has. Others are served meanwhile. The engine needs the option
        `adapters`."""
        from .model import Model
        from .trainer import Trainer
        if isinstance(source, (Model, Trainer)):
            load = raw.tsr_engine_load_adapter_from_trainer if isinstance(source, Trainer) else raw.tsr_engine_load_adapter_from_model
            with source._pointer as s, self._pointer as c:
                return result(load(c, s))
        name = arguments.path("path", source)
        with self._pointer as c:
            return result(raw.tsr_engine_load_adapter(c, name))

    def drop_adapter(self, adapter: int) -> None:
        """Further requests with the adapter are refused; those that use it go on. NotFoundError the second time."""
        with self._pointer as c:
            check(raw.tsr_engine_drop_adapter(c, adapter))

    def report(self) -> dict[str, Any]:
        """Requests, steps, tokens, what was cached, plan, memory."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_engine_report(c)))

    def close(self) -> None:
        """Requests in progress end, and who waits for them gets an InvalidArgumentError."""
        super().close()
        if hasattr(self, "_router"):
            self._router.fail(InvalidArgumentError("the engine is closed"))


def _texts(options: dict[str, Any], otherwise: int) -> int:
    """How many texts end, by options that C found to be integers."""
    n, embed, score_from = (options.get(name) for name in ("n", "embed", "score_from"))
    if int(embed or 0) == 1 or (score_from is not None and int(score_from) >= 0):
        return 1
    return otherwise if n is None else int(n)


def _read(reference: weakref.ref[Engine]) -> Event | None:
    """Of the thread that distributes, which does not keep the engine."""
    engine = reference()
    if engine is None:
        raise InvalidArgumentError("the engine is garbage")
    return engine._read(SLICE_S)
