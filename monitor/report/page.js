"use strict";
(() => {
  // What a transcript says reaches the page through `node` and text nodes only: never as markup,
  // never as an address, never as a style.
  const data = JSON.parse(document.getElementById("data").textContent);
  const runs = data.runs;
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const ROW = 74;
  const LOOK = { n: ["note", 5], u: ["person", 12], t: ["turn", 20], c: ["call", 14], e: ["error", 24], k: ["squeeze", 34], L: ["loop", 34] };
  const NAMES = { n: "note of the program", u: "person", t: "model", c: "call", e: "error", k: "compaction", L: "loop seen" };
  const SOURCES = { user: "person", system: "system prompt", note: "notes of the program", model: "model's text", thinking: "model's thinking", arguments: "arguments of calls", result: "results of tools" };
  const KEYS = [
    ["/", "search"], ["j or ↓", "next run"], ["k or ↑", "previous run"], ["n", "next run with a loop"],
    ["Enter", "read the run (from the list)"], ["g", "go to the place of the loop"], ["o", "overview"],
    ["d", "dark or light"], ["?", "this list"], ["Esc", "back to the list; in the search: clear it"],
  ];
  let shown = [];
  let current = -1;

  // ---------------------------------------------------------------- building blocks

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
      else element.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(2)) if (child !== null && child !== undefined && child !== false) element.append(child);
    return element;
  }
  const node = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const draw = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
  const number = (value) => (value || 0).toLocaleString("en-US");
  const short = (value) => (value >= 1e9 ? (value / 1e9).toFixed(1) + "B" : value >= 1e6 ? (value / 1e6).toFixed(1) + "M" : value >= 1e4 ? Math.round(value / 1e3) + "k" : number(Math.round(value)));
  const money = (value, part) => (!part && value > 0 && value < 0.01 ? "< $0.01" : "$" + value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 }));
  const when = (at) => (at ? new Date(at * 1000).toISOString().slice(0, 16).replace("T", " ") : "");
  const count = (value, noun, many) => `${number(value)} ${value === 1 ? noun : many || `${noun}s`}`;
  const saved = (run) => run.saved || [0, 0, 0, 0];
  const known = (value) => value !== undefined && value !== null;
  const silent = (run) => !run.calls && !run.chars;
  const nameOf = (run) => run.title || run.id || run.key;
  const link = (run, step) => `#run=${run.key}${step === undefined ? "" : `&step=${step}`}`;
  // A run that goes on in another file has two rows, and counts once: `of` is the key of the first.
  const runsIn = (rows) => new Set(rows.map((run) => run.of || run.key)).size;
  const tally = (list, key) => { const found = new Map(); for (const one of list) { const name = key(one); if (!found.has(name)) found.set(name, []); found.get(name).push(one); } return [...found].map(([name, rows]) => [name, runsIn(rows)]).sort((a, b) => b[1] - a[1]); };

  // A sum over runs as far as it is known, in words: what is unknown is never a 0.
  const tokensOf = (run) => run.usage && run.usage.total;
  function sum(list, of, say) {
    const values = list.map(of).filter(known);
    const part = list.some((run) => !known(of(run)) && !silent(run)) || (say === money && list.some((run) => run.least));
    return values.length ? (part ? "≥ " : "") + say(values.reduce((a, b) => a + b, 0), part) : list.length ? "unknown" : say(0);
  }

  function table(caption, columns, rows) {
    if (!rows.length) return null;
    return node("div", { class: "wide", role: "region", tabindex: 0, "aria-label": caption }, node("table", null, node("caption", null, caption),
      node("thead", null, node("tr", null, columns.map(([name, right]) => node("th", { scope: "col", class: right ? "n" : null }, name)))),
      node("tbody", null, rows.map((row) => node("tr", null, row.map((cell, at) => node("td", { class: columns[at][1] ? "n" : null }, cell)))))));
  }

  // ---------------------------------------------------------------- which runs are listed

  runs.forEach((run, at) => {
    run.at = at;
    const loop = run.loop ? `${run.loop.because || ""} ${run.loop.what || ""} ${run.loop.said} ${run.loop.kind} ${run.loop.by}` : "";
    run.text = `${nameOf(run)} ${run.id} ${run.file || ""} ${run.agent} ${run.project || ""} ${run.model || ""} ${run.result || ""} ${loop}`.toLowerCase();
  });

  // The details of the runs stand in pieces. A piece is read when one of its runs is opened, all of
  // them with the first search, and else one after the other while nothing happens.
  const size = data.facts.piece;
  let unread = Math.ceil(runs.length / size);
  function read(piece) {
    const place = $(`piece-${piece}`);
    if (!place) return;
    JSON.parse(place.textContent).forEach((details, at) => {
      const run = runs[piece * size + at];
      Object.assign(run, details);
      run.text += (run.steps || []).map((step) => ` ${step[3] || ""} ${step[2] || ""}`).join("").toLowerCase();
    });
    place.remove();
    unread -= 1;
  }
  const whole = (run) => { read(Math.floor(run.at / size)); return run; };
  function readOn(piece) {
    if (!unread || piece * size >= runs.length) return;
    read(piece);
    setTimeout(readOn, 20, piece + 1);
  }
  const ORDERS = {
    saved: (a, b) => (b.loop ? 1 : 0) - (a.loop ? 1 : 0) || (saved(b)[2] || 0) - (saved(a)[2] || 0) || (saved(b)[0] || 0) - (saved(a)[0] || 0),
    cost: (a, b) => (b.usd ?? -1) - (a.usd ?? -1),
    new: (a, b) => (b.to || 0) - (a.to || 0),
    long: (a, b) => (b.turns || 0) - (a.turns || 0),
  };

  function select() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length && unread) for (let piece = 0; piece * size < runs.length; piece += 1) read(piece);
    const show = $("show").value, kept = current >= 0 ? shown[current] : null;
    shown = runs.filter((run) => (show === "" || (show === "loop") === Boolean(run.loop))
      && ($("agent").value === "" || run.agent === $("agent").value)
      && ($("project").value === "" || (run.project || "-") === $("project").value)
      && ($("state").value === "" || (run.state || "unknown") === $("state").value)
      && words.every((word) => run.text.includes(word)));
    shown.sort(ORDERS[$("order").value]);
    current = kept ? shown.indexOf(kept) : -1;
    const loops = shown.filter((run) => run.loop).length;
    $("sum").textContent = `${shown.length === runs.length ? "" : `${number(runsIn(shown))} of `}${count(runsIn(runs), "run")}, ${number(loops)} with a loop`;
    $("room").style.height = `${shown.length * ROW}px`;
    list();
    if (!location.hash.startsWith("#run=")) overview();
  }

  function list() {
    const box = $("list"), first = Math.max(0, Math.floor(box.scrollTop / ROW) - 5);
    const last = Math.min(shown.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + 5);
    const rows = [];
    for (let at = first; at < last; at += 1) rows.push(row(at));
    if (current >= 0 && (current < first || current >= last)) rows.push(row(current));
    $("room").replaceChildren(...rows);
    if (current >= 0) box.setAttribute("aria-activedescendant", `row-${current}`);
    else box.removeAttribute("aria-activedescendant");
  }

  function row(at) {
    const run = shown[at];
    const facts = [run.agent, run.project, when(run.from).slice(0, 10), count(run.turns || 0, "step"), run.of && "goes on"].filter(Boolean);
    const second = run.loop ? node("b", { class: "loop" }, `loop: ${run.loop.said}${saved(run)[3] ? `, ${money(saved(run)[3])}` : ""}`)
      : [run.state || "unknown", tokensOf(run) ? `${short(tokensOf(run))} tokens` : null, known(run.usd) ? sum([run], (one) => one.usd, money) : null].filter(Boolean).join(" · ");
    const made = node("div", { class: "row", role: "option", id: `row-${at}`, "aria-selected": String(at === current), "aria-setsize": shown.length, "aria-posinset": at + 1, on: { click: () => go(link(run)) } },
      node("b", null, nameOf(run)), node("span", null, second),
      node("span", null, facts.map((fact, place) => [place ? " · " : null, node("bdi", null, fact)])), run.loop ? share(run) : null);
    made.style.top = `${at * ROW}px`;
    return made;
  }

  // The steps of a run with a loop as a bar: those before the place of a stop, and those after it.
  function share(run, attributes) {
    const turns = Math.max(1, run.turns || 0), stop = Math.min(run.loop.turn, turns);
    return draw("svg", { class: "share", viewBox: `0 0 ${turns} 10`, preserveAspectRatio: "none", "aria-hidden": attributes ? null : "true", ...attributes },
      draw("rect", { class: "f-call", y: 2, width: stop, height: 8 }), draw("rect", { class: "f-loop", x: stop, y: 2, width: turns - stop, height: 8 }),
      attributes ? draw("line", { class: "s-stop", x1: stop, x2: stop, y1: 0, y2: 10 }) : null);
  }

  function go(hash) { if (location.hash === hash) follow(); else location.hash = hash; }

  function move(to) {
    if (!shown.length) return;
    current = Math.min(Math.max(to, 0), shown.length - 1);
    const box = $("list"), top = current * ROW;
    if (top < box.scrollTop) box.scrollTop = top;
    if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
    list();
    go(link(shown[current]));
  }

  function follow() {
    const found = /^#run=([0-9a-f-]+)(?:&step=(\d+))?$/.exec(location.hash);
    if (!found) { current = -1; list(); overview(); $("card").scrollIntoView(); return; }
    const run = runs.find((one) => one.key === found[1]);
    if (!run) { $("part").replaceChildren(node("h2", null, "This run is not on this page"), node("p", null, "The link names a run that was left out when the page was made.")); return; }
    if (shown[current] !== run) {
      current = shown.indexOf(run);
      if (current >= 0) { const box = $("list"), top = current * ROW; if (top < box.scrollTop || top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, top - box.clientHeight / 2); }
    }
    list();
    whole(run);
    if (document.readyState === "loading" && !run.strip) { $("part").replaceChildren(node("h2", null, nameOf(run)), node("p", null, "The run is being loaded.")); return; }
    tell(run, found[2] === undefined ? null : Number(found[2]));
  }

  // ---------------------------------------------------------------- overview

  function overview() {
    document.title = data.facts.title;
    card();
    const loops = shown.filter((run) => run.loop), ended = loops.filter((run) => run.stopped);
    const facts = [
      [number(runsIn(shown)), runsIn(shown) === 1 ? "run" : "runs"], [number(loops.length), "with a loop"], [short(shown.reduce((all, run) => all + (run.turns || 0), 0)), "steps"], [sum(shown, tokensOf, short), "tokens"], [sum(shown, (run) => run.usd, money), "cost"],
      ...(ended.length ? [[sum(ended, (run) => saved(run)[3], money), "avoidable"], [sum(ended, (run) => saved(run)[2], short), "avoidable tokens"]] : []),
    ];
    const worst = [...loops].sort(ORDERS.saved).slice(0, 12);
    $("part").replaceChildren(...[
      node("h2", null, shown.length === runs.length ? "All runs" : "The runs that are listed"),
      data.facts.bad ? node("p", { class: "badge" }, `This is not everything: ${count(data.facts.bad, "line or file", "lines or files")} could not be read.`) : null,
      node("ul", { class: "numbers" }, facts.map(([value, name]) => node("li", null, node("b", null, value), node("span", null, name)))),
      byTime(),
      table("What was repeated, the costly runs first", [["run"], ["what"], ["steps", 1], ["avoidable", 1], ["tokens", 1]],
        worst.map((run) => [node("a", { href: link(run) }, nameOf(run).slice(0, 100)), run.loop.said, number(run.turns), run.stopped ? sum([run], (one) => saved(one)[3], money) : "nothing", run.stopped ? sum([run], (one) => saved(one)[2], number) : "nothing"])),
      node("div", { class: "tables" },
        table("What the loops are", [["kind"], ["runs", 1], [""]], bars(tally(loops, (run) => run.loop.sort))),
        table("How runs ended, as their recordings say", [["state"], ["runs", 1], [""]], bars(tally(shown, (run) => run.state || "unknown"))),
        grouped("By agent", "agent", (run) => run.agent), grouped("By project", "project", (run) => run.project || "-"),
        grouped("By model", "model", (run) => run.model || "unknown"), grouped("By week", "week that begins", week)),
      node("p", { class: "quiet" }, `Made by agent-monitor${data.facts.made ? ` at ${when(data.facts.made)} UTC` : ""}. Times are UTC. ${data.facts.texts ? "This page holds pieces of the transcripts: share it as you would share them." : "This page holds no text of a transcript."}`),
    ].filter(Boolean));
  }

  function card() {
    const told = data.facts.card, run = runs.find((one) => one.key === told.key);
    $("card").hidden = shown.length !== runs.length;
    $("card").replaceChildren(...[
      node("h2", null, told.headline), told.about.map((line) => node("p", null, line)),
      run ? [share(run, { role: "img", "aria-label": told.stop }), node("p", { class: "loop" }, told.stop, " ", node("a", { href: link(run) }, "See the run"))] : null,
    ].flat().filter(Boolean));
  }

  function week(run) {
    const at = run.from;
    if (!at) return "unknown";
    const day = new Date(at * 1000), monday = (day.getUTCDay() + 6) % 7;
    return new Date(at * 1000 - monday * 86400000).toISOString().slice(0, 10);
  }

  const MOST_GROUPS = 40;
  function grouped(caption, name, key) {
    const found = new Map();
    for (const run of shown) { if (!found.has(key(run))) found.set(key(run), []); found.get(key(run)).push(run); }
    if (found.size < 2) return null;
    const rows = [...found].map(([one, list]) => [one, list, runsIn(list)]).sort((a, b) => (key === week ? 0 : b[2] - a[2]) || (a[0] < b[0] ? 1 : -1));
    return table(rows.length > MOST_GROUPS ? `${caption}: the first ${MOST_GROUPS} of ${number(rows.length)}` : caption, [[name], ["runs", 1], ["loops", 1], ["tokens", 1], ["cost", 1]],
      rows.slice(0, MOST_GROUPS).map(([one, list, size]) => [one.slice(0, 60), number(size), number(list.filter((run) => run.loop).length), sum(list, tokensOf, short), sum(list, (run) => run.usd, money)]));
  }

  function bars(rows) {
    const most = Math.max(1, ...rows.map((one) => one[1]));
    return rows.map(([name, value]) => [name, number(value),
      draw("svg", { width: 160, height: 12, "aria-hidden": "true" }, draw("rect", { class: "f-call", width: Math.max(1, (160 * value) / most), height: 12 }))]);
  }

  function byTime() {
    const dated = shown.filter((run) => run.from);
    if (dated.length < 2) return null;
    const DAY = 86400, low = dated.reduce((least, run) => Math.min(least, run.from), Infinity), high = dated.reduce((most, run) => Math.max(most, run.from), 0);
    const unit = [DAY, 7 * DAY, 30 * DAY, 91 * DAY, 365 * DAY].find((one) => (high - low) / one <= 60) || 3650 * DAY;
    const start = Math.floor(low / unit) * unit, size = Math.min(400, Math.floor((high - start) / unit) + 1);
    const all = new Array(size).fill(0), bad = new Array(size).fill(0);
    for (const run of dated) { const at = Math.min(size - 1, Math.floor((run.from - start) / unit)); all[at] += run.of ? 0 : 1; bad[at] += run.loop ? 1 : 0; }
    const W = 760, H = 100, step = W / size, most = Math.max(1, ...all), tall = (value) => (value ? Math.max(2, (H * value) / most) : 0);
    const label = { [DAY]: "day", [7 * DAY]: "week", [30 * DAY]: "30 days", [91 * DAY]: "91 days", [365 * DAY]: "year" }[unit] || "10 years";
    const said = `Runs per ${label}, at most ${number(most)}`;
    const bar = (look, list) => list.map((value, at) => (value ? draw("rect", { class: look, x: at * step, y: H - tall(value), width: Math.max(1, step * 0.92), height: tall(value) },
      draw("title", null, `${when(start + at * unit).slice(0, 10)}: ${count(all[at], "run")}, ${bad[at]} with a loop`)) : null));
    const figure = node("figure", null, node("figcaption", null, said),
      chart(W, H, `${said}, from ${when(low).slice(0, 10)} to ${when(high).slice(0, 10)}: ${number(runsIn(dated))} runs, ${bad.reduce((a, b) => a + b, 0)} with a loop.`, bar("f-call", all), bar("f-loop", bad)),
      node("p", { class: "ends" }, node("span", null, when(start).slice(0, 10)), node("span", null, when(high).slice(0, 10))),
      legend([["call", "runs"], ...(bad.some(Boolean) ? [["loop", "of them with a loop"]] : [])]));
    figure.style.maxWidth = `${Math.max(260, size * 48)}px`;
    return figure;
  }

  // A picture as wide as its place and always as tall, also on a phone. So it has no words in it.
  const chart = (W, H, label, ...parts) => draw("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, parts);

  function legend(entries, more) {
    return node("ul", { class: "legend" }, entries.map(([look, name, tall]) => node("li", null,
      draw("svg", { width: 10, height: 14, "aria-hidden": "true" }, draw("rect", { class: `f-${look}`, width: 8, height: tall || 12, y: 14 - (tall || 12) })), name)), more ? node("li", null, more) : null);
  }

  // ---------------------------------------------------------------- one run

  function tell(run, step) {
    document.title = `${nameOf(run)} - ${data.facts.title}`;
    $("card").hidden = true;
    const facts = [
      ["agent", run.agent], ["project", run.project], ["model", run.models || run.model], ["run", run.id], ["part of", run.parent], ["file", run.file],
      ["time", run.from ? `${when(run.from)} to ${when(run.to)} UTC` : "not recorded"], ["ended", `${run.state || "unknown"}${run.why ? `: ${run.why}` : ""}`],
      ["failed", run.failed],
    ].filter((one) => one[1]);
    const numbers = [[number(run.turns), "steps"], [number(run.calls), "calls"], [number(run.errors), "errors"], run.compactions ? [number(run.compactions), "compactions"] : null,
      [sum([run], tokensOf, short), "tokens"], [sum([run], (one) => one.usd, money), run.listed ? "cost, by list prices" : "cost"]].filter(Boolean);
    $("part").replaceChildren(...[
      node("h2", null, nameOf(run)),
      run.loop ? finding(run) : node("p", null, run.failed ? "It could not be watched to its end." : "No loop was seen in it."),
      node("ul", { class: "numbers" }, numbers.map(([value, name]) => node("li", null, node("b", null, value), node("span", null, name)))),
      run.strip ? timeline(run) : null,
      tokens(run),
      node("dl", { class: "facts" }, facts.map(([name, value]) => [node("dt", null, name), node("dd", null, value)])),
      evidence(run),
      sources(run),
      run.steps ? node("h3", null, "Transcript") : null,
      run.steps ? steps(run, step) : run.all_steps ? node("p", { class: "quiet" }, "The transcript of this run is not on the page.") : null,
    ].filter(Boolean));
    const aim = step === null ? null : $(`step-${step}`);
    if (aim) { aim.classList.add("here"); aim.scrollIntoView({ block: "center" }); }
    else $("part").scrollIntoView();  // on a phone it stands below the list
  }

  function finding(run) {
    const loop = run.loop, [turns, calls] = saved(run), seen = (run.steps || []).find((step) => (step[6] || 0) & 2);
    const after = [count(turns || 0, "step"), count(calls || 0, "call"), known(saved(run)[2]) ? count(saved(run)[2], "token") : "an unknown number of tokens", known(saved(run)[3]) ? money(saved(run)[3]) : "an unknown cost"];
    const rows = [
      ["repeated", loop.what ? node("span", { class: "said" }, loop.what) : null],
      ["result", run.result && loop.channel === "tools" ? node("span", { class: "said" }, run.result) : null],
      ["why", loop.because],
      ["seen", [`at step ${number(loop.turn)}, after ${number(loop.count)} times; a ${loop.level === "loop" ? "loop" : "suspicion"} from ${number(loop.limit)}`, seen ? [" (", node("a", { href: link(run, seen[0]), id: "loop-here" }, `#${number(seen[0] + 1)}`), ")"] : null]],
    ].filter((one) => one[1]);
    return node("section", { class: "finding", "aria-label": "The loop" },
      node("h3", null, loop.said), run.whole ? node("p", null, `${run.whole[0].toUpperCase()}${run.whole.slice(1)}.`) : null, node("p", null, run.stopped ? `A stop at step ${number(loop.turn)} of ${number(run.turns)} would have avoided ${after.slice(0, -1).join(", ")} and ${after.at(-1)}.` : "A stop would have avoided nothing: the policy would not have ended it."),
      node("dl", null, rows.map(([name, value]) => [node("dt", null, name), node("dd", null, value)])));
  }

  function timeline(run) {
    const cells = [...run.strip], step = Math.min(14, 760 / cells.length), W = 760, H = 66, marked = new Set(run.marks || []);
    const kinds = Object.keys(NAMES).filter((kind) => run.strip.includes(kind));
    const counts = kinds.map((kind) => `${cells.filter((cell) => cell === kind).length} ${NAMES[kind]}`).join(", ");
    const seen = run.strip.indexOf("L"), from = marked.size ? Math.min(...marked) : seen, stop = run.stop;
    const until = stop === undefined ? seen : Math.max(stop, seen);
    const band = seen < 0 ? null : [from * step, Math.max(step, (until - from + 1) * step)], after = (until + 1) * step;
    const told = [`cells by what is in them: ${counts}.`, band ? `The loop is in the cells ${from + 1} to ${until + 1} of ${cells.length}.` : null,
      stop === undefined ? null : `A stop would have come at cell ${stop + 1}.`].filter(Boolean).join(" ");
    return node("figure", null, node("figcaption", null, "Time line"),
      chart(W, H, `Time line of the run, ${told}`,
        band ? draw("rect", { class: "f-band", x: band[0].toFixed(2), y: 0, width: band[1].toFixed(2), height: 58 }, draw("title", null, "the loop")) : null,
        stop !== undefined && after < W && until + 1 < cells.length ? draw("rect", { class: "f-spared", x: after.toFixed(2), y: 0, width: (cells.length * step - after).toFixed(2), height: 58 }, draw("title", null, "what a stop would have avoided")) : null,
        cells.map((cell, at) => draw("rect", { class: `f-${LOOK[cell][0]}`, x: (at * step).toFixed(2), y: 44 - LOOK[cell][1], width: Math.max(0.8, step - (step > 3 ? 1 : 0)).toFixed(2), height: LOOK[cell][1] }, step > 2 ? draw("title", null, NAMES[cell]) : null)),
        [...marked].map((at) => draw("path", { class: "f-loop", d: `M${(at * step).toFixed(1)} 56l${Math.max(4, step).toFixed(1)} 0l-${(Math.max(4, step) / 2).toFixed(1)} -8z` })),
        draw("line", { class: "axis", x1: 0, x2: W, y1: 45, y2: 45 }),
        stop === undefined ? null : draw("line", { class: "s-stop", x1: after.toFixed(2), x2: after.toFixed(2), y1: 0, y2: 64 }, draw("title", null, "a stop would have come here"))),
      legend(kinds.map((kind) => [LOOK[kind][0], NAMES[kind], Math.max(4, Math.round(LOOK[kind][1] * 0.4))]), [band ? "red band: the loop" : null, stop === undefined ? null : "line: where a stop would have come, and shaded what it would have avoided", marked.size ? "triangles: what was repeated" : null, run.per_cell > 1 ? `a cell is ${run.per_cell} events` : null].filter(Boolean).join("; ") || null));
  }

  function tokens(run) {
    const list = run.tokens || [];
    if (list.length < 2) return null;
    const W = 760, H = 60, most = Math.max(1, ...list), step = W / (list.length - 1);
    const path = list.map((value, at) => `${at ? "L" : "M"}${(at * step).toFixed(1)} ${(2 + (H - 4) * (1 - value / most)).toFixed(1)}`).join("");
    const said = `Tokens per ${run.per_token_cell > 1 ? `${run.per_token_cell} model calls` : "model call"}, at most ${short(most)}`;
    return node("figure", null, node("figcaption", null, said),
      chart(W, H, `${said}, in order.`, draw("path", { class: "s-call", d: path }), draw("line", { class: "axis", x1: 0, x2: W, y1: H, y2: H })));
  }

  function evidence(run) {
    const list = run.findings || [];
    if (!list.length) return null;
    return node("div", null, table(`Everything that was seen${run.all_findings > list.length ? `: the first ${list.length} of ${number(run.all_findings)}` : ""}`,
      [["step", 1], ["detector"], ["kind"], ["times", 1], ["level"], ["policy"], ["length", 1], ["xxh3"]],
      list.map((one) => [number(one.turn), one.by, one.sort, number(one.count), one.level, one.did, number(one.length), node("code", null, one.hash)])));
  }

  function sources(run) {
    const parts = [];
    if (run.usage) {
      const use = run.usage, names = [["input", "input, new"], ["cached", "input, from the cache"], ["output", "output"], ["reasoning", "reasoning"]];
      const known = names.reduce((sum, [name]) => sum + (use[name] || 0), 0);
      const rows = names.filter(([name]) => use[name]).map(([name, said]) => [said, use[name]]);
      if (use.total > known) rows.push(["not itemised", use.total - known]);
      parts.push(table("Tokens by source, as the recording counts them", [["source"], ["tokens", 1], [""]], bars(rows)));
    }
    const chars = Object.entries(run.sources || {}).sort((a, b) => b[1] - a[1]).map(([name, value]) => [SOURCES[name] || name, value]);
    parts.push(table("Characters by who wrote them", [["source"], ["characters", 1], [""]], bars(chars)));
    parts.push(table("Tools", [["tool"], ["calls", 1], ["errors", 1], ["characters of results", 1]], (run.tools || []).map(([name, calls, errors, size]) => [name || "?", number(calls), number(errors), number(size)])));
    return node("div", null, parts.filter(Boolean));
  }

  function steps(run) {
    const items = [];
    let next = 0;
    for (const [at, kind, text = "", name = "", time, chars = 0, flags = 0, passage] of run.steps) {
      if (at > next) items.push(node("li", { class: "gap" }, `${count(at - next, "entry", "entries")} not shown`));
      next = at + 1;
      const words = passage ? [text.slice(0, passage[0]), node("mark", null, text.slice(...passage)), text.slice(passage[1])] : [text];
      const more = chars > text.length && text ? ` … (${number(chars)} characters)` : "";
      items.push(node("li", { id: `step-${at}`, class: flags & 1 ? "repeated" : null },
        node("div", { class: "kind" }, node("a", { href: link(run, at), "aria-label": `Link to entry ${at + 1}` }, `#${number(at + 1)}`), " ",
          kind === "error" ? node("span", { class: "bad" }, "error") : kind, name ? [" ", node("b", null, name)] : null, time ? ` · ${when(time)}` : "",
          flags & 1 ? node("span", { class: "badge" }, " · repeated") : null, flags & 2 ? node("span", { class: "badge" }, " · here the loop was seen") : null),
        text || more ? node("div", { class: "said" }, words, more) : null));
    }
    if (run.all_steps > next) items.push(node("li", { class: "gap" }, `${count(run.all_steps - next, "entry", "entries")} not shown`));
    return node("ol", { class: "steps" }, items);
  }

  // ---------------------------------------------------------------- keys, theme, print

  function dark(on) {
    document.documentElement.classList.toggle("dark", on);
    $("theme").setAttribute("aria-pressed", String(on));
  }
  const prefers = matchMedia("(prefers-color-scheme: dark)");
  dark(prefers.matches);
  prefers.addEventListener("change", (event) => dark(event.matches));
  $("theme").addEventListener("click", () => dark(!document.documentElement.classList.contains("dark")));
  $("to-overview").addEventListener("click", () => { history.replaceState(null, "", "#"); follow(); $("part").focus(); });
  $("to-help").addEventListener("click", () => $("help").showModal());
  $("keys").append(...KEYS.flatMap(([key, said]) => [node("dt", null, node("kbd", null, key)), node("dd", null, said)]));
  $("list").addEventListener("scroll", list, { passive: true });
  $("filters").addEventListener("input", select);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("resize", list);
  addEventListener("hashchange", follow);

  const ACTS = {
    "/": () => $("search").focus(),
    j: () => move(current + 1),
    k: () => move(current < 0 ? 0 : current - 1),
    n: () => { const next = shown.findIndex((run, at) => at > current && run.loop); if (next >= 0) move(next); },
    g: () => { const place = $("loop-here"); if (place) go(place.getAttribute("href")); },
    o: () => $("to-overview").click(),
    d: () => $("theme").click(),
    "?": () => $("help").showModal(),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    const typing = event.target instanceof Element && event.target.matches("input, select, textarea");
    if (event.key === "Escape") {
      if (event.target === $("search") && $("search").value) { $("search").value = ""; select(); } else $("list").focus();
      return;
    }
    if (typing) return;
    if (event.target === $("list")) {
      const jump = { ArrowDown: current + 1, ArrowUp: current < 0 ? 0 : current - 1, PageDown: current + 10, PageUp: current - 10, Home: 0, End: shown.length - 1 }[event.key];
      if (jump !== undefined) { event.preventDefault(); move(jump); return; }
      if (event.key === "Enter") { event.preventDefault(); if (current < 0) move(0); $("part").focus(); return; }
    }
    const act = $("keys-on").checked ? ACTS[event.key] : undefined;
    if (act) { event.preventDefault(); act(); }
  });

  const PRINTED = 500;
  addEventListener("beforeprint", () => {
    if (location.hash.startsWith("#run=")) { $("print").replaceChildren(); return; }
    $("print").replaceChildren(node("h2", null, "Runs"), table(shown.length > PRINTED ? `The first ${PRINTED} of ${number(shown.length)}` : "All that are listed",
      [["run"], ["agent"], ["project"], ["from"], ["steps", 1], ["loop"], ["avoidable tokens", 1]],
      shown.slice(0, PRINTED).map((run) => [nameOf(run).slice(0, 80), run.agent, run.project || "", when(run.from).slice(0, 10), number(run.turns), run.loop ? run.loop.said : "", saved(run)[2] ? number(saved(run)[2]) : ""])) || "");
  });
  addEventListener("afterprint", () => $("print").replaceChildren());

  // ---------------------------------------------------------------- begin

  for (const [id, key] of [["agent", (run) => run.agent], ["project", (run) => run.project || "-"], ["state", (run) => run.state || "unknown"]])
    $(id).append(...tally(runs, key).slice(0, 300).map(([name, value]) => node("option", { value: name }, `${name} (${value})`)));
  if (!data.facts.texts) $("search").placeholder = "tool, id";
  select();
  if (location.hash) follow();
  addEventListener("DOMContentLoaded", () => {  // until then the details are not all there
    if ($("search").value) select();
    if (location.hash) follow();
    setTimeout(readOn, 1000, 0);
  });
})();
