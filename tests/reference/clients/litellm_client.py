#!/usr/bin/env python3
"""litellm_client.py URL MODEL: litellm's three routes against a service with the scripted model. It reads its own table of prices, not the net's."""
import importlib.metadata
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402
import pydantic  # noqa: E402
from rounds import ASK, CALL, HELLO, SCHEMA, SEEN, TEMPERATURE, run, same  # noqa: E402

URL, MODEL = sys.argv[1:3]
litellm.telemetry = False
ROUTES = {"openai/": URL + "/v1", "anthropic/": URL, "ollama_chat/": URL, "hosted_vllm/": URL + "/v1"}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": SCHEMA}}


class Place(pydantic.BaseModel):
    city: str
    river: bool


def ask(route, messages, **settings):
    return litellm.completion(model=route + MODEL, api_base=ROUTES[route], api_key="none", messages=messages, max_retries=0, timeout=60,
                              max_tokens=300, **settings)


def user(text):
    return {"role": "user", "content": text}


def texts():
    for route in ROUTES:
        reply = ask(route, [user(ASK)])
        same(reply.choices[0].message.content, HELLO)
        assert reply.usage.completion_tokens > 0, route


def streamed():
    for route in ROUTES:
        said = "".join(piece.choices[0].delta.content or "" for piece in ask(route, [user(ASK)], stream=True))
        same(said, HELLO)


def tool_round():
    for route in ROUTES:
        messages = [user(CALL)]
        message = ask(route, messages, tools=[WEATHER]).choices[0].message
        [call] = message.tool_calls
        assert call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Paris"}, call
        messages += [message.model_dump(), {"role": "tool", "tool_call_id": call.id, "name": "get_weather", "content": TEMPERATURE}]
        same(ask(route, messages, tools=[WEATHER]).choices[0].message.content, SEEN)


def tool_round_streamed():
    for route in ROUTES:
        pieces = list(ask(route, [user(CALL)], tools=[WEATHER], stream=True))
        whole = litellm.stream_chunk_builder(pieces)
        [call] = whole.choices[0].message.tool_calls
        assert json.loads(call.function.arguments) == {"city": "Paris"} and whole.choices[0].finish_reason == "tool_calls", (route, whole)


def structured():
    for route in ("openai/", "hosted_vllm/", "ollama_chat/"):
        Place.model_validate_json(ask(route, [user(ASK)], response_format=Place).choices[0].message.content)


def responses():
    reply = litellm.responses(model="openai/" + MODEL, api_base=URL + "/v1", api_key="none", input=ASK)
    same(reply.output[-1].content[0].text, HELLO)


def text_completion():
    assert litellm.text_completion(model="text-completion-openai/" + MODEL, api_base=URL + "/v1", api_key="none", prompt="The rivers").choices[0].text


def embeddings():
    assert len(litellm.embedding(model="openai/" + MODEL, api_base=URL + "/v1", api_key="none", input=["a river", "a sea"]).data) == 2


def errors():
    for route in ("openai/", "anthropic/"):
        try:
            litellm.completion(model=route + "none-of-these", api_base=ROUTES[route], api_key="none", messages=[user(ASK)], max_retries=0)
        except litellm.NotFoundError:
            continue
        raise AssertionError("was served")


run(f"litellm {importlib.metadata.version('litellm')}", [texts, streamed, tool_round, tool_round_streamed, structured, responses, text_completion, embeddings,
                                                         errors])
