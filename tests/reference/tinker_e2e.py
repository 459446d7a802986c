#!/usr/bin/env python3
"""tinker_e2e.py URL MODEL: what Tinker's public live suite asks of a service, asked of this one, by Tinker's SDK as PyPI has it.

    tessera-serve stories260K.gguf --state FOLDER --port 8091 &
    TINKER_API_KEY=tml-local python tinker_e2e.py http://127.0.0.1:8091 stories260K [--only NAME ...]

The environments of that suite are replaced: its base is MODEL, a small one that is served, and its tokenizer the service's own, or with a
folder MODEL of transformers in the working folder that one too. The SDK is the one that is installed: 0.24.1, 0.30.4 and 0.38.0 are checked;
what one lacks is asked over HTTP, or said to be left out. Each check prints a line; the exit status is 1 where one fails. Where the service
asks for keys, TINKER_API_KEY is one with the scopes infer and train, and a wrong one is tried too."""

import argparse
import asyncio
import io
import json
import math
import os
import pickle
import tarfile
import urllib.error
import urllib.request

from tinker_sdk import KEY, check, datum_of, end, logprobs_of, overfit, sampled, text_of, tokens_of

import numpy as np
import tinker
from tinker import types

TEXT = "The old lighthouse keeper painted every door blue."
RANK = 8
RATE = 1e-3
NEAR = 0.05  # of a loss: passes over equal weights
LIFE = 3600  # seconds
TEMPLATE = "{% for one in messages %}{{ one.role }}: {{ one.content }}\n{% endfor %}assistant:"


def done(given):
    """The result of what is a future in some versions of the SDK, and itself in others."""
    return given.result() if hasattr(given, "result") else given


