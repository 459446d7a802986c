#!/usr/bin/env python3
"""openai_clients.py URL [CHAT EMBEDDER RANKER]: the official client of OpenAI against a service.

Each check uses the client as its documentation does, and looks at what it makes of the replies: chat whole and in streams, the helper of
streams, tools, parsed answers, log probabilities, several texts, stops, usage, completions with echo, embeddings as base64 and numbers,
models, and the exceptions of errors. URL without /v1; CHAT, EMBEDDER and RANKER are names of models (default: chat, embed, rank, those of
service/dialect/fake/serve; "-" leaves their checks out). TESSERA_KEY is the key, if there is one. Needs openai (PyPI), 2 or 3; with
cohere installed that client reranks too. Never part of `./dev test`."""
import enum
import os
import sys
import traceback

import openai
import pydantic

URL = sys.argv[1].rstrip("/")
CHAT, EMBEDDER, RANKER = (sys.argv[2:] + ["chat", "embed", "rank"][len(sys.argv) - 2:])[:3]
KEY = os.environ.get("TESSERA_KEY", "none")
client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0, timeout=120)
HELLO = [{"role": "user", "content": "Say hello to the rivers of Europe."}]
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"], "additionalProperties": False}}}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": {
    "type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}}}
SHORT = {"model": CHAT, "max_tokens": 32, "temperature": 0, "seed": 1}


class Color(enum.Enum):
    red = "red"
    blue = "blue"


class Step(pydantic.BaseModel):
    explanation: str
    number: int


class Plan(pydantic.BaseModel):
    steps: list[Step]
    color: Color
    sure: bool


def whole():
    reply = client.chat.completions.create(messages=HELLO, **SHORT)
    [choice] = reply.choices
    assert reply.object == "chat.completion" and reply.id and reply.created > 0 and reply.model == CHAT
    assert choice.message.role == "assistant" and choice.message.content and choice.message.refusal is None
    assert choice.finish_reason in ("stop", "length") and choice.logprobs is None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert 0 < reply.usage.completion_tokens <= 32
    return choice.message.content


def streamed():
    said, roles, usage, finishes = "", [], None, []
    for chunk in client.chat.completions.create(messages=HELLO, stream=True, stream_options={"include_usage": True}, **SHORT):
        assert chunk.object == "chat.completion.chunk" and usage is None
        if not chunk.choices:
            usage = chunk.usage
            continue
        assert chunk.usage is None
        [choice] = chunk.choices
        said += choice.delta.content or ""
        roles += [choice.delta.role] if choice.delta.role else []
        finishes += [choice.finish_reason] if choice.finish_reason else []
    assert roles == ["assistant"] and len(finishes) == 1
    assert usage.completion_tokens > 0
    assert said == whole(), said


def stream_helper():
    events = []
    with client.chat.completions.stream(messages=HELLO, logprobs=True, **SHORT) as stream:
        for event in stream:
            events.append(event.type)
        final = stream.get_final_completion()
    assert "content.delta" in events and "content.done" in events and "logprobs.content.delta" in events
    assert final.choices[0].message.content == whole()


def tools():
    settings = {**SHORT, "max_tokens": 300}  # a call that is cut off is none
    for choice in ("required", {"type": "function", "function": {"name": "get_time"}}):
        reply = client.chat.completions.create(messages=HELLO, tools=[WEATHER, TIME], tool_choice=choice, **settings)
        [call, *_] = reply.choices[0].message.tool_calls
        assert reply.choices[0].finish_reason == "tool_calls" and call.type == "function" and call.id
        assert call.function.name == ("get_time" if choice != "required" else call.function.name)
        with client.chat.completions.stream(messages=HELLO, tools=[WEATHER, TIME], tool_choice=choice, **settings) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion()
        assert "tool_calls.function.arguments.done" in kinds
        assert final.choices[0].finish_reason == "tool_calls" and final.choices[0].message.tool_calls[0].function.arguments
    turn = [reply.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "12:00"}]
    reply = client.chat.completions.create(messages=HELLO + turn, tools=[WEATHER, TIME], tool_choice="none", **SHORT)
    assert not reply.choices[0].message.tool_calls and reply.choices[0].message.content is not None


