"""Files and fine-tuning jobs as the official client calls them: openai_client.py BASE_URL MODEL"""
import json
import sys
import time

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
model = sys.argv[2]


def rows(count):
    return "".join(json.dumps({"messages": [{"role": "user", "content": f"Tell {i}"},
                                            {"role": "assistant", "content": f"There was a dog, number {i}."}]}) + "\n"
                   for i in range(count)).encode()


def pairs(count):
    return "".join(json.dumps({"input": {"messages": [{"role": "user", "content": f"Tell {i}"}]},
                               "preferred_output": [{"role": "assistant", "content": f"good dog {i}"}],
                               "non_preferred_output": [{"role": "assistant", "content": f"bad cat {i}"}]}) + "\n"
                   for i in range(count)).encode()


def wait(job, *wanted):
    end = time.monotonic() + 120
    while job.status not in wanted:
        assert time.monotonic() < end and job.status not in ("failed", "cancelled"), job
        time.sleep(0.1)
        job = client.fine_tuning.jobs.retrieve(job.id)
    return job


def refused(error, call, **arguments):
    try:
        call(**arguments)
    except error as found:
        assert found.body and set(found.body) == {"message", "type", "param", "code"}, found.body
        return found
    raise AssertionError("was not refused")


training = client.files.create(file=("chats.jsonl", rows(20)), purpose="fine-tune")
held = client.files.create(file=("held.jsonl", rows(4)), purpose="fine-tune", expires_after={"anchor": "created_at", "seconds": 3600})
assert training.object == "file" and training.bytes == len(rows(20)) and held.expires_at == held.created_at + 3600
assert client.files.content(training.id).content == rows(20)
assert client.files.wait_for_processing(training.id).status == "processed"
assert [each.id for each in client.files.list(limit=1)] == [held.id, training.id]  # two pages
assert [each.id for each in client.files.list(order="asc", purpose="fine-tune")] == [training.id, held.id]
mistake = refused(openai.BadRequestError, client.files.create, file=("x.jsonl", rows(2) + b"{}\n"), purpose="fine-tune")
assert "line 3" in mistake.message, mistake
refused(openai.NotFoundError, client.files.retrieve, file_id="file-none")
print("files: created, listed by pages, read, refused")

jobs = client.fine_tuning.jobs
job = jobs.create(model=model, training_file=training.id, validation_file=held.id, suffix="dogs", seed=7, metadata={"team": "a"},
                  method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 3, "batch_size": 4,
                                                                                   "learning_rate_multiplier": "auto"}}})
assert job.status in ("validating_files", "queued", "running") and job.object == "fine_tuning.job" and job.seed == 7
refused(openai.ConflictError, client.files.delete, file_id=training.id)
job = wait(job, "succeeded")
assert job.fine_tuned_model.startswith(f"ft:{model}:local:dogs:") and job.trained_tokens > 0 and job.finished_at and job.error is None
assert job.hyperparameters.n_epochs == 3 and job.method.supervised.hyperparameters.learning_rate_multiplier == 1
events = list(jobs.list_events(job.id, limit=5))
steps = [each for each in events if each.type == "metrics"]
assert len(steps) == 15 and steps[0].data["step"] == 15 and steps[-1].data["train_loss"] > steps[0].data["train_loss"], steps
assert "valid_loss" in steps[0].data and events[-1].message.startswith("Created")
checkpoints = list(jobs.checkpoints.list(job.id, limit=1))
assert [each.step_number for each in checkpoints] == [10, 5] and checkpoints[0].metrics.train_loss > 0, checkpoints
table = client.files.content(job.result_files[0]).text.splitlines()
assert table[0].startswith("step,train_loss") and len(table) == 16
print("supervised:", job.fine_tuned_model, "loss", steps[-1].data["train_loss"], "to", steps[0].data["train_loss"])

long = jobs.create(model=model, training_file=training.id, hyperparameters={"n_epochs": 50, "batch_size": 1})
long = wait(long, "running")
assert jobs.pause(long.id).status == "paused"
refused(openai.ConflictError, jobs.pause, fine_tuning_job_id=long.id)
preference = client.files.create(file=("pairs.jsonl", pairs(8)), purpose="fine-tune")
second = jobs.create(model=model, training_file=preference.id, method={"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.2, "n_epochs": 1}}})
second = wait(second, "succeeded")
assert second.method.dpo.hyperparameters.beta == 0.2
print("dpo:", second.fine_tuned_model, "while another job is paused")
assert jobs.resume(long.id).status in ("queued", "running")
long = wait(long, "running")
assert jobs.cancel(long.id).status == "cancelled"
refused(openai.ConflictError, jobs.resume, fine_tuning_job_id=long.id)
assert [each.id for each in jobs.list(limit=2)] == [second.id, long.id, job.id]
assert [each.id for each in jobs.list(extra_query={"metadata[team]": "a"})] == [job.id]
print("pause, resume, cancel, lists by pages")

mistake = refused(openai.BadRequestError, jobs.create, model=model, training_file=training.id,
                  method={"type": "reinforcement", "reinforcement": {"grader": {}}})
assert mistake.param == "method.type", mistake
refused(openai.NotFoundError, jobs.create, model="gpt-none", training_file=training.id)
refused(openai.BadRequestError, jobs.create, model=model, training_file="file-none")
mistake = refused(openai.BadRequestError, jobs.create, model=model, training_file=training.id, integrations=[{"type": "wandb", "wandb": {"project": "p"}}])
assert mistake.param == "integrations", mistake
first = jobs.create(model=model, training_file=training.id, extra_headers={"Idempotency-Key": "once"})
assert jobs.create(model=model, training_file=training.id, extra_headers={"Idempotency-Key": "once"}).id == first.id
refused(openai.ConflictError, jobs.create, model=model, training_file=held.id, extra_headers={"Idempotency-Key": "once"})
jobs.cancel(first.id)
assert client.files.delete(training.id).deleted
print("reinforcement, unknown model and file refused; idempotency; openai", openai.__version__)
