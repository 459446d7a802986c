// --- elements and words. Texts are text nodes everywhere.
function find(id) { return document.getElementById(id); }

function make(tag, kind, text) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (text !== undefined && text !== null) element.textContent = text;
  return element;
}

function say(text) {
  find("status").classList.remove("bad");
  find("status").textContent = text;
}

function complain(error) {
  if (error.status === 401) return; // the key's form says it
  find("status").classList.add("bad");
  find("status").textContent = error.message;
}

const unitsOfBytes = ["B", "KiB", "MiB", "GiB", "TiB"];
function bytesText(bytes) {
  let at = 0;
  for (; bytes >= 1024 && at < 4; ++at) bytes /= 1024;
  return (at ? bytes.toFixed(2) : String(bytes)) + " " + unitsOfBytes[at];
}

const count = value => Math.round(value).toLocaleString("en-US");
const short = value => value === 0 ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(1) : String(+value.toPrecision(4));
const timeText = seconds => new Date(1000 * seconds).toLocaleString();
const durationText = seconds => seconds < 90 ? Math.round(seconds) + " s" : seconds < 5400 ? Math.round(seconds / 60) + " min" : (seconds / 3600).toFixed(1) + " h";

// Terms and values of a list; those without a value are left out.
function fillList(list, pairs) {
  list.replaceChildren(...pairs.filter(pair => pair[1] !== null && pair[1] !== undefined && pair[1] !== "")
    .flatMap(pair => [make("dt", "", pair[0]), make("dd", "", pair[1])]));
}

// A text with blocks of code between lines of three backticks.
function textNodes(text) {
  const nodes = [];
  text.split(/^```.*$/m).forEach((part, at) => {
    if (at % 2) {
      const block = make("pre");
      block.append(make("code", "", part.replace(/^\n/, "")));
      block.tabIndex = 0;
      nodes.push(block);
    } else if (part.trim()) {
      nodes.push(make("div", "words", part.replace(/^\n+|\n+$/g, "")));
    }
  });
  return nodes;
}
