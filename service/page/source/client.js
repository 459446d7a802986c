// --- requests to the service. The key is in this variable alone.
let key = "";

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, { method = "GET", body, signal } = {}) {
  const headers = {};
  if (key) headers["Authorization"] = "Bearer " + key;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const reply = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), credentials: "omit" });
  if (reply.ok) return reply;
  const text = await reply.text();
  let message = text;
  try {
    message = JSON.parse(text).error.message || text;
  } catch (error) { /* no JSON: the text as it is */ }
  if (reply.status === 401) wantKey();
  throw new Refusal(reply.status, message || "status " + reply.status);
}

const askJSON = async (path, options) => (await ask(path, options)).json();

// Data of server-sent events, until [DONE] or the end.
async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf("\n\n")) >= 0;) {
      const lines = rest.slice(0, end).split("\n");
      rest = rest.slice(end + 2);
      const data = lines.filter(line => line.startsWith("data: ")).map(line => line.slice(6)).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

let models = [];
const modelLists = [];

async function readModels() {
  models = (await askJSON("/v1/models")).data;
  for (const show of modelLists) show();
}

// Options of a select, with what was chosen before if it is still there.
function offerModels(select, chosen) {
  const before = select.value;
  select.replaceChildren(...chosen.map(model => {
    const option = make("option", "", model.parent ? `${model.id} (adapter of ${model.parent})` : model.id);
    option.value = model.id;
    return option;
  }));
  if (chosen.some(model => model.id === before)) select.value = before;
}

function wantKey() {
  setKeyForm(true);
  find("key").focus();
  say("The service asks for a key.");
}

function setKeyForm(open) {
  find("key-form").hidden = !open;
  find("key-open").setAttribute("aria-expanded", String(open));
}

find("key-open").addEventListener("click", () => {
  setKeyForm(find("key-form").hidden);
  if (!find("key-form").hidden) find("key").focus();
});
find("key-form").addEventListener("submit", event => {
  event.preventDefault();
  key = find("key").value.trim();
  find("key").value = "";
  setKeyForm(false);
  say("");
  begin();
});
