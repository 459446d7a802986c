#!/usr/bin/env python3
"""Tinker's official SDK, unchanged, against a running service: trainings by primitives.

    tessera-serve stories260K.gguf --state FOLDER --port 8091 &
    TINKER_TELEMETRY=0 python tinker_clients.py http://127.0.0.1:8091 stories260K

The SDK is the one that is installed: 0.24.1, which sends batches as JSON, and 0.38.0, which sends protobuf, are those that are
checked. Each check prints a line; the exit status is 1 where one fails. A restart between two calls with --resume PATH shows that
checkpoints outlive the service.
"""

import argparse
import math

from tinker_sdk import check, datum_of, end, logprobs_of, overfit, post, sampled, text_of, tokens_of

import numpy as np
import tinker
from tinker import types

SENTENCE = "Once upon a time there was a purple tractor that loved to sing opera."


def check_losses(client, tokens):
    """Passes without an update: a forward one, and the losses of reinforcement."""
    count = len(tokens) - 1
    forward = client.forward([datum_of(tokens, weights=np.ones(count))], "cross_entropy").result()
    known = logprobs_of(forward)
    check("forward has as many log probabilities as targets", len(known) == count)
    check("forward's loss is their sum", abs(forward.metrics["loss:sum"] + known.sum()) < 1e-3 * count, forward.metrics["loss:sum"])
    for loss in ("importance_sampling", "ppo", "cispo"):
        data = [datum_of(tokens, logprobs=known, advantages=np.ones(count))]
        found = client.forward_backward(data, loss).result().metrics["loss:sum"]
        wanted = -known.sum() if loss == "cispo" else -float(count)
        check(f"{loss} of its own samples", abs(found - wanted) < 1e-3 * count, found)
    drawn, advantages = known - 0.1 * np.cos(np.arange(count)), np.sin(np.arange(count))
    data = [datum_of(tokens, logprobs=drawn, advantages=advantages)]
    found = client.forward_backward(data, "dro", {"beta": 0.3}).result().metrics["loss:sum"]
    wanted = (0.15 * (known - drawn) ** 2 - known * advantages).sum()
    check("dro is its formula", abs(found - wanted) < 1e-3 * count, found)
    mask = np.arange(count) >= 3
    data = [datum_of(tokens, logprobs=drawn, advantages=advantages, sequence_ratio_mask=mask)]
    found = client.forward_backward(data, "gspo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}).result().metrics["loss:sum"]
    wanted = -np.exp((known - drawn)[mask].mean()) * advantages.sum()
    check("gspo is its formula", abs(found - wanted) < 1e-3 * count, found)
    try:
        client.forward_backward([datum_of(tokens, logprobs=known, advantages=np.ones(count))], "stable_reinforce").result()
        check("stable_reinforce is refused", False)
    except Exception as error:
        check("stable_reinforce is refused by name", "stable_reinforce" in str(error), str(error)[:110])


def check_many(client, tokens):
    """More sequences than a request takes: the SDK sends parts, the first last."""
    data = [datum_of(tokens[: 6 + i % 3], weights=np.ones(5 + i % 3)) for i in range(1100)]
    output = client.forward(data, "cross_entropy").result()
    check("1,100 sequences in two requests", len(output.loss_fn_outputs) == 1100)
    first, last = (np.asarray(output.loss_fn_outputs[i]["logprobs"].tolist()) for i in (0, 1098))
    check("equal sequences have equal log probabilities", len(first) == len(last) and float(np.abs(first - last).max()) < 1e-4)


def check_training(service, base, model):
    tokens = tokens_of(base, model, SENTENCE)
    client = service.create_lora_training_client(base_model=model, rank=16, seed=7)
    info = client.get_info()
    check("get_info", info.is_lora and info.lora_rank == 16 and info.model_data.model_name == model, info.model_data.model_name)
    losses = overfit(client, tokens, 5e-3, 30)
    check("a sentence is learnt below 0.05 in 30 steps", losses[-1] < 0.05, f"{losses[0]:.3f} -> {losses[-1]:.4f}")
    trained = logprobs_of(client.forward([datum_of(tokens, weights=np.ones(len(tokens) - 1))], "cross_entropy").result())
    saved = client.save_state("first").result().path
    check("save_state", saved.endswith("/weights/first"), saved)
    weights = client.save_weights_for_sampler("first").result().path
    check("save_weights_for_sampler", weights.endswith("/sampler_weights/first"), weights)
    sampler = service.create_sampling_client(model_path=weights)
    scored = sampler.compute_logprobs(types.ModelInput.from_ints(tokens)).result()
    apart = max(abs(a - b) for a, b in zip(scored[1:], trained))
    check("sampler and trainer agree within 1e-5", scored[0] is None and apart < 1e-5, f"{apart:.2e}")
    text = sampled(sampler, tokens[:6], max_tokens=len(tokens) - 6, temperature=0.0).sequences[0]
    check("the sentence is recited", list(text.tokens)[: len(tokens) - 6] == tokens[6:], text_of(base, model, text.tokens))
    check("texts have log probabilities", len(text.logprobs) == len(text.tokens) and all(math.isfinite(x) for x in text.logprobs))
    several = sampled(sampler, tokens[:4], max_tokens=8, temperature=1.0, seed=3, num_samples=4)
    check("four texts, with ids", len(several.sequences) == 4, [len(one.tokens) for one in several.sequences])
    again = sampled(sampler, tokens[:4], max_tokens=8, temperature=1.0, seed=3, num_samples=4)
    check("a seed repeats them", [list(a.tokens) for a in several.sequences] == [list(b.tokens) for b in again.sequences])
    ephemeral = client.save_weights_and_get_sampling_client()
    ephemeral = ephemeral.result() if hasattr(ephemeral, "result") else ephemeral
    text = sampled(ephemeral, tokens[:6], max_tokens=4, temperature=0.0).sequences[0]
    check("an ephemeral sampler", list(text.tokens) == tokens[6:10])
    check_losses(client, tokens)
    client.optim_step(types.AdamParams(learning_rate=0.0)).result()
    check_many(client, tokens)
    return saved, trained, tokens


def check_lists(service, saved):
    rest = service.create_rest_client()
    run = saved.split("/")[2]
    check("list_checkpoints", {c.checkpoint_id for c in rest.list_checkpoints(run).result().checkpoints} == {"weights/first", "sampler_weights/first"})
    check("training run", rest.get_training_run(run).result().training_run_id == run)
    sampler = saved.replace("/weights/", "/sampler_weights/")
    rest.set_checkpoint_ttl_from_tinker_path(sampler, 7200).result()
    rest.publish_checkpoint_from_tinker_path(sampler).result()
    [found] = [c for c in rest.list_checkpoints(run).result().checkpoints if c.checkpoint_id == "sampler_weights/first"]
    check("a checkpoint is public and expires", found.public and found.expires_at is not None and found.size_bytes > 0, found.expires_at)
    rest.unpublish_checkpoint_from_tinker_path(sampler).result()
    check("list_user_checkpoints", rest.list_user_checkpoints(limit=1).result().cursor.total_count >= 2)
    check("weights_info", rest.get_weights_info_by_tinker_path(saved).result().lora_rank == 16)


def check_resumed(service, base, model, saved, trained, tokens):
    client = service.create_training_client_from_state_with_optimizer(saved)
    client = client.result() if hasattr(client, "result") else client
    if tokens is None:
        tokens = tokens_of(base, model, SENTENCE)
    loaded = logprobs_of(client.forward([datum_of(tokens, weights=np.ones(len(tokens) - 1))], "cross_entropy").result())
    if trained is not None:
        check("a loaded state computes what the saved one did", float(np.abs(loaded - trained).max()) == 0.0, f"{np.abs(loaded - trained).max():.1e}")
    check("the loaded state knows the sentence", -loaded.mean() < 0.05, f"{-loaded.mean():.4f}")
    losses = overfit(client, tokens, 1e-3, 3)
    check("and goes on", losses[-1] < 0.05, f"{losses[-1]:.4f}")


def check_chat(base, model, weights):
    found = post(base, "/oai/api/v1/completions", {"model": weights, "prompt": "Once upon a time there was a purple", "max_tokens": 10, "temperature": 0})
    check("/oai/api/v1 completes by a checkpoint's path", "tractor" in found["choices"][0]["text"], found["choices"][0]["text"])


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("base")
    arguments.add_argument("model")
    arguments.add_argument("--resume", help="only load this checkpoint, of an earlier call")
    given = arguments.parse_args()
    print("tinker", tinker.__version__)
    service = tinker.ServiceClient(base_url=given.base)
    names = [one.model_name for one in service.get_server_capabilities().supported_models]
    check("get_server_capabilities", given.model in names, names)
    if given.resume:
        check_resumed(service, given.base, given.model, given.resume, None, None)
    else:
        saved, trained, tokens = check_training(service, given.base, given.model)
        check_lists(service, saved)
        check_resumed(service, given.base, given.model, saved, trained, tokens)
        weights = saved.replace("/weights/", "/sampler_weights/")
        check_chat(given.base, given.model, weights)
        service.create_rest_client().delete_checkpoint_from_tinker_path(weights).result()
        try:
            found = service.create_sampling_client(model_path=weights)
            if hasattr(found, "result"):
                found.result()
            check("a deleted checkpoint is gone", False)
        except Exception as error:
            check("a deleted checkpoint is gone", "404" in str(error), str(error)[:60])
        print("checkpoint", saved)
    end()


main()
