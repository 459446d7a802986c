#!/usr/bin/env python3
"""llama_index_client.py URL MODEL: llama-index's OpenAI-like model against a service with the scripted model."""
import importlib.metadata
import sys

import pydantic
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from rounds import ASK, CALL, HELLO, SEEN, TEMPERATURE, run, same

URL, MODEL = sys.argv[1:3]
SETTINGS = {"model": MODEL, "api_base": URL + "/v1", "api_key": "none", "is_chat_model": True, "is_function_calling_model": True,
            "context_window": 4096, "max_retries": 0, "timeout": 60}
model = OpenAILike(**SETTINGS)
USER = [ChatMessage(role="user", content=ASK)]


class Place(pydantic.BaseModel):
    """A place."""
    city: str
    river: bool


def get_weather(city: str) -> str:
    """The weather of a city."""
    return TEMPERATURE if city == "Paris" else "unknown"


WEATHER = FunctionTool.from_defaults(get_weather)


def chat():
    same(model.chat(USER).message.content, HELLO)
    *_, last = model.stream_chat(USER)
    same(last.message.content, HELLO)


def complete():
    same(model.complete(ASK).text, HELLO)
    plain = OpenAILike(**{**SETTINGS, "is_chat_model": False})
    assert plain.complete("The rivers").text
    *_, last = plain.stream_complete("The rivers")
    assert last.text == plain.complete("The rivers").text


def tool_round():
    for streamed in (False, True):
        messages = [ChatMessage(role="user", content=CALL)]
        if streamed:
            *_, reply = model.stream_chat_with_tools([WEATHER], chat_history=messages)
        else:
            reply = model.chat_with_tools([WEATHER], chat_history=messages)
        [call] = model.get_tool_calls_from_response(reply)
        assert call.tool_name == "get_weather" and call.tool_kwargs == {"city": "Paris"}, call
        result = ChatMessage(role="tool", content=get_weather(**call.tool_kwargs), additional_kwargs={"tool_call_id": call.tool_id})
        same(model.chat_with_tools([WEATHER], chat_history=[*messages, reply.message, result]).message.content, SEEN)


def agent():
    import asyncio
    from llama_index.core.agent.workflow import FunctionAgent

    async def ask():
        return str(await FunctionAgent(tools=[get_weather], llm=model, system_prompt="Be brief.").run(CALL))

    same(asyncio.run(ask()), SEEN)


def structured():
    found = OpenAILike(should_use_structured_outputs=True, **SETTINGS).as_structured_llm(Place).chat(USER)
    assert isinstance(found.raw, Place), found


def structured_by_call():
    assert isinstance(model.as_structured_llm(Place).chat(USER).raw, Place)


run(f"llama-index-llms-openai-like {importlib.metadata.version('llama-index-llms-openai-like')}",
    [chat, complete, tool_round, agent, structured, structured_by_call])
