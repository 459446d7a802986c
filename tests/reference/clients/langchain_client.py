#!/usr/bin/env python3
"""langchain_client.py URL MODEL: langchain-openai, langchain-anthropic and langchain-ollama against a service with the scripted model."""
import importlib.metadata
import sys

import pydantic
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from rounds import ASK, CALL, HELLO, SEEN, TEMPERATURE, run, same

URL, MODEL = sys.argv[1:3]
OPENAI = {"model": MODEL, "base_url": URL + "/v1", "api_key": "none", "max_retries": 0, "timeout": 60}
chat = ChatOpenAI(**OPENAI)
responses = ChatOpenAI(use_responses_api=True, **OPENAI)
anthropic = ChatAnthropic(model=MODEL, base_url=URL, api_key="none", max_retries=0, timeout=60, max_tokens=300)
local = ChatOllama(model=MODEL, base_url=URL)


class Place(pydantic.BaseModel):
    """A place."""
    city: str = pydantic.Field(description="its name")
    river: bool = pydantic.Field(description="whether it has one")


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return TEMPERATURE if city == "Paris" else "unknown"


def texts(model):
    reply = model.invoke(ASK)
    same(reply.text if isinstance(reply.text, str) else reply.text(), HELLO)
    assert reply.usage_metadata["output_tokens"] > 0 and reply.usage_metadata["input_tokens"] > 0
    whole = None
    for piece in model.stream(ASK):
        whole = piece if whole is None else whole + piece
    same(whole.text if isinstance(whole.text, str) else whole.text(), HELLO)


def round_of(model):
    bound = model.bind_tools([get_weather])
    for streamed in (False, True):
        messages = [HumanMessage(CALL)]
        if streamed:
            reply = None
            for piece in bound.stream(messages):
                reply = piece if reply is None else reply + piece
        else:
            reply = bound.invoke(messages)
        [call] = reply.tool_calls
        assert call["name"] == "get_weather" and call["args"] == {"city": "Paris"}, call
        messages += [reply, ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])]
        same(bound.invoke(messages).content if model is not responses and model is not anthropic else str(bound.invoke(messages).text), SEEN)


def openai_chat():
    texts(chat)
    round_of(chat)


def openai_responses():
    texts(responses)
    round_of(responses)


def anthropic_messages():
    texts(anthropic)
    round_of(anthropic)


def ollama_chat():
    texts(local)
    round_of(local)


def openai_structured():
    assert isinstance(chat.with_structured_output(Place).invoke(ASK), Place)
    assert isinstance(chat.with_structured_output(None, method="json_mode").invoke(ASK + " In JSON."), dict)  # of no schema


def openai_structured_by_call():
    assert isinstance(chat.with_structured_output(Place, method="function_calling").invoke(ASK), Place)


def responses_structured():
    assert isinstance(responses.with_structured_output(Place).invoke(ASK), Place)


def anthropic_structured():
    assert isinstance(anthropic.with_structured_output(Place, method="json_schema").invoke(ASK), Place)


def anthropic_structured_by_call():
    assert isinstance(anthropic.with_structured_output(Place).invoke(ASK), Place)


def ollama_structured():
    assert isinstance(local.with_structured_output(Place).invoke(ASK), Place)


def openai_logprobs():
    assert chat.bind(logprobs=True, top_logprobs=2).invoke(ASK).response_metadata["logprobs"]["content"]


def embeddings():
    one = OpenAIEmbeddings(model=MODEL, base_url=URL + "/v1", api_key="none", check_embedding_ctx_length=False).embed_documents(["a river", "a sea"])
    other = OllamaEmbeddings(model=MODEL, base_url=URL).embed_documents(["a river", "a sea"])
    assert len(one) == len(other) == 2 and len(one[0]) == len(other[0])


names = ", ".join(f"{name} {importlib.metadata.version('langchain-' + name)}" for name in ("openai", "anthropic", "ollama"))
run(f"langchain: {names}", [openai_chat, openai_responses, anthropic_messages, ollama_chat, openai_structured, openai_structured_by_call,
                            responses_structured, anthropic_structured, anthropic_structured_by_call, ollama_structured, openai_logprobs, embeddings])
