// --- the serving plan of a model: its bytes on each device
modelLists.push(() => offerModels(find("plan-model"), models.filter(model => !model.parent)));

let planAsked = 0;

async function readPlan() {
  const name = find("plan-model").value, place = find("plan"), asked = ++planAsked;
  if (!name) {
    place.replaceChildren(make("p", "soft", "No models."));
    return;
  }
  place.setAttribute("aria-busy", "true");
  try {
    const reply = await askJSON("/plan?model=" + encodeURIComponent(name));
    if (asked === planAsked) showPlan(place, name, reply.plan);
  } catch (error) {
    if (asked === planAsked) place.replaceChildren(make("p", "bad", error.message));
  }
  if (asked === planAsked) place.setAttribute("aria-busy", "false");
}

function showPlan(place, name, plan) {
  const serving = plan.serving || {}, list = make("dl");
  fillList(list, [["Strategy", plan.strategy || "one device"], ["Replicas", serving.replicas > 1 ? count(serving.replicas) : ""],
    ["Sequences at once", count(serving.sequences)], ["Context", count(serving.context) + " tokens"],
    ["Cache", `${count(serving.cache_tokens)} tokens of ${bytesText(serving.cache_bytes_per_token)}: ${bytesText(serving.cache_bytes)}`],
    ["Weights", bytesText(serving.weight_bytes)], ["Whole contexts that fit", count(serving.sequences_that_fit)]]);
  place.replaceChildren(make("h3", "", name), list, make("h4", "", "Memory by device"), ...(serving.devices || []).map(showDevice));
}

function showDevice(device, at) {
  const place = make("div", "device"), bytes = device.arena_bytes.predicted + (device.draft_bytes || 0), meter = make("meter"), label = make("div");
  const words = `${device.name}: ${bytesText(bytes)} of ${bytesText(device.limit_bytes)}` + (device.fits ? "" : ", too much");
  label.id = "device-" + at;
  label.textContent = words + (device.draft_bytes ? `, ${bytesText(device.draft_bytes)} of them of the draft model` : "");
  meter.max = device.limit_bytes || bytes || 1;
  meter.value = bytes;
  meter.high = meter.max * 0.9;
  meter.setAttribute("aria-labelledby", label.id);
  place.append(label, meter);
  return place;
}

find("plan-model").addEventListener("change", readPlan);
