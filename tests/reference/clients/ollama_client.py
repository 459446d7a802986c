#!/usr/bin/env python3
"""ollama_client.py URL MODEL: the official client of Ollama against a service with the scripted model."""
import importlib.metadata
import json
import sys

import ollama
from rounds import ASK, CALL, GREETING, HELLO, SCHEMA, SEEN, TEMPERATURE, THOUGHT, run, same

URL, MODEL = sys.argv[1:3]
client = ollama.Client(host=URL, timeout=60)
USER = [{"role": "user", "content": ASK}]


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: its name
    """
    return TEMPERATURE if city == "Paris" else "unknown"


def chat():
    reply = client.chat(MODEL, USER)
    same(reply.message.content, HELLO)
    assert reply.done and reply.done_reason == "stop" and reply.prompt_eval_count > 0 and reply.eval_count > 0 and reply.total_duration > 0


def chat_streamed():
    pieces = list(client.chat(MODEL, USER, stream=True))
    same("".join(piece.message.content or "" for piece in pieces), HELLO)
    assert [piece.done for piece in pieces].count(True) == 1 and pieces[-1].done and len(pieces) > 2


def generate():
    reply = client.generate(MODEL, ASK)
    same(reply.response, HELLO)
    assert reply.done and client.generate(MODEL, ASK, options={"num_predict": 2}).done_reason == "length"
    same("".join(piece.response for piece in client.generate(MODEL, ASK, stream=True)), HELLO)


def tool_round():
    for stream in (False, True):
        messages = [{"role": "user", "content": CALL}]
        found = client.chat(MODEL, messages, tools=[get_weather], stream=stream)
        messages += [piece.message for piece in found] if stream else [found.message]
        [call] = [call for message in messages[1:] for call in message.tool_calls or []]
        assert call.function.name == "get_weather"
        messages.append({"role": "tool", "tool_name": "get_weather", "content": get_weather(**call.function.arguments)})
        same(client.chat(MODEL, messages, tools=[get_weather]).message.content, SEEN)


def thinking():
    reply = client.chat(MODEL, USER, think=True)
    same(reply.message.thinking, THOUGHT)
    same(reply.message.content, GREETING)
    same(client.generate(MODEL, ASK, think=True).thinking, THOUGHT)


def structured():
    assert isinstance(json.loads(client.chat(MODEL, USER, format=SCHEMA).message.content)["city"], str)
    json.loads(client.generate(MODEL, ASK, format="json").response)


def models():
    assert MODEL in {model.model.removesuffix(":latest") for model in client.list().models}
    shown = client.show(MODEL)
    assert shown.template and shown.details.family and "completion" in shown.capabilities and shown.modelinfo
    client.ps()


def embeddings():
    reply = client.embed(MODEL, ["a river", "a sea"])
    assert len(reply.embeddings) == 2 and len(reply.embeddings[0]) == len(reply.embeddings[1]) > 0
    assert len(client.embeddings(MODEL, "a river").embedding) == len(reply.embeddings[0])


def errors():
    for call, status in ((lambda: client.chat("none of these", USER), 404), (lambda: client.chat(MODEL, USER, options={"temperature": -1}), 400)):
        try:
            call()
        except ollama.ResponseError as error:
            assert error.status_code == status and error.error, error
            continue
        raise AssertionError("was served")


run(f"ollama {importlib.metadata.version('ollama')}", [chat, chat_streamed, generate, tool_round, thinking, structured, models, embeddings, errors])
