#!/usr/bin/env python3
"""openai_agents_client.py URL MODEL: OpenAI's agents SDK over chat completions and Responses against a service with the scripted model."""
import asyncio
import importlib.metadata
import sys

import pydantic
from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled)
from openai import AsyncOpenAI
from rounds import ASK, CALL, HELLO, SEEN, TEMPERATURE, run, same

URL, MODEL = sys.argv[1:3]
set_tracing_disabled(True)


def models():
    client = AsyncOpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=60)
    return OpenAIChatCompletionsModel(model=MODEL, openai_client=client), OpenAIResponsesModel(model=MODEL, openai_client=client)


class Place(pydantic.BaseModel):
    city: str
    river: bool


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return TEMPERATURE if city == "Paris" else "unknown"


async def each(ask):
    for model in models():
        await ask(model)


def texts():
    async def ask(model):
        same((await Runner.run(Agent(name="brief", instructions="Be brief.", model=model), ASK)).final_output, HELLO)
    asyncio.run(each(ask))


def tool_round():
    async def ask(model):
        result = await Runner.run(Agent(name="weather", model=model, tools=[get_weather]), CALL)
        same(result.final_output, SEEN)
        again = await Runner.run(Agent(name="weather", model=model, tools=[get_weather]), result.to_input_list() + [{"role": "user", "content": ASK}])
        same(again.final_output, HELLO)
    asyncio.run(each(ask))


def streamed_round():
    async def ask(model):
        result = Runner.run_streamed(Agent(name="weather", model=model, tools=[get_weather]), CALL)
        kinds = [event.type async for event in result.stream_events()]
        same(result.final_output, SEEN)
        assert "raw_response_event" in kinds and "run_item_stream_event" in kinds
    asyncio.run(each(ask))


def output_type():
    async def ask(model):
        assert isinstance((await Runner.run(Agent(name="place", model=model, output_type=Place), ASK)).final_output, Place)
    asyncio.run(each(ask))


def obliged():
    async def ask(model):
        agent = Agent(name="weather", model=model, tools=[get_weather], model_settings=ModelSettings(tool_choice="required"),
                      tool_use_behavior="stop_on_first_tool")
        assert isinstance((await Runner.run(agent, ASK)).final_output, str)
    asyncio.run(each(ask))


run(f"openai-agents {importlib.metadata.version('openai-agents')}", [texts, tool_round, streamed_round, output_type, obliged])
