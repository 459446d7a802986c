// --- views: one is shown, by the address's part after #, and read again while it is seen
const views = {
  chat: { title: "Chat", open: () => { readModels().catch(complain); } },
  jobs: { title: "Jobs", open: rest => rest && chooseJob(decodeURIComponent(rest), true), read: readJobs },
  plan: { title: "Plan", open: readPlan },
  activity: { title: "Activity", open: () => {}, read: async () => showActivity(await readActivity()) },
};
const readTime = 2000;
let view = "";
let ready = false; // the models are known

function openView(focus) {
  const [name, rest = ""] = location.hash.slice(1).split(/\/(.*)/s);
  if (view && !views[name]) return; // the link to the content
  const next = views[name] ? name : "chat", changed = next !== view;
  view = next;
  for (const each in views) find("view-" + each).hidden = each !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = views[view].title + " - Tessera";
  if (changed && focus) find(view + "-title").focus();
  if (changed && !answering) say("");
  if (!ready) return;
  views[view].open(rest);
  readView();
}

let reading = false, again = false;

// Reads what is shown, one read at a time. Counts are read in every view, so that rates have a past.
async function readView() {
  if (reading) {
    again = true;
    return;
  }
  reading = true;
  try {
    if (views[view].read) await views[view].read();
    if (view !== "activity") await readActivity();
    if (find("status").classList.contains("bad") && !answering) say("");
  } catch (error) {
    complain(error.name === "TypeError" ? new Error("The service does not answer.") : error);
  }
  reading = false;
  if (again) {
    again = false;
    readView();
  }
}

async function begin() {
  try {
    await readModels();
  } catch (error) {
    complain(error);
    return;
  }
  ready = true;
  openView(false);
}

addEventListener("hashchange", () => openView(true));
document.addEventListener("visibilitychange", () => ready && document.visibilityState === "visible" && readView());
setInterval(() => ready && document.visibilityState === "visible" && readView(), readTime);
openView(false);
begin();