def parsed():
    settings = {**SHORT, "max_tokens": 400}
    reply = client.chat.completions.parse(messages=HELLO, response_format=Plan, **settings)
    assert reply.choices[0].finish_reason == "length" or isinstance(reply.choices[0].message.parsed, Plan)
    tool = openai.pydantic_function_tool(Step)
    reply = client.chat.completions.parse(messages=HELLO, tools=[tool], tool_choice="required", **settings)
    assert isinstance(reply.choices[0].message.tool_calls[0].function.parsed_arguments, Step)
    again = HELLO + [reply.choices[0].message, {"role": "tool", "tool_call_id": reply.choices[0].message.tool_calls[0].id, "content": "done"}]
    client.chat.completions.create(messages=again, **SHORT)
    with client.chat.completions.stream(messages=HELLO, response_format=Plan, **settings) as stream:
        stream.until_done()
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Plan)


def json_object():
    reply = client.chat.completions.create(messages=HELLO, response_format={"type": "json_object"}, **SHORT)
    assert reply.choices[0].message.content.strip()[:1] == "{"
    for extra in ({"guided_choice": ["left", "right"]}, {"structured_outputs": {"choice": ["left", "right"]}}):
        reply = client.chat.completions.create(messages=HELLO, extra_body=extra, **SHORT)
        assert reply.choices[0].message.content in ("left", "right")


def logprobs():
    reply = client.chat.completions.create(messages=HELLO, logprobs=True, top_logprobs=3, **SHORT)
    places = reply.choices[0].logprobs.content
    assert len(places) >= reply.usage.completion_tokens - 1
    assert "".join(place.token for place in places).startswith(reply.choices[0].message.content[:5])
    for place in places:
        assert place.logprob <= 0 and len(place.top_logprobs) == 3 and bytes(place.bytes).decode(errors="replace") is not None


def several():
    reply = client.chat.completions.create(messages=HELLO, n=3, **SHORT)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    said = ["", "", ""]
    for chunk in client.chat.completions.create(messages=HELLO, n=3, stream=True, **SHORT):
        for choice in chunk.choices:
            said[choice.index] += choice.delta.content or ""
    assert said == [choice.message.content for choice in reply.choices]


def stopped():
    words = whole().split()
    reply = client.chat.completions.create(messages=HELLO, stop=[words[1]], **SHORT)
    assert words[1] not in reply.choices[0].message.content and reply.choices[0].finish_reason == "stop"


def settings():
    client.chat.completions.create(
        messages=[{"role": "developer", "content": "Be terse."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "Eva"}],
        top_p=0.9, presence_penalty=0.5, frequency_penalty=-0.5, logit_bias={"1": -5}, user="u", metadata={"a": "b"}, store=False,
        service_tier="auto", parallel_tool_calls=False, reasoning_effort="low", safety_identifier="s", prompt_cache_key="k",
        extra_body={"top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1, "min_tokens": 1, "chat_template_kwargs": {"enable_thinking": False}},
        **SHORT)


def thinking():
    reply = client.chat.completions.create(messages=HELLO, extra_body={"chat_template_kwargs": {"enable_thinking": True}}, **SHORT)
    thought = getattr(reply.choices[0].message, "reasoning_content", None)
    again = HELLO + [{"role": "assistant", "content": "Hm.", "reasoning_content": thought or "I thought."}] + HELLO
    client.chat.completions.create(messages=again, **SHORT)


def refused():
    for change, exception, param in (
            ({"model": "none of these"}, openai.NotFoundError, "model"), ({"temperature": 9}, openai.BadRequestError, "temperature"),
            ({"messages": []}, openai.BadRequestError, "messages"), ({"extra_body": {"temprature": 1}}, openai.BadRequestError, "temprature"),
            ({"audio": {"voice": "ash", "format": "wav"}}, openai.BadRequestError, "audio"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}]},
             openai.BadRequestError, "messages[0].content[0].type")):
        try:
            client.chat.completions.create(**{"messages": HELLO, **SHORT, **change})
        except exception as error:
            assert error.param == param and error.type and error.message, (error.param, param)
            continue
        raise AssertionError(f"{change} was served")
    try:
        client.completions.create(model=CHAT, prompt="a", suffix="b")
    except openai.BadRequestError as error:
        assert error.param == "suffix" and error.code == "unsupported_parameter"
        return
    raise AssertionError("suffix was served")


