// --- chat
let conversation = [];
let answering = null; // the AbortController of the answer in progress

modelLists.push(() => offerModels(find("model"), models.filter(model => !model.capabilities.length || model.capabilities.includes("chat") || model.capabilities.includes("generate"))));

function addTurn(role, who) {
  const turn = make("article", "turn " + role), words = make("div");
  turn.setAttribute("aria-label", who);
  turn.append(make("div", "who", who), words);
  find("log").append(turn);
  find("log").scrollTop = find("log").scrollHeight;
  return { turn, words };
}

function setAnswering(controller) {
  answering = controller;
  find("send").disabled = Boolean(controller);
  find("stop").disabled = !controller;
  find("log").setAttribute("aria-busy", String(Boolean(controller)));
}

// The words of an answer while they come, once a frame.
class Answer {
  constructor(place) {
    this.place = place;
    this.text = this.reasoning = "";
    this.due = false;
  }
  add(delta) {
    this.text += delta.content || "";
    this.reasoning += delta.reasoning_content || delta.reasoning || "";
    if (this.due) return;
    this.due = true;
    setTimeout(() => this.show(), 50);
  }
  show() {
    this.due = false;
    const nodes = textNodes(this.text);
    if (this.reasoning) {
      const details = make("details");
      details.open = this.place.querySelector("details")?.open ?? false;
      details.append(make("summary", "", "Reasoning"), make("div", "words soft", this.reasoning));
      nodes.unshift(details);
    }
    this.place.replaceChildren(...nodes);
    const log = find("log");
    if (log.scrollHeight - log.scrollTop - log.clientHeight < 200) log.scrollTop = log.scrollHeight;
  }
}

function requestBody() {
  const system = find("system").value.trim();
  const body = { model: find("model").value, stream: true, stream_options: { include_usage: true },
    messages: system ? [{ role: "system", content: system }, ...conversation] : conversation, max_tokens: Number(find("most").value) || 512 };
  if (find("temperature").value !== "") body.temperature = Number(find("temperature").value);
  return body;
}

async function answer() {
  const talk = conversation, controller = new AbortController(), { turn, words } = addTurn("assistant", find("model").value), shown = new Answer(words);
  const begun = performance.now();
  let usage = null, finish = "";
  setAnswering(controller);
  say("The model answers.");
  try {
    const reply = await ask("/v1/chat/completions", { method: "POST", body: requestBody(), signal: controller.signal });
    for await (const event of eventsOf(reply)) {
      if (event.error) throw new Refusal(500, event.error.message);
      if (event.usage) usage = event.usage;
      for (const choice of event.choices) {
        shown.add(choice.delta);
        finish = choice.finish_reason || finish;
      }
    }
    say(endText(usage, finish, (performance.now() - begun) / 1000));
  } catch (error) {
    if (error.name === "AbortError") {
      say("Stopped.");
    } else {
      const note = make("p", "bad", error.message);
      note.setAttribute("role", "alert");
      turn.append(note);
      complain(error);
    }
  }
  shown.show();
  if (shown.text) talk.push({ role: "assistant", content: shown.text });
  else talk.pop(); // turns alternate: a message without an answer is not sent again
  if (answering === controller) setAnswering(null);
}

function endText(usage, finish, seconds) {
  const words = [];
  if (usage) words.push(`${count(usage.completion_tokens)} tokens in ${seconds.toFixed(1)} s, after ${count(usage.prompt_tokens)} of the conversation`);
  if (finish === "length") words.push("cut off at the limit of tokens");
  return "Answered: " + words.join("; ") + ".";
}

function sendMessage() {
  const text = find("message").value.trim();
  if (!text || answering) return;
  find("message").value = "";
  conversation.push({ role: "user", content: text });
  addTurn("user", "You").words.append(...textNodes(text));
  answer();
}

find("chat-form").addEventListener("submit", event => {
  event.preventDefault();
  sendMessage();
});
find("message").addEventListener("keydown", event => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  sendMessage();
});
find("view-chat").addEventListener("keydown", event => {
  if (event.key === "Escape" && answering) answering.abort();
});
find("stop").addEventListener("click", () => answering && answering.abort());
find("chat-new").addEventListener("click", () => {
  if (answering) answering.abort();
  setAnswering(null);
  conversation = [];
  find("log").replaceChildren();
  say("A new chat.");
  find("message").focus();
});