def http(base, method, path, body=None, key=KEY):
    """The status and the reply of a call without the SDK."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(base + path, None if body is None else json.dumps(body).encode(), headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def refused(name, call, *words, kind=Exception):
    """A check that a call fails with an error that has the words."""
    try:
        done(call())
    except kind as error:
        check(name, all(word in str(error) for word in words), str(error)[:110])
    else:
        check(name, False, "nothing failed")


def left_out(name):
    print(f"skipped: tinker {tinker.__version__} has no {name}", flush=True)


class Suite:
    """What all checks share."""

    def __init__(self, base, model):
        self.base, self.model = base, model
        self.service = tinker.ServiceClient(base_url=base, user_metadata={"suite": "e2e"})
        self.rest = self.service.create_rest_client()
        self.tokens = tokens_of(base, model, TEXT)

    def trainer(self, **settings):
        return done(self.service.create_lora_training_client(base_model=self.model, rank=RANK, **settings))

    def sampler(self, **settings):
        return done(self.service.create_sampling_client(**settings))

    def batch(self, tokens=None):
        tokens = tokens or self.tokens
        return [datum_of(tokens, weights=np.ones(len(tokens) - 1))]

    def loss(self, client):
        return client.forward(self.batch(), "cross_entropy").result().metrics["loss:sum"]

    def delete(self, path):
        self.rest.delete_checkpoint_from_tinker_path(path).result()


def check_identity(s):
    who = s.rest.whoami().result()
    check("whoami", who.user_urn.startswith("tml:organization_user:"), who.user_urn)
    if http(s.base, "GET", "/v1/models", key="")[0] != 401:
        print("skipped: the service asks for no key", flush=True)
        return
    wrong = tinker.ServiceClient(base_url=s.base, api_key="tml-" + "0" * 60)
    refused("a wrong key", lambda: wrong.create_rest_client().whoami(), "401", kind=tinker.AuthenticationError)


def check_capabilities(s):
    found = [one.model_name for one in done(s.service.get_server_capabilities()).supported_models]
    check("capabilities name the model", s.model in found and all(found), found)

    async def both():
        return await s.rest.whoami(), await s.service.get_server_capabilities_async()
    who, capabilities = asyncio.run(both())
    check("the same from a loop of one's own", bool(who.user_urn and capabilities.supported_models))
    sampler = s.sampler(base_model=s.model)
    check("a sampler names its base", sampler.get_base_model() == s.model)
    if os.path.isdir(s.model):
        mine = sampler.get_tokenizer().encode(TEXT)
        check("get_tokenizer reads the folder and agrees with the service", mine == s.tokens, mine[:6])


def check_recital(s):
    """Trained weights are those that are served: their base cannot recite the text from its first token."""
    client = s.trainer()
    info = client.get_info()
    check("get_info", info.is_lora and info.lora_rank == RANK and bool(info.model_data.tokenizer_id), info.model_data.tokenizer_id)
    losses = overfit(client, s.tokens, RATE, 30)
    check("a text is learnt below 0.05 in 30 steps", losses[-1] < 0.05, f"{losses[0]:.3f} -> {losses[-1]:.4f}")
    path = client.save_weights_for_sampler("recital", ttl_seconds=LIFE).result().path
    wanted = s.tokens[1:]
    try:
        found = sampled(s.sampler(model_path=path), s.tokens[:1], max_tokens=len(wanted), temperature=0.0, seed=0).sequences[0]
        check("a checkpoint recites it", list(found.tokens) == wanted, text_of(s.base, s.model, found.tokens))
    finally:
        s.delete(path)
    live = done(client.save_weights_and_get_sampling_client())
    found = sampled(live, s.tokens[:1], max_tokens=len(wanted), temperature=0.0, seed=0).sequences[0]
    check("weights in memory recite it", list(found.tokens) == wanted)
    base = sampled(s.sampler(base_model=s.model), s.tokens[:1], max_tokens=len(wanted), temperature=0.0, seed=0).sequences[0]
    check("the base does not", list(base.tokens) != wanted, text_of(s.base, s.model, base.tokens))


def check_agreement(s):
    """A new adapter changes nothing: trainer and sampler both read the base."""
    output = s.trainer().forward(s.batch(), "cross_entropy").result()
    trainer = logprobs_of(output)
    scored = s.sampler(base_model=s.model).compute_logprobs(types.ModelInput.from_ints(s.tokens)).result()
    check("the first token has no log probability", scored[0] is None and len(scored) == len(s.tokens))
    apart = max(abs(a - b) for a, b in zip(scored[1:], trainer))
    check("trainer and sampler agree", apart < 1e-4, f"{apart:.1e}")
    each = np.asarray(output.loss_fn_outputs[0]["elementwise_loss"].tolist())
    check("a loss for each token", len(each) == len(trainer) and (each >= 0).all() and abs(each.sum() - output.metrics["loss:sum"]) < 1e-3)


def check_samples(s):
    sampler = s.sampler(base_model=s.model)
    one = sampled(sampler, s.tokens[:5], max_tokens=16, temperature=0.0, seed=0).sequences[0]
    sound = len(one.logprobs) == len(one.tokens) and all(math.isfinite(value) and value <= 0 for value in one.logprobs)
    check("a text with log probabilities", 0 < len(one.tokens) <= 16 and sound)
    check("several texts", len(sampled(sampler, s.tokens[:5], max_tokens=16, num_samples=3, temperature=0.0).sequences) == 3)
    short = sampled(sampler, s.tokens[:5], max_tokens=2, temperature=0.0).sequences[0]
    check("a text as long as it may be", len(short.tokens) == 2 and short.stop_reason == "length", short.stop_reason)
    clone = pickle.loads(pickle.dumps(sampler))
    check("a copy of the client, as other processes have it", list(sampled(clone, s.tokens[:5], max_tokens=16, temperature=0.0, seed=0).sequences[0].tokens)
          == list(one.tokens))


def check_futures(s):
    """Requests that are sent without waiting are done in their order, and many samples at once each have their own result."""
    client = s.trainer(seed=3)
    sent = []
    for _ in range(3):
        sent += [client.forward_backward(s.batch(), "cross_entropy"), client.optim_step(types.AdamParams(learning_rate=5 * RATE))]
    losses = [each.result().metrics["loss:sum"] for each in sent[::2]]
    check("passes and steps in their order", losses[0] > losses[1] > losses[2], [round(loss, 2) for loss in losses])
    check("a result is given again", sent[0].result().metrics["loss:sum"] == losses[0])
    sampler = s.sampler(base_model=s.model)

    async def many():
        return await asyncio.gather(*(sampler.sample_async(prompt=types.ModelInput.from_ints(s.tokens[: 2 + i % 5]), num_samples=1,
                                                           sampling_params=types.SamplingParams(max_tokens=4, temperature=0.0)) for i in range(40)))
    found = [tuple(one.sequences[0].tokens) for one in asyncio.run(many())]
    check("40 samples at once, each of its prompt", len(found) == 40 and all(found[i] == found[i % 5] for i in range(40)))


def check_reinforcement(s):
    """Samples of the base train an adapter by what they are worth."""
    client, sampler, prompt = s.trainer(), s.sampler(base_model=s.model), s.tokens[:6]
    drawn = sampled(sampler, prompt, max_tokens=8, temperature=1.0, seed=0).sequences[0]
    tokens, zeros = prompt + list(drawn.tokens), [0.0] * (len(prompt) - 1)
    for loss in ("importance_sampling", "ppo", "cispo", "dro", "gspo"):
        worth = {"logprobs": zeros + list(drawn.logprobs), "advantages": zeros + [1.0] * len(drawn.tokens)}
        if loss == "gspo":
            worth["sequence_ratio_mask"] = zeros + [1.0] * len(drawn.tokens)
        before = logprobs_of(client.forward([datum_of(tokens, weights=np.ones(len(tokens) - 1))], "cross_entropy").result())[len(zeros):]
        output = client.forward_backward([datum_of(tokens, **worth)], loss).result()
        client.optim_step(types.AdamParams(learning_rate=1e-4)).result()
        after = logprobs_of(client.forward([datum_of(tokens, weights=np.ones(len(tokens) - 1))], "cross_entropy").result())[len(zeros):]
        check(f"{loss} makes what was worth it likelier", bool(output.loss_fn_outputs) and after.sum() > before.sum(), f"{after.sum() - before.sum():+.3f}")


def check_custom(s):
    """A loss that the client computes: its slopes are the weights of cross_entropy, of any sign."""
    client = s.trainer(seed=5)
    try:
        import torch
    except ImportError:
        torch = None

    def step(target):
        """The square of the distance to a log probability for each token."""
        known = logprobs_of(client.forward(s.batch(), "cross_entropy").result())
        if torch is not None:
            client.forward_backward_custom(s.batch(), lambda data, found: (sum(((one - target) ** 2).sum() for one in found), {})).result()
        else:
            client.forward_backward([datum_of(s.tokens, weights=-2 * (known - target))], "cross_entropy").result()
        client.optim_step(types.AdamParams(learning_rate=5 * RATE)).result()
        return float(((known - target) ** 2).sum())
    values = [step(-1.0) for _ in range(8)]
    check("a loss of one's own falls, by weights of both signs" if torch is None else "forward_backward_custom", values[-1] < values[0] / 2,
          f"{values[0]:.1f} -> {values[-1]:.1f}")
    status, reply = http(s.base, "POST", "/api/v1/create_custom_loss", {"session_id": "any"})
    check("a loss that the service would run is refused by name", status == 400 and b"forward_backward_custom" in reply, reply[:110].decode())


def check_state(s):
    client = s.trainer()
    first = s.loss(client)
    overfit(client, s.tokens, RATE, 4)
    trained = s.loss(client)
    check("steps lower the loss", first - trained > NEAR, f"{first:.2f} -> {trained:.2f}")
    path = client.save_state("state", ttl_seconds=LIFE).result().path
    try:
        info = s.rest.get_weights_info_by_tinker_path(path).result()
        check("weights_info", info.base_model == s.model and info.is_lora and info.lora_rank == RANK)
        built = s.loss(done(s.service.create_training_client_from_state(path)))
        check("a training from the checkpoint", abs(built - trained) < NEAR, f"{built - trained:.1e}")
        loaded = s.trainer()
        loaded.load_state(path).result()
        check("a checkpoint as a training's first request", abs(s.loss(loaded) - trained) < NEAR)
        refused("a checkpoint as a later request", lambda: loaded.load_state(path), "first request")
        resumed = done(s.service.create_training_client_from_state_with_optimizer(path))
        for one in (client, resumed):
            overfit(one, s.tokens, RATE, 1)
        apart = abs(s.loss(resumed) - s.loss(client))
        check("with the optimizer, the next step is the same", apart < NEAR, f"{apart:.1e}")
        bare = done(s.service.create_training_client_from_state(path))
        overfit(bare, s.tokens, RATE, 1)
        check("without, it is another", abs(s.loss(bare) - s.loss(client)) > 10 * apart)
    finally:
        s.delete(path)


def check_checkpoints(s):
    client = s.trainer(user_metadata={"for": "checkpoints"})
    path = client.save_weights_for_sampler("kept", ttl_seconds=LIFE).result().path
    run = types.ParsedCheckpointTinkerPath.from_tinker_path(path).training_run_id
    other = client.save_state("other").result().path

    def listed():
        return {one.tinker_path: one for one in s.rest.list_checkpoints(run).result().checkpoints}
    check("checkpoints of a run", set(listed()) == {path, other} and listed()[other].expires_at is None)
    mine = s.rest.list_user_checkpoints(limit=100).result()
    check("checkpoints of the caller", path in {one.tinker_path for one in mine.checkpoints} and mine.cursor.total_count >= 2)
    begun = listed()[path].expires_at
    s.rest.set_checkpoint_ttl_from_tinker_path(path, 3 * LIFE).result()
    check("a longer life", (listed()[path].expires_at - begun).total_seconds() > LIFE)
    refused("too short a life", lambda: s.rest.set_checkpoint_ttl_from_tinker_path(path, 60), "3600")
    s.rest.publish_checkpoint_from_tinker_path(path).result()
    check("published", listed()[path].public)
    s.rest.unpublish_checkpoint_from_tinker_path(path).result()
    check("and not any more", not listed()[path].public)
    refused("a name twice", lambda: client.save_state("other"), "exist")
    check_archive(s, path)
    check_runs(s, run, other)
    for each in (path, other):
        s.delete(each)
    check("deleted", not listed())
    refused("what was deleted is not sampled from", lambda: s.sampler(model_path=path), "404")


def check_archive(s, path):
    if hasattr(s.rest, "get_checkpoint_archive_url_from_tinker_path"):
        url = s.rest.get_checkpoint_archive_url_from_tinker_path(path).result().url
    else:
        run, kind, name = path.removeprefix("tinker://").split("/")
        url = json.loads(http(s.base, "GET", f"/api/v1/training_runs/{run}/checkpoints/{kind}/{name}/archive")[1])["url"]
    with urllib.request.urlopen(url, timeout=60) as reply:  # without a key
        names = tarfile.open(fileobj=io.BytesIO(reply.read())).getnames()
    check("an archive has an adapter of PEFT", {"adapter_config.json", "adapter_model.safetensors", "checkpoint_complete"} <= set(names), names)


def check_runs(s, run, checkpoint):
    [found] = [one for one in s.rest.list_training_runs(limit=100).result().training_runs if one.training_run_id == run]
    check("a run in the list", found.base_model == s.model and found.is_lora and found.model_owner.startswith("tml:organization_user:"), found.model_owner)
    again = s.rest.get_training_run(run).result()
    check("and alone", again.base_model == s.model and not again.corrupted and again.user_metadata == {"for": "checkpoints"}
          and again.last_checkpoint.tinker_path == checkpoint)


def check_copies(s):
    client = s.trainer()
    overfit(client, s.tokens, RATE, 2)
    loss, path = s.loss(client), client.save_state("source").result().path
    if hasattr(s.rest, "copy_weights"):
        copy = s.rest.copy_weights(path, "archive", ttl_seconds=LIFE).result()
    else:
        copy = json.loads(http(s.base, "POST", "/api/v1/copy_weights", {"source_path": path, "destination_project_id": "archive"})[1])["tinker_path"]
    s.delete(path)
    check("a copy outlives its source", abs(s.loss(done(s.service.create_training_client_from_state(copy))) - loss) < NEAR, copy)
    runs = json.loads(http(s.base, "GET", "/api/v1/training_runs?project_id=archive&limit=100")[1])["training_runs"]
    check("in its project", copy.split("/")[2] in {one["training_run_id"] for one in runs})
    s.delete(copy)
    if not hasattr(client, "save_weights_external"):
        left_out("save_weights_external")
        return
    made = client.save_weights_external("outside", ttl_seconds=LIFE).result().path
    links = s.rest.get_external_weights_urls(made).result().urls
    with urllib.request.urlopen(links["adapter_config.json"], timeout=60) as reply:
        check("weights for other programs, by links", json.load(reply)["r"] == RANK, sorted(links))
    refused("encrypted ones are refused by name", lambda: client.save_weights_external("locked", age_encryption_recipients=["age1"]), "age_encryption_recipients")
    s.delete(made)


def check_sessions(s):
    client = s.trainer()
    session = client.model_id.split(":train:")[0]
    check("sessions are listed", session in s.rest.list_sessions(limit=20).result().sessions)
    found = s.rest.get_session(session).result()
    check("a session has its runs and samplers", client.model_id in found.training_run_ids and getattr(found, "user_metadata", None) in (None, {"suite": "e2e"}))
    s.rest.assign_session_project(session, "suite").result()

    def search(**by):
        if hasattr(types, "SessionSearchRequest"):
            return [one.session_id for one in s.rest.search_sessions(types.SessionSearchRequest(**by)).result().sessions]
        return [one["session_id"] for one in json.loads(http(s.base, "POST", "/api/v1/sessions/search", by)[1])["sessions"]]
    check("found by project and metadata", search(project_ids=["suite"], user_metadata={"suite": "e2e"}) == [session])
    check("not in another project", search(project_ids=["none"]) == [])
    check("an active one", session in search(statuses=[{"type": "active"}], limit=200))
    s.rest.assign_session_project(session, "default").result()
    if not hasattr(tinker.ServiceClient, "close"):
        left_out("close")
        return
    with tinker.ServiceClient(base_url=s.base, user_metadata={"suite": "ended"}) as other:
        ended = done(other.create_lora_training_client(base_model=s.model, rank=RANK)).model_id.split(":train:")[0]
    check("a session that its client ended", ended in search(statuses=[{"type": "client_finished", "reasons": ["success"]}], limit=200))
    if hasattr(s.rest, "export_session_trace"):
        refused("a trace of it is refused by name", lambda: s.rest.export_session_trace(ended), "trace_export", "metrics")
    else:
        left_out("export_session_trace")


def check_chat(s):
    status, reply = http(s.base, "GET", "/oai/api/v1/models")
    body = json.loads(reply)
    check("/oai/api/v1/models", status == 200 and body["object"] == "list" and all(one["id"] and one["object"] == "model" for one in body["data"]))
    asked = {"model": s.model, "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 24, "temperature": 0}
    if http(s.base, "POST", "/oai/api/v1/chat/completions", asked)[0] == 400:
        asked["chat_template"] = TEMPLATE  # the model has none of its own
    status, reply = http(s.base, "POST", "/oai/api/v1/chat/completions", asked)
    body = json.loads(reply)
    choice = body.get("choices", [{}])[0]
    check("a chat's answer", status == 200 and body["object"] == "chat.completion" and body["model"] == s.model and choice["message"]["role"] == "assistant"
          and choice["message"]["content"].strip() != "" and choice["finish_reason"] in ("stop", "length") and body["usage"]["prompt_tokens"] > 0
          and body["usage"]["completion_tokens"] > 0, reply[:120].decode())
    status, reply = http(s.base, "POST", "/oai/api/v1/chat/completions", {**asked, "stream": True})
    data = [line.removeprefix("data: ") for line in reply.decode().splitlines() if line.startswith("data: ")]
    chunks = [json.loads(each) for each in data[:-1]]
    streamed = "".join(one["delta"].get("content") or "" for chunk in chunks for one in chunk["choices"])
    check("the same in pieces", status == 200 and data[-1] == "[DONE]" and all(one["object"] == "chat.completion.chunk" for one in chunks)
          and streamed == choice["message"]["content"])
    status, reply = http(s.base, "POST", "/oai/api/v1/completions", {"model": s.model, "prompt": "1 2 3", "max_tokens": 8, "temperature": 0})
    check("a completion", status == 200 and json.loads(reply)["choices"][0]["text"].strip() != "", reply[:110].decode())


def check_errors(s):
    refused("an unknown base", lambda: s.service.create_lora_training_client(base_model="none/such", rank=RANK), "404")
    refused("an unknown sampler", lambda: s.sampler(base_model="none/such"), "404")
    client = s.trainer()
    refused("an input that the loss has not", lambda: client.forward([datum_of(s.tokens, weights=np.ones(len(s.tokens) - 1), more=np.ones(len(s.tokens) - 1))], "cross_entropy"), "more")
    refused("a token beyond the vocabulary", lambda: client.forward(s.batch([1, 1 << 30]), "cross_entropy"))
    refused("a step without gradients", lambda: client.optim_step(types.AdamParams(learning_rate=RATE)))
    check("a failed request leaves the training sound", math.isfinite(s.loss(client)))
    status, reply = http(s.base, "POST", "/api/v1/retrieve_future", {"request_id": "none"})
    check("an unknown request", status == 410, reply[:110].decode())
    for method, path in (("GET", "/audit"), ("GET", "/auth/apikey/me"), ("DELETE", "/auth/apikey/me")):
        status, reply = http(s.base, method, "/api/v1" + path)
        check(f"{method} {path} is refused by name", status == 400 and path.encode() in reply and json.loads(reply)["category"] == "user")


CHECKS = {"identity": check_identity, "capabilities": check_capabilities, "recital": check_recital, "agreement": check_agreement, "samples": check_samples,
          "futures": check_futures, "reinforcement": check_reinforcement, "custom": check_custom, "state": check_state, "checkpoints": check_checkpoints,
          "copies": check_copies, "sessions": check_sessions, "chat": check_chat, "errors": check_errors}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("url")
    arguments.add_argument("model")
    arguments.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS))
    given = arguments.parse_args()
    print("tinker", tinker.__version__)
    suite = Suite(given.url, given.model)
    for name in given.only:
        try:
            CHECKS[name](suite)
        except Exception as error:  # the others are still of use
            check(f"{name} to its end", False, repr(error)[:300])
    end()


main()