def completions():
    prompt = "The rivers of Europe are"
    reply = client.completions.create(model=CHAT, prompt=prompt, max_tokens=8, temperature=0, seed=1)
    text = reply.choices[0].text
    assert reply.object == "text_completion" and reply.choices[0].finish_reason in ("stop", "length") and text
    echoed = client.completions.create(model=CHAT, prompt=prompt, max_tokens=8, temperature=0, seed=1, echo=True, logprobs=2)
    found = echoed.choices[0].logprobs
    assert echoed.choices[0].text.strip().startswith(prompt) and echoed.choices[0].text.endswith(text)
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == len(found.text_offset)
    assert found.token_logprobs[0] is None and all(value <= 0 for value in found.token_logprobs[1:])
    for token, offset in zip(found.tokens, found.text_offset):
        assert token.startswith("bytes:") or echoed.choices[0].text[offset:].startswith(token), (token, offset)
    scored = client.completions.create(model=CHAT, prompt=prompt, max_tokens=0, echo=True, logprobs=0)
    assert scored.choices[0].text.strip() == prompt and scored.usage.completion_tokens == 0
    ids = client.post("/../tokenize", body={"model": CHAT, "prompt": prompt}, cast_to=object)["tokens"]
    many = client.completions.create(model=CHAT, prompt=[ids, ids], n=2, max_tokens=2, temperature=0, seed=1, echo=True)
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3] and prompt in many.choices[3].text
    pieces = {}
    for chunk in client.completions.create(model=CHAT, prompt=["a b", "c d"], max_tokens=3, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            pieces[choice.index] = pieces.get(choice.index, "") + choice.text
    assert sorted(pieces) == [0, 1] and chunk.usage.completion_tokens > 0


def embeddings():
    texts = ["Rhine", "Danube", "a longer text of rivers"]
    reply = client.embeddings.create(model=EMBEDDER, input=texts)  # the client asks for base64
    numbers = client.embeddings.create(model=EMBEDDER, input=texts, encoding_format="float")
    assert [item.index for item in reply.data] == [0, 1, 2] and reply.usage.total_tokens > 0
    for one, other in zip(reply.data, numbers.data):
        assert max(abs(a - b) for a, b in zip(one.embedding, other.embedding)) < 1e-6
    short = client.embeddings.create(model=EMBEDDER, input=texts[0], dimensions=4)
    assert len(short.data[0].embedding) == 4 and abs(sum(a * a for a in short.data[0].embedding) - 1) < 1e-5
    try:
        client.embeddings.create(model=EMBEDDER, input="")
    except openai.BadRequestError as error:
        assert error.param == "input"


def rerank():
    documents = ["The Danube runs through Vienna.", "Bread is baked.", "Rivers: the Danube and the Rhine."]
    body = {"model": RANKER, "query": "Danube Rhine", "documents": documents, "top_n": 2}
    reply = client.post("/rerank", body=body, cast_to=object)
    assert [item["index"] for item in reply["results"]] == [2, 0]
    assert reply["results"][0]["document"]["text"] == documents[2]
    scored = client.post("/score", body={"model": RANKER, "text_1": "Danube", "text_2": documents}, cast_to=object)
    assert len(scored["data"]) == 3 and scored["data"][1]["score"] < scored["data"][0]["score"]
    try:
        import cohere
    except ImportError:
        return "without cohere"
    for make in (cohere.ClientV2, cohere.Client):
        ranked = make(api_key=KEY, base_url=URL).rerank(model=RANKER, query="Danube Rhine", documents=documents, top_n=2)
        assert [item.index for item in ranked.results] == [2, 0] and ranked.results[0].relevance_score > ranked.results[1].relevance_score


def models():
    names = [model.id for model in client.models.list()]
    assert CHAT in names
    for name in names:
        assert client.models.retrieve(name).id == name
    listed = client.get("/models", cast_to=object)
    assert any(model["slug"] == CHAT and model["truncation_policy"] for model in listed["models"])
    try:
        client.models.retrieve("none")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found"


def main():
    checks = [whole, streamed, stream_helper, tools, parsed, json_object, logprobs, several, stopped, settings, thinking, refused, completions]
    checks = [] if CHAT == "-" else checks + [models]
    checks += [embeddings] * (EMBEDDER != "-") + [rerank] * (RANKER != "-")
    failed = 0
    for check in checks:
        try:
            note = check()
            print(f"ok      {check.__name__:15} {note or ''}"[:110])
        except Exception:
            failed += 1
            print(f"FAILED  {check.__name__}\n{traceback.format_exc()}")
    print(f"openai {openai.__version__}: {len(checks) - failed} passed, {failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
