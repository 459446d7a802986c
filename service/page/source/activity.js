// --- requests and tokens a second, from /metrics
const historySeconds = 300;
let samples = []; // [{time: s, sums: {family: value}}], oldest first

// Families of the text format, without their prefix: {name: [{labels: {}, value}]}
function parseMetrics(text) {
  const families = {};
  for (const line of text.split("\n")) {
    const found = /^(?:[\w]+:)?([\w]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const pair of (found[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[pair[1]] = pair[2].replace(/\\(.)/g, (_, each) => each === "n" ? "\n" : each);
    (families[found[1]] ||= []).push({ labels, value: Number(found[3]) });
  }
  return families;
}

const sumOf = (families, name, model) => (families[name] || []).filter(each => model === undefined || each.labels.model_name === model).reduce((sum, each) => sum + each.value, 0);

// Counts that rates are made of.
const counted = { generated: "generation_tokens_total", prompt: "prompt_tokens_total", requests: "request_success_total" };

async function readActivity() {
  const families = parseMetrics(await (await ask("/metrics")).text());
  const sample = { time: Date.now() / 1000, sums: {} };
  for (const name in counted) sample.sums[name] = sumOf(families, counted[name]);
  if (samples.length && sample.sums.generated < samples[samples.length - 1].sums.generated) samples = []; // the service was begun again
  samples.push(sample);
  samples = samples.filter(each => each.time > sample.time - historySeconds);
  return families;
}

// Points of a rate: each is that of the last seconds, so that single texts do not leap.
function rateOf(name) {
  const points = [], now = samples[samples.length - 1].time;
  for (let at = 1; at < samples.length; ++at) {
    let from = at - 1;
    while (from > 0 && samples[at].time - samples[from].time < 10) --from;
    points.push([samples[at].time - now, (samples[at].sums[name] - samples[from].sums[name]) / (samples[at].time - samples[from].time)]);
  }
  return points;
}

function showActivity(families) {
  const last = points => points.length ? points[points.length - 1][1] : 0;
  const generated = rateOf("generated"), prompt = rateOf("prompt"), requests = rateOf("requests");
  const figures = [["Running", count(sumOf(families, "num_requests_running"))], ["Waiting", count(sumOf(families, "num_requests_waiting"))],
    ["Tokens a second", last(generated).toFixed(1)], ["Requests a second", last(requests).toFixed(2)], ["Loaded models", count(sumOf(families, "models_loaded"))],
    ["Memory by plans", bytesText(sumOf(families, "model_plan_bytes"))]];
  find("figures").replaceChildren(...figures.map(([name, value]) => {
    const figure = make("div");
    figure.append(make("dt", "", name), make("dd", "", value));
    return figure;
  }));
  const left = x => Math.round(x) + " s";
  showChart(find("tokens-chart"), { title: "Tokens a second", x: "Time", fromZero: true, left, series: [{ name: "generated", points: generated }, { name: "of prompts", points: prompt }] });
  showChart(find("requests-chart"), { title: "Texts a second", x: "Time", fromZero: true, left, series: [{ name: "ended", points: requests }] });
  showByModel(families);
}

function showByModel(families) {
  const names = [...new Set(["num_requests_running", ...Object.values(counted)].flatMap(name => (families[name] || []).map(each => each.labels.model_name)))].filter(Boolean).sort();
  const columns = [["Running", "num_requests_running"], ["Waiting", "num_requests_waiting"], ["Cache in use", "kv_cache_usage_perc"], ["Prompt tokens", counted.prompt],
    ["of them cached", "prefix_cache_hits_total"], ["Generated", counted.generated], ["Texts", counted.requests]];
  const head = make("tr");
  for (const [name] of [["Model"], ...columns]) {
    const cell = make("th", "", name);
    cell.scope = "col";
    head.append(cell);
  }
  const rows = names.map(model => {
    const row = make("tr"), name = make("th", "", model);
    name.scope = "row";
    row.append(name, ...columns.map(([, family]) => {
      const value = sumOf(families, family, model);
      return make("td", "", family.endsWith("_perc") ? (100 * value).toFixed(0) + " %" : count(value));
    }));
    return row;
  });
  find("by-model").replaceChildren(head, ...rows);
}
