// --- fine-tuning jobs
const jobsPath = "/v1/fine_tuning/jobs";
const endedStates = ["succeeded", "failed", "cancelled"];
const stateWords = { validating_files: "checking its files", queued: "waiting", running: "running", paused: "paused", succeeded: "succeeded", failed: "failed", cancelled: "cancelled" };
let jobs = [];
let shownJob = ""; // its id
let jobEvents = { id: "", list: [], seen: new Set() }; // oldest first

async function readJobs() {
  try {
    jobs = (await askJSON(jobsPath + "?limit=100")).data;
  } catch (error) {
    if (error.status === 404) {
      find("jobs-note").textContent = "This service has no jobs: start it with --state FOLDER.";
      return;
    }
    throw error;
  }
  find("jobs-note").textContent = jobs.length ? "" : "No jobs yet. POST /v1/fine_tuning/jobs makes one, as OpenAI's clients do.";
  if (!shownJob && jobs.length) chooseJob(jobs[0].id, false);
  showJobs();
  const job = jobs.find(each => each.id === shownJob);
  if (job) await showJob(job);
}

function showJobs() {
  const list = find("job-list");
  for (const job of jobs) {
    let button = list.querySelector(`[data-job="${CSS.escape(job.id)}"]`);
    if (!button) {
      button = make("button", "job");
      button.type = "button";
      button.dataset.job = job.id;
      button.addEventListener("click", () => { location.hash = "jobs/" + button.dataset.job; });
      list.append(button);
    }
    const text = `${job.fine_tuned_model || job.model + (job.user_provided_suffix ? ":" + job.user_provided_suffix : "")} — ${stateWords[job.status] || job.status}`;
    if (button.textContent !== text) button.textContent = text;
    button.setAttribute("aria-pressed", String(job.id === shownJob));
  }
}

function chooseJob(id, focus) {
  shownJob = id;
  find("job").hidden = false;
  find("job-title").textContent = id;
  if (focus) find("job-title").focus();
}

// Newest first is how they come: as many pages as hold new ones.
async function readEvents(id) {
  if (jobEvents.id !== id) jobEvents = { id, list: [], seen: new Set() };
  const known = jobEvents, fresh = [];
  for (let after = "", more = true; more;) {
    const page = await askJSON(`${jobsPath}/${encodeURIComponent(id)}/events?limit=1000${after && "&after=" + encodeURIComponent(after)}`);
    const unseen = page.data.filter(event => !known.seen.has(event.id));
    fresh.push(...unseen);
    more = page.has_more && unseen.length === page.data.length && page.data.length > 0;
    if (more) after = page.data[page.data.length - 1].id;
  }
  for (const event of fresh.reverse()) {
    known.seen.add(event.id);
    known.list.push(event);
  }
  return known.list;
}

async function showJob(job) {
  const events = await readEvents(job.id);
  if (job.id !== shownJob) return;
  const steps = events.filter(event => event.type === "metrics").map(event => event.data);
  const last = steps[steps.length - 1], state = stateWords[job.status] || job.status;
  const words = [state];
  if (last && !endedStates.includes(job.status)) words.push(`step ${count(last.step)} of ${count(last.total_steps)}`);
  if (job.estimated_finish && job.status === "running") words.push(`about ${durationText(Math.max(0, job.estimated_finish - Date.now() / 1000))} left`);
  if (job.error && job.error.message) words.push(job.error.message);
  setText(find("job-state"), words.join(", "));
  find("job-progress").hidden = !last || endedStates.includes(job.status);
  if (last) find("job-progress").value = last.step / last.total_steps;
  showActions(job);
  showSteps(steps);
  showSettings(job);
  showEvents(events);
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function showSteps(steps) {
  const points = name => steps.filter(step => step[name] !== undefined && step[name] !== null).map(step => [step.step, step[name]]);
  showChart(find("job-loss"), { title: "Loss", x: "Step", series: [{ name: "training", points: points("train_loss") }, { name: "validation", points: points("valid_loss") }] });
  showChart(find("job-accuracy"), { title: "Token accuracy", x: "Step", fromZero: true,
    series: [{ name: "training", points: points("train_mean_token_accuracy") }, { name: "validation", points: points("valid_mean_token_accuracy") }] });
}

function showSettings(job) {
  const numbers = job.hyperparameters || {}, more = job.tessera || {};
  fillList(find("job-settings"), [["Base", job.model], ["Result", job.fine_tuned_model], ["Method", job.method && job.method.type], ["Epochs", numbers.n_epochs],
    ["Batch", numbers.batch_size], ["Learning rate", more.learning_rate], ["Rank", more.full ? "all weights" : more.rank], ["Examples", more.examples],
    ["Tokens trained", job.trained_tokens], ["Training file", job.training_file], ["Validation file", job.validation_file], ["Seed", job.seed],
    ["Created", timeText(job.created_at)], ["Finished", job.finished_at && timeText(job.finished_at)]]);
}

const mostEvents = 200;

function showEvents(events) {
  const list = find("job-events");
  if (list.dataset.job === shownJob && Number(list.dataset.count) === events.length) return;
  list.dataset.job = shownJob;
  list.dataset.count = events.length;
  const last = events.slice(-mostEvents).reverse();
  list.start = events.length;
  list.replaceChildren(...last.map(event => make("li", event.level === "error" ? "bad" : "", `${timeText(event.created_at)}: ${event.message}`)));
}

// Buttons stay while their state does, so that the focus stays.
function showActions(job) {
  const place = find("job-actions"), wanted = [];
  if (["queued", "running", "validating_files"].includes(job.status)) wanted.push("pause");
  if (job.status === "paused") wanted.push("resume");
  if (!endedStates.includes(job.status)) wanted.push("cancel");
  if (job.fine_tuned_model) wanted.push("chat");
  const name = job.id + " " + wanted.join(" ");
  if (place.dataset.shown === name) return;
  place.dataset.shown = name;
  place.replaceChildren(...wanted.map(verb => {
    const button = make("button", "", verb === "chat" ? "Chat with it" : verb[0].toUpperCase() + verb.slice(1));
    button.type = "button";
    button.addEventListener("click", () => act(job, verb));
    return button;
  }));
}

async function act(job, verb) {
  try {
    if (verb === "chat") {
      await readModels();
      find("model").value = job.fine_tuned_model;
      location.hash = "chat";
      return;
    }
    await ask(`${jobsPath}/${encodeURIComponent(job.id)}/${verb}`, { method: "POST", body: {} });
    await readJobs();
  } catch (error) {
    complain(error);
  }
}
