"""Chat: conversations as the text and tokens that a model was trained on."""
from __future__ import annotations

import array
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from . import arguments, raw
from .arguments import Options
from .errors import InvalidArgumentError, result, text
from .handle import Handle, use, use_optional
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .model import Model


class EncodedChat(NamedTuple):
    ids: array.array[int]  # int32
    assistant: array.array[int]  # 1 for tokens that the assistant says, 0 for all others


def messages_json(messages: Any) -> bytes:
    """A list of dicts as JSON; a str is JSON already."""
    if not isinstance(messages, (str, bytes)):
        try:
            messages = json.dumps(list(messages))
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"messages: {error}; wanted a list of {{'role': ..., 'content': ...}}") from error
    return arguments.text("messages", messages)


class Chat(Handle):
    """The template of a model. Immutable; any thread. Options: name, or template, the text of one.

    Options of its calls: add_generation_prompt, continue_final_message, tools, documents, variables, now."""

    _free = raw.tsr_chat_free

    def __init__(self, model: Model, **options: Any):
        from .model import Model
        with use(model, Model, "model") as m, Options(options) as o:
            self._pointer = self._made(raw.tsr_chat_new(m, o))

    @classmethod
    def from_text(cls, template: str, tokenizer: Tokenizer | None = None) -> Chat:
        """Without a tokenizer nothing can be encoded."""
        with use_optional(tokenizer, Tokenizer, "tokenizer") as t:
            return cls._own(raw.tsr_chat_new_text(arguments.text("template", template), t))

    def render(self, messages: Any, **options: Any) -> str:
        """The text of a conversation."""
        data = messages_json(messages)
        with self._pointer as c, Options(options) as o:
            return text(raw.tsr_chat_render(c, o, data))

    def render_ranges(self, messages: Any, **options: Any) -> dict[str, Any]:
        """The text, which bytes of it the messages made, and which the assistant says."""
        data = messages_json(messages)
        with self._pointer as c, Options(options) as o:
            return json.loads(text(raw.tsr_chat_render_ranges(c, o, data)))

    def fit(self, messages: Any, most_tokens: int, **options: Any) -> dict[str, Any]:
        """The conversation without its oldest turns, so that it has at most this many tokens: "messages", "dropped" (count of
        messages) and "tokens". What the system says stays, and so does the last turn."""
        data = messages_json(messages)
        with self._pointer as c, Options(options) as o:
            return json.loads(text(raw.tsr_chat_fit(c, o, data, most_tokens)))

    def parse(self, answer: str | bytes, **options: Any) -> dict[str, Any]:
        """The message that a model's answer is: its content, its reasoning, the tools that it calls, and as "cut_call" a
        call within which it ends. The answer is what the pieces' texts make, with the control tokens of markers() written out.

        Options: prompt, in_thinking, tools, partial, seed."""
        data = arguments.text("answer", answer)
        with self._pointer as c, Options(options) as o:
            return json.loads(text(raw.tsr_chat_parse(c, o, data)))

    def markers(self) -> dict[int, str]:
        """The control tokens that parse reads, and their texts. Their pieces have none."""
        with self._pointer as c:
            return {int(token): letters for token, letters in json.loads(text(raw.tsr_chat_markers(c))).items()}

    def encode(self, messages: Any, **options: Any) -> array.array[int]:
        """Its tokens; Generator.generate takes them."""
        data = messages_json(messages)
        with self._pointer as c, Options(options) as o:
            return arguments.counted("i", lambda ids: raw.tsr_chat_encode(c, o, data, ids, None))

    def encode_assistant(self, messages: Any, **options: Any) -> EncodedChat:
        """Also which tokens the assistant says: what a model is trained on."""
        data = messages_json(messages)
        count = len(data) + 1024
        with self._pointer as c, Options(options) as o:
            while True:
                ids, marks = array.array("i", bytes(4 * count)), array.array("B", bytes(count))
                needed = result(raw.tsr_chat_encode(c, o, data, ids, marks))
                if needed <= count:
                    return EncodedChat(ids[:needed], marks[:needed])
                count = needed
