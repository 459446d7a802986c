#!/usr/bin/env python3
"""pydantic_ai_client.py URL MODEL: pydantic-ai's agents over three dialects against a service with the scripted model."""
import importlib.metadata
import sys

import pydantic
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from rounds import ASK, CALL, HELLO, SEEN, TEMPERATURE, run, same

URL, MODEL = sys.argv[1:3]
openai = OpenAIProvider(base_url=URL + "/v1", api_key="none")
MODELS = {"chat": OpenAIChatModel(MODEL, provider=openai), "responses": OpenAIResponsesModel(MODEL, provider=openai),
          "messages": AnthropicModel(MODEL, provider=AnthropicProvider(base_url=URL, api_key="none"))}


class Place(pydantic.BaseModel):
    """A place."""
    city: str
    river: bool


def texts():
    for model in MODELS.values():
        result = Agent(model, instructions="Be brief.").run_sync(ASK)
        same(result.output, HELLO)


def streamed():
    import asyncio

    async def ask(model):
        async with Agent(model).run_stream(ASK) as result:
            return await result.get_output()

    for model in MODELS.values():
        same(asyncio.run(ask(model)), HELLO)


def tool_round():
    for model in MODELS.values():
        agent = Agent(model)

        @agent.tool_plain
        def get_weather(city: str) -> str:
            """The weather of a city."""
            return TEMPERATURE if city == "Paris" else "unknown"

        result = agent.run_sync(CALL)
        same(result.output, SEEN)
        same(agent.run_sync(ASK, message_history=result.all_messages()).output, HELLO)


def output(form, names):
    for name in names:
        assert isinstance(Agent(MODELS[name], output_type=form, retries=0).run_sync(ASK).output, Place), name


def native_output():
    output(NativeOutput(Place), ["chat", "responses"])


def tool_output():
    output(ToolOutput(Place), ["chat", "responses", "messages"])


run(f"pydantic-ai-slim {importlib.metadata.version('pydantic-ai-slim')}", [texts, streamed, tool_round, native_output, tool_output])
