#!/usr/bin/env python3
"""instructor_client.py URL MODEL: instructor over OpenAI's and Anthropic's clients against a service with the scripted model."""
import importlib.metadata
import sys

import anthropic
import instructor
import openai
import pydantic
from rounds import ASK, run

URL, MODEL = sys.argv[1:3]
chat = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=60)
messages = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0, timeout=60)
USER = [{"role": "user", "content": ASK}]


class Place(pydantic.BaseModel):
    """A place."""
    city: str
    river: bool
    names: list[str]


def ask(client, **settings):
    found, reply = client.chat.completions.create_with_completion(model=MODEL, messages=USER, response_model=Place, max_retries=0, **settings)
    assert isinstance(found, Place) and reply.usage, found


def tools():
    ask(instructor.from_openai(chat, mode=instructor.Mode.TOOLS))


def json_schema():
    ask(instructor.from_openai(chat, mode=instructor.Mode.JSON_SCHEMA))


def responses_tools():
    mode = getattr(instructor.Mode, "RESPONSES_TOOLS", None)
    if mode is None:
        return "this version has no such mode"
    found = instructor.from_openai(chat, mode=mode).responses.create(model=MODEL, input=ASK, response_model=Place, max_retries=0)
    assert isinstance(found, Place)


def partial():
    client = instructor.from_openai(chat, mode=instructor.Mode.JSON_SCHEMA)
    *_, last = client.chat.completions.create_partial(model=MODEL, messages=USER, response_model=Place, max_retries=0)
    assert isinstance(last.city, str) and isinstance(last.names, list)


def partial_tools():
    client = instructor.from_openai(chat, mode=instructor.Mode.TOOLS)
    *_, last = client.chat.completions.create_partial(model=MODEL, messages=USER, response_model=Place, max_retries=0)
    assert isinstance(last.city, str) and isinstance(last.names, list)


def anthropic_tools():
    ask(instructor.from_anthropic(messages, mode=instructor.Mode.ANTHROPIC_TOOLS), max_tokens=300)


run(f"instructor {importlib.metadata.version('instructor')}", [tools, json_schema, responses_tools, partial, partial_tools, anthropic_tools])
