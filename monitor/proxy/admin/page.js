"use strict";
// The page has no data of its own. What comes is shown as text, never as HTML.
const here = document.location.pathname;
const body = document.getElementById("runs"), sum = document.getElementById("sum"), ask = document.getElementById("ask");
const outages = document.getElementById("outages");
let token = new URLSearchParams(document.location.hash.slice(1)).get("token") || "";
let shown = "";

const names = Array.from(document.querySelectorAll("thead th"), (head) => head.textContent);

function cell(row, text, kind) {
  const made = row.insertCell();
  made.textContent = text;
  made.setAttribute("role", "cell");
  made.dataset.name = names[made.cellIndex];
  if (kind) made.className = kind;
  return made;
}

function below(where, text, kind) {
  const span = document.createElement("span");
  span.textContent = span.title = text;
  if (kind) span.className = kind;
  where.append(span);
}

function time(run) {
  const began = new Date(run.began_s * 1000), seconds = Math.max(0, Math.round(run.last_s - run.began_s));
  const took = seconds < 120 ? seconds + " s" : Math.round(seconds / 60) + " min";
  return [began.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }), took];
}

function cost(run) {
  return run.cost_usd === null ? "?" : "$" + run.cost_usd.toFixed(run.cost_usd < 1 ? 4 : 2);
}

function deed(where, run, what) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = what === "go" ? "Let it go" : "Stop it";
  button.setAttribute("aria-label", button.textContent + ": run " + run.name);
  button.addEventListener("click", () => fetch(here + "runs/" + encodeURIComponent(run.id) + "?do=" + what, {
    method: "POST", headers: { authorization: "Bearer " + token },
  }));
  where.append(button);
}

function show(data) {
  const active = data.runs.reduce((all, run) => all + run.active, 0);
  const proxies = data.proxies > 1 ? ` of ${data.proxies} proxies` : "";
  sum.textContent = `${data.runs.length} runs${proxies}, ${active} answers go on, ${data.held} held`;
  const lines = data.away ? [...data.outages, "The store does not answer: other proxies are shown as they were."] : data.outages;
  outages.textContent = lines.join("\n");
  outages.hidden = !lines.length;
  const text = JSON.stringify(data.runs);
  if (text === shown) return;
  shown = text;
  body.replaceChildren();
  for (const run of data.runs) {
    const row = body.insertRow();
    row.setAttribute("role", "row");
    const task = cell(row, "", "task");
    below(task, run.task || "(no text)", "main");
    below(task, run.name);
    cell(row, run.state, ["running", "held", "ended", "stopped", "failed", "left", "lost"].includes(run.state) ? run.state : "");
    const stop = run.last_stop;
    const why = cell(row, "", "why");
    if (stop) below(why, stop.reason + ": " + stop.detail, "main");
    for (const more of [stop && stop.excerpt, run.unwatched && "not watched: " + run.unwatched]) {
      if (more) below(why, more);
    }
    const [began, took] = time(run);
    below(cell(row, began, "time"), took);
    cell(row, run.model, "word");
    cell(row, run.key, "word");
    cell(row, String(run.requests), "n");
    cell(row, String(run.turns), "n");
    cell(row, (run.estimated ? "about " : "") + run.tokens, "n");
    cell(row, cost(run), "n");
    const deeds = cell(row, "", "deeds");
    if (run.state === "held") deed(deeds, run, "go");
    if (run.active) deed(deeds, run, "stop");
  }
}

async function follow() {
  const answer = await fetch(here + "events", { headers: { authorization: "Bearer " + token } });
  if (answer.status === 401) {
    ask.hidden = false;
    sum.textContent = "the token is needed";
    return;
  }
  ask.hidden = true;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the proxy has closed the connection");
    const events = (waiting + value).split("\n\n");
    waiting = events.pop();
    for (const event of events) if (event.startsWith("data: ")) show(JSON.parse(event.slice(6)));
  }
}

async function start() {
  for (;;) {
    try {
      await follow();
      return;
    } catch (error) {
      sum.textContent = "not connected; trying again";
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
}

ask.addEventListener("submit", (event) => {
  event.preventDefault();
  token = document.getElementById("token").value.trim();
  start();
});
start();
