#!/usr/bin/env python3
"""anthropic_client.py URL MODEL: the official client of Anthropic, 0.x or 2, against a service with the scripted model."""
import json
import sys

import anthropic
import pydantic
from rounds import ASK, CALL, GREETING, HELLO, SCHEMA, SEEN, TEMPERATURE, THOUGHT, run, same

URL, MODEL = sys.argv[1:3]
client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0, timeout=60)
WEATHER = {"name": "get_weather", "description": "The weather of a city.", "input_schema": SCHEMA}
SHORT = {"model": MODEL, "max_tokens": 300}


class Place(pydantic.BaseModel):
    city: str
    river: bool


def user(text):
    return {"role": "user", "content": text}


def text():
    reply = client.messages.create(messages=[user(ASK)], system="Be brief.", **SHORT)
    same(reply.content[0].text, HELLO)
    assert reply.type == "message" and reply.role == "assistant" and reply.stop_reason == "end_turn" and reply.stop_sequence is None
    assert reply.usage.input_tokens > 0 and reply.usage.output_tokens > 0 and reply.id.startswith("msg_") and reply._request_id


def bearer():
    reply = anthropic.Anthropic(base_url=URL, auth_token="none", api_key=None, max_retries=0).messages.create(messages=[user(ASK)], **SHORT)
    same(reply.content[0].text, HELLO)


def events():
    kinds = [event.type for event in client.messages.create(messages=[user(ASK)], stream=True, **SHORT)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"] and kinds.count("content_block_start") == 1, kinds


def stream():
    with client.messages.stream(messages=[user(ASK)], **SHORT) as found:
        same("".join(found.text_stream), HELLO)
        reply = found.get_final_message()
    assert reply.stop_reason == "end_turn" and reply.usage.output_tokens > 0


def round_of(ask):
    messages = [user(CALL)]
    reply = ask(messages)
    [call] = [block for block in reply.content if block.type == "tool_use"]
    assert reply.stop_reason == "tool_use" and call.name == "get_weather" and call.input == {"city": "Paris"}, reply
    messages += [{"role": "assistant", "content": reply.content}, user([{"type": "tool_result", "tool_use_id": call.id, "content": TEMPERATURE}])]
    same(ask(messages).content[0].text, SEEN)


def tool_round():
    round_of(lambda messages: client.messages.create(messages=messages, tools=[WEATHER], **SHORT))


def tool_round_streamed():
    def ask(messages):
        with client.messages.stream(messages=messages, tools=[WEATHER], **SHORT) as found:
            parts = [event.partial_json for event in found if event.type == "input_json"]
            reply = found.get_final_message()
        assert reply.stop_reason != "tool_use" or json.loads("".join(parts)) == {"city": "Paris"}
        return reply
    round_of(ask)


def tool_runner():
    if not hasattr(client.beta.messages, "tool_runner"):
        return "this version has none"

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: its name
        """
        return TEMPERATURE if city == "Paris" else "unknown"

    same(client.beta.messages.tool_runner(tools=[get_weather], messages=[user(CALL)], **SHORT).until_done().content[0].text, SEEN)


def tool_choice():
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}, {"type": "any", "disable_parallel_tool_use": True}):
        reply = client.messages.create(messages=[user(ASK)], tools=[WEATHER], tool_choice=choice, **SHORT)
        assert reply.stop_reason == "tool_use" and reply.content[-1].name == "get_weather" and isinstance(reply.content[-1].input["city"], str)
    reply = client.messages.create(messages=[user(CALL)], tools=[WEATHER], tool_choice={"type": "none"}, **SHORT)
    assert all(block.type == "text" for block in reply.content)


def thinking():
    setting = {"type": "enabled", "budget_tokens": 1024}
    asked = {"model": MODEL, "max_tokens": 2000, "thinking": setting}
    reply = client.messages.create(messages=[user(ASK)], **asked)
    thought, said = reply.content
    same(thought.thinking, THOUGHT)
    same(said.text, GREETING)
    assert thought.type == "thinking" and isinstance(thought.signature, str)
    client.messages.create(messages=[user(ASK), {"role": "assistant", "content": reply.content}, user(ASK)], **asked)
    with client.messages.stream(messages=[user(ASK)], **asked) as found:
        kinds = {event.type for event in found}
        same(found.get_final_message().content[0].thinking, THOUGHT)
    assert {"thinking", "text"} <= kinds, kinds


def thinking_displays():
    """Each display that this client's types know, in both of its surfaces."""
    for display in ("summarized", "omitted", "updates"):
        for setting in ({"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}):
            asked = {"model": MODEL, "max_tokens": 2000, "thinking": {**setting, "display": display}, "messages": [user(ASK)]}
            reply = client.beta.messages.create(betas=["thinking-display-updates-2026-08-18"], **asked)
            if setting["type"] == "enabled":
                same(reply.content[0].thinking, "" if display == "omitted" else THOUGHT)


def structured():
    schema = {**Place.model_json_schema(), "additionalProperties": False}
    form = {"format": {"type": "json_schema", "schema": schema}}
    reply = client.messages.create(messages=[user(ASK)], extra_body={"output_config": form}, **SHORT)
    Place.model_validate_json(reply.content[0].text)
    if not hasattr(client.messages, "parse"):
        return "this version has no parse"
    assert isinstance(client.messages.parse(messages=[user(ASK)], output_format=Place, **SHORT).parsed_output, Place)


def limits():
    reply = client.messages.create(messages=[user(ASK)], model=MODEL, max_tokens=2)
    assert reply.stop_reason == "max_tokens" and reply.usage.output_tokens == 2
    reply = client.messages.create(messages=[user(ASK)], stop_sequences=[" rivers"], **SHORT)
    assert reply.stop_reason == "stop_sequence" and reply.stop_sequence == " rivers" and reply.content[0].text == "Hello from all"


def count_tokens():
    counted = client.messages.count_tokens(messages=[user(ASK)], model=MODEL).input_tokens
    usage = client.messages.create(messages=[user(ASK)], **SHORT).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    assert client.messages.count_tokens(messages=[user(ASK)], model=MODEL, tools=[WEATHER]).input_tokens > counted


def blocks():
    """Shapes that agents send: system blocks with cache_control, documents of text, several results, metadata."""
    reply = client.messages.create(
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}], metadata={"user_id": "u"}, tools=[WEATHER],
        messages=[user([{"type": "text", "text": ASK, "cache_control": {"type": "ephemeral"}},
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "A river."}, "title": "T"}])], **SHORT)
    same(reply.content[0].text, HELLO)


def models():
    listed = list(client.models.list())
    [found] = [model for model in listed if model.id == MODEL]
    assert found.type == "model" and found.display_name and found.created_at.year >= 2024, found
    assert client.models.retrieve(MODEL).id == MODEL


def errors():
    for change, kind in (({"model": "none of these"}, anthropic.NotFoundError), ({"max_tokens": 0}, anthropic.BadRequestError),
                         ({"messages": []}, anthropic.BadRequestError), ({"extra_body": {"temperature": 3}}, anthropic.BadRequestError),
                         ({"messages": [user([{"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}])]}, anthropic.BadRequestError)):
        try:
            client.messages.create(**{"messages": [user(ASK)], **SHORT, **change})
        except kind as error:
            assert error.body["type"] == "error" and error.body["error"]["message"], error.body
            continue
        raise AssertionError(f"{change} was served")


run(f"anthropic {anthropic.__version__}", [text, bearer, events, stream, tool_round, tool_round_streamed, tool_runner, tool_choice, thinking,
                                           thinking_displays, structured, limits, count_tokens, blocks, models, errors])
