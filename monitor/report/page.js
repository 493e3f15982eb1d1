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
  const short = (value) => (value >= 1e9 ? (value / 1e9).toFixed(1) + "G" : value >= 1e6 ? (value / 1e6).toFixed(1) + "M" : value >= 1e4 ? Math.round(value / 1e3) + "k" : number(Math.round(value)));
  const money = (value) => "US$ " + value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  const when = (at) => (at ? new Date(at * 1000).toISOString().slice(0, 16).replace("T", " ") : "");
  const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
  const saved = (run) => run.saved || [0, 0, 0, 0];
  const nameOf = (run) => run.title || run.id || run.key;
  const link = (run, step) => `#run=${run.key}${step === undefined ? "" : `&step=${step}`}`;
  // A run that goes on in another file has two rows, and counts once: `of` is the key of the first.
  const runsIn = (rows) => new Set(rows.map((run) => run.of || run.key)).size;
  const tally = (list, key) => { const found = new Map(); for (const one of list) { const name = key(one); if (!found.has(name)) found.set(name, []); found.get(name).push(one); } return [...found].map(([name, rows]) => [name, runsIn(rows)]).sort((a, b) => b[1] - a[1]); };

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
    run.text = `${nameOf(run)} ${run.id} ${run.file || ""} ${run.format} ${run.project || ""} ${run.model || ""} ${run.result || ""} ${loop}`.toLowerCase();
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
    new: (a, b) => (b.to || 0) - (a.to || 0),
    long: (a, b) => (b.turns || 0) - (a.turns || 0),
  };

  function select() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length && unread) for (let piece = 0; piece * size < runs.length; piece += 1) read(piece);
    const show = $("show").value, kept = current >= 0 ? shown[current] : null;
    shown = runs.filter((run) => (show === "" || (show === "loop") === Boolean(run.loop))
      && ($("format").value === "" || run.format === $("format").value)
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
    const facts = [run.format, run.project, when(run.from).slice(0, 10), count(run.turns || 0, "turn"), run.of && "goes on"].filter(Boolean).join(" · ");
    const made = node("div", { class: "row", role: "option", id: `row-${at}`, "aria-selected": String(at === current), "aria-setsize": shown.length, "aria-posinset": at + 1, on: { click: () => go(link(run)) } },
      node("b", null, nameOf(run)),
      node("span", null, run.loop ? node("b", { class: "loop" }, `loop: ${run.loop.said}${saved(run)[2] ? `, ${short(saved(run)[2])} tokens` : ""}`) : null, facts));
    made.style.top = `${at * ROW}px`;
    return made;
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
    if (!found) { current = -1; list(); overview(); return; }
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
    const loops = shown.filter((run) => run.loop);
    const total = (of) => shown.reduce((sum, run) => sum + (of(run) || 0), 0);
    const priced = shown.some((run) => run.usd !== undefined);
    const facts = [
      [number(runsIn(shown)), "runs"], [number(loops.length), "with a loop"], [short(total((run) => run.turns)), "turns"], [short(total((run) => run.calls)), "calls"],
      [short(total((run) => run.usage && run.usage.total)), "tokens"], [loops.length && !loops.some((run) => saved(run)[2] !== null && saved(run)[2] !== undefined) ? "unknown" : short(total((run) => saved(run)[2])), "tokens a stop would have saved"],
      priced && total((run) => saved(run)[3]) ? [money(total((run) => saved(run)[3])), "a stop would have saved"] : null,
    ].filter(Boolean);
    const groups = new Map();
    for (const run of shown) {
      const key = `${run.format}\n${run.project || "-"}`, one = groups.get(key) || [run.format, run.project || "-", 0, 0, 0, 0];
      one[2] += run.of ? 0 : 1; one[3] += run.loop ? 1 : 0; one[4] += (run.usage && run.usage.total) || 0; one[5] += saved(run)[2] || 0;
      groups.set(key, one);
    }
    const ordered = [...groups.values()].sort((a, b) => b[5] - a[5] || b[3] - a[3] || b[2] - a[2]);
    const worst = [...loops].sort(ORDERS.saved).slice(0, 12);
    $("part").replaceChildren(...[
      data.facts.card && shown.length === runs.length ? node("p", { class: "card" }, `${data.facts.card}.`) : null,
      node("h2", null, shown.length === runs.length ? "All runs" : "The runs that are listed"),
      data.facts.bad ? node("p", { class: "badge" }, `This is not everything: ${count(data.facts.bad, "thing")} could not be read, lines or files.`) : null,
      node("ul", { class: "numbers" }, facts.map(([value, name]) => node("li", null, node("b", null, value), node("span", null, name)))),
      byTime(),
      table("What was repeated, the costly runs first", [["run"], ["what"], ["saved turns", 1], ["saved tokens", 1]],
        worst.map((run) => [node("a", { href: link(run) }, nameOf(run).slice(0, 100)), run.loop.because || run.loop.said, number(saved(run)[0]), saved(run)[2] === null || saved(run)[2] === undefined ? "" : number(saved(run)[2])])),
      table("What the loops are", [["kind"], ["runs", 1], [""]], bars(tally(loops, (run) => run.loop.sort), 1)),
      table("How runs ended, as their recordings say", [["state"], ["runs", 1], [""]], bars(tally(shown, (run) => run.state || "unknown"), 1)),
      table("By tool and project", [["tool"], ["project"], ["runs", 1], ["loops", 1], ["tokens", 1], ["saved tokens", 1]],
        ordered.slice(0, 40).map((one) => [one[0], one[1], number(one[2]), number(one[3]), short(one[4]), short(one[5])])),
      grouped("By model", "model", (run) => run.model || "unknown"),
      grouped("By week", "week that begins", (run) => week(run.from)),
      ordered.length > 40 ? node("p", { class: "quiet" }, `and ${ordered.length - 40} more`) : null,
      node("p", { class: "quiet" }, `Made by agent-monitor${data.facts.made ? ` at ${when(data.facts.made)} UTC` : ""}. Times are UTC. ${data.facts.texts ? "This page holds pieces of the transcripts: share it as you would share them." : "This page holds no text of a transcript."}`),
    ].filter(Boolean));
  }

  function week(at) {
    if (!at) return "unknown";
    const day = new Date(at * 1000), monday = (day.getUTCDay() + 6) % 7;
    return new Date(at * 1000 - monday * 86400000).toISOString().slice(0, 10);
  }

  function grouped(caption, name, key) {
    const found = new Map();
    for (const run of shown) {
      const one = found.get(key(run)) || [key(run), 0, 0, null, null];
      one[1] += run.of ? 0 : 1; one[2] += run.loop ? 1 : 0;
      if (run.usage) one[3] = (one[3] || 0) + run.usage.total;
      if (run.usd !== undefined) one[4] = (one[4] || 0) + run.usd;
      found.set(key(run), one);
    }
    const rows = [...found.values()].sort((a, b) => (name === "model" ? b[1] - a[1] : a[0] < b[0] ? 1 : -1)).slice(0, 40);
    return rows.length < 2 ? null : table(caption, [[name], ["runs", 1], ["loops", 1], ["tokens", 1], ["US$", 1]],
      rows.map((one) => [one[0].slice(0, 60), number(one[1]), number(one[2]), one[3] === null ? "?" : short(one[3]), one[4] === null ? "?" : one[4].toFixed(2)]));
  }

  function bars(rows, names) {
    const most = Math.max(1, ...rows.map((one) => one[1]));
    return rows.map(([name, value]) => [...name.split("\n").slice(0, names), number(value),
      draw("svg", { width: 160, height: 12, "aria-hidden": "true" }, draw("rect", { class: "f-call", width: Math.max(1, (160 * value) / most), height: 12 }))]);
  }

  function byTime() {
    const dated = shown.filter((run) => run.from);
    if (dated.length < 2) return null;
    const DAY = 86400, low = dated.reduce((least, run) => Math.min(least, run.from), Infinity), high = dated.reduce((most, run) => Math.max(most, run.from), 0);
    const unit = [DAY, 7 * DAY, 30 * DAY, 91 * DAY, 365 * DAY].find((one) => (high - low) / one <= 60) || 3650 * DAY;
    const start = Math.floor(low / unit) * unit, size = Math.min(400, Math.floor((high - start) / unit) + 1);
    const all = new Array(size).fill(0), bad = new Array(size).fill(0), gain = new Array(size).fill(0);
    for (const run of dated) { const at = Math.min(size - 1, Math.floor((run.from - start) / unit)); all[at] += run.of ? 0 : 1; bad[at] += run.loop ? 1 : 0; gain[at] += saved(run)[2] || 0; }
    const W = 760, H = 150, step = (W - 50) / size, most = Math.max(1, ...all), top = Math.max(1, gain.reduce((a, b) => a + b, 0));
    let sum = 0;
    const path = gain.map((value, at) => { sum += value; return `${at ? "L" : "M"}${(50 + (at + 0.5) * step).toFixed(1)} ${(10 + (H - 40) * (1 - sum / top)).toFixed(1)}`; }).join("");
    const label = { [DAY]: "day", [7 * DAY]: "week", [30 * DAY]: "30 days", [91 * DAY]: "91 days", [365 * DAY]: "year" }[unit] || "10 years";
    const said = `Runs per ${label}, from ${when(low).slice(0, 10)} to ${when(high).slice(0, 10)}`;
    return node("figure", null, node("figcaption", null, said),
      draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${said}: ${number(runsIn(dated))} runs, ${bad.reduce((a, b) => a + b, 0)} with a loop, ${number(sum)} saved tokens in all.` },
        all.map((value, at) => { const tall = ((H - 40) * value) / most; return value ? draw("rect", { class: "f-call", x: 50 + at * step, y: H - 30 - tall, width: Math.max(1, step - 1), height: tall }, draw("title", null, `${when(start + at * unit).slice(0, 10)}: ${count(value, "run")}, ${bad[at]} with a loop`)) : null; }),
        bad.map((value, at) => { const tall = ((H - 40) * value) / most; return value ? draw("rect", { class: "f-loop", x: 50 + at * step, y: H - 30 - tall, width: Math.max(1, step - 1), height: Math.max(2, tall) }) : null; }),
        sum ? draw("path", { class: "s-loop", d: path, "stroke-dasharray": "5 3" }) : null,
        draw("line", { class: "axis", x1: 50, x2: W, y1: H - 30, y2: H - 30 }),
        draw("text", { x: 44, y: 20, "text-anchor": "end" }, number(most)), draw("text", { x: 50, y: H - 12 }, when(start).slice(0, 10)),
        draw("text", { x: W, y: H - 12, "text-anchor": "end" }, when(high).slice(0, 10))),
      legend([["call", "runs"], ["loop", "of them with a loop"]], sum ? `dashed line: saved tokens, added up to ${short(sum)}` : null));
  }

  function legend(entries, more) {
    return node("ul", { class: "legend" }, entries.map(([look, name, tall]) => node("li", null,
      draw("svg", { width: 10, height: 14, "aria-hidden": "true" }, draw("rect", { class: `f-${look}`, width: 8, height: tall || 12, y: 14 - (tall || 12) })), name)), more ? node("li", null, more) : null);
  }

  // ---------------------------------------------------------------- one run

  function tell(run, step) {
    document.title = `${nameOf(run)} - ${data.facts.title}`;
    const use = run.usage;
    const facts = [
      ["tool", run.format], ["project", run.project], ["model", run.model], ["run", run.id], ["part of", run.parent], ["file", run.file],
      ["time", run.from ? `${when(run.from)} to ${when(run.to)} UTC` : "not recorded"], ["ended", `${run.state || "unknown"}${run.why ? `: ${run.why}` : ""}`],
      ["cost", run.usd === undefined ? "unknown" : money(run.usd)], ["failed", run.failed],
    ].filter((one) => one[1]);
    const numbers = [[number(run.turns), "turns"], [number(run.calls), "calls"], [number(run.errors), "errors"], [number(run.compactions), "compactions"], use ? [short(use.total), "tokens"] : null].filter(Boolean);
    $("part").replaceChildren(...[
      node("h2", null, nameOf(run)),
      node("p", { class: "no-print" }, node("a", { href: link(run) }, "Link to this run")),
      run.loop ? finding(run) : node("p", null, run.failed ? "It could not be watched to its end." : "No loop was seen in it."),
      node("ul", { class: "numbers" }, numbers.map(([value, name]) => node("li", null, node("b", null, value), node("span", null, name)))),
      run.strip ? timeline(run) : null,
      tokens(run),
      node("dl", { class: "facts" }, facts.map(([name, value]) => [node("dt", null, name), node("dd", null, value)])),
      evidence(run),
      sources(run),
      run.steps ? node("h3", null, "Steps") : null,
      run.steps ? steps(run, step) : run.all_steps ? node("p", { class: "quiet" }, "The steps of this run are not on the page.") : null,
    ].filter(Boolean));
    const aim = step === null ? null : $(`step-${step}`);
    if (aim) { aim.classList.add("here"); aim.scrollIntoView({ block: "center" }); }
    else { $("part").scrollTop = 0; $("part").scrollIntoView(); }  // on a phone it stands below the list
  }

  function finding(run) {
    const loop = run.loop, [turns, calls, use, usd] = saved(run);
    const seen = (run.steps || []).find((step) => (step[6] || 0) & 2);
    const rows = [
      ["because", loop.because || loop.said], ["repeated", loop.what ? node("span", { class: "said" }, loop.what) : null],
      ["result", run.result && loop.channel === "tools" ? node("span", { class: "said" }, run.result) : null],
      ["seen", `turn ${number(loop.turn)}, after ${number(loop.count)} times; a ${loop.level === "loop" ? "loop" : "suspicion"} from ${number(loop.limit)}`],
      ["saved by a stop", run.stopped ? [count(turns || 0, "turn"), count(calls || 0, "call"), use === null || use === undefined ? "tokens unknown" : count(use, "token"), usd === null || usd === undefined ? null : money(usd)].filter(Boolean).join(", ") : "nothing: the policy would not have ended it"],
      ["where", seen ? node("a", { href: link(run, seen[0]), id: "loop-here" }, `step ${number(seen[0] + 1)}`) : null],
    ].filter((one) => one[1]);
    return node("section", { class: "finding", "aria-label": "The loop" }, node("dl", null, rows.map(([name, value]) => [node("dt", null, name), node("dd", null, value)])));
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
      draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Time line of the run, ${told}` },
        band ? draw("rect", { class: "f-band", x: band[0].toFixed(2), y: 0, width: band[1].toFixed(2), height: 58 }, draw("title", null, "the loop")) : null,
        stop !== undefined && after < W && until + 1 < cells.length ? draw("rect", { class: "f-spared", x: after.toFixed(2), y: 0, width: (cells.length * step - after).toFixed(2), height: 58 }, draw("title", null, "what a stop would have saved")) : null,
        cells.map((cell, at) => draw("rect", { class: `f-${LOOK[cell][0]}`, x: (at * step).toFixed(2), y: 44 - LOOK[cell][1], width: Math.max(0.8, step - (step > 3 ? 1 : 0)).toFixed(2), height: LOOK[cell][1] }, step > 2 ? draw("title", null, NAMES[cell]) : null)),
        [...marked].map((at) => draw("path", { class: "f-loop", d: `M${(at * step).toFixed(1)} 56l${Math.max(4, step).toFixed(1)} 0l-${(Math.max(4, step) / 2).toFixed(1)} -8z` })),
        draw("line", { class: "axis", x1: 0, x2: W, y1: 45, y2: 45 }),
        stop === undefined ? null : draw("line", { class: "s-stop", x1: after.toFixed(2), x2: after.toFixed(2), y1: 0, y2: 64 }, draw("title", null, "a stop would have come here"))),
      legend(kinds.map((kind) => [LOOK[kind][0], NAMES[kind], Math.max(4, Math.round(LOOK[kind][1] * 0.4))]), [band ? "red band: the loop" : null, stop === undefined ? null : "line: where a stop would have come, and shaded what it would have saved", marked.size ? "triangles: what was repeated" : null, run.per_cell > 1 ? `a cell is ${run.per_cell} events` : null].filter(Boolean).join("; ") || null));
  }

  function tokens(run) {
    const list = run.tokens || [];
    if (list.length < 2) return null;
    const W = 760, H = 90, most = Math.max(1, ...list), step = (W - 60) / (list.length - 1);
    const path = list.map((value, at) => `${at ? "L" : "M"}${(60 + at * step).toFixed(1)} ${(8 + (H - 20) * (1 - value / most)).toFixed(1)}`).join("");
    const per = run.per_token_cell > 1 ? `${run.per_token_cell} model calls` : "model call";
    return node("figure", null, node("figcaption", null, `Tokens per ${per}`),
      draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Tokens per ${per}, in order: at most ${number(most)}.` },
        draw("path", { class: "s-call", d: path }), draw("line", { class: "axis", x1: 60, x2: W, y1: H - 12, y2: H - 12 }),
        draw("text", { x: 54, y: 18, "text-anchor": "end" }, short(most)), draw("text", { x: 54, y: H - 12, "text-anchor": "end" }, "0")));
  }

  function evidence(run) {
    const list = run.findings || [];
    if (!list.length) return null;
    return node("div", null, table(`Everything that was seen${run.all_findings > list.length ? `: the first ${list.length} of ${number(run.all_findings)}` : ""}`,
      [["turn", 1], ["detector"], ["kind"], ["times", 1], ["level"], ["policy"], ["length", 1], ["xxh3"]],
      list.map((one) => [number(one.turn), one.by, one.kind, number(one.count), one.level, one.did, number(one.length), node("code", null, one.hash)])));
  }

  function sources(run) {
    const parts = [];
    if (run.usage) {
      const use = run.usage, names = [["input", "input, new"], ["cached", "input, from the cache"], ["output", "output"], ["reasoning", "reasoning"]];
      const known = names.reduce((sum, [name]) => sum + (use[name] || 0), 0);
      const rows = names.filter(([name]) => use[name]).map(([name, said]) => [said, use[name]]);
      if (use.total > known) rows.push(["not itemised", use.total - known]);
      parts.push(table("Tokens by source, as the recording counts them", [["source"], ["tokens", 1], [""]], bars(rows, 1)));
    }
    const chars = Object.entries(run.sources || {}).sort((a, b) => b[1] - a[1]).map(([name, value]) => [SOURCES[name] || name, value]);
    parts.push(table("Characters by who wrote them", [["source"], ["characters", 1], [""]], bars(chars, 1)));
    parts.push(table("Tools", [["tool"], ["calls", 1], ["errors", 1], ["characters of results", 1]], (run.tools || []).map(([name, calls, errors, size]) => [name || "?", number(calls), number(errors), number(size)])));
    return node("div", null, parts.filter(Boolean));
  }

  function steps(run) {
    const items = [];
    let next = 0;
    for (const [at, kind, text = "", name = "", time, chars = 0, flags = 0, passage] of run.steps) {
      if (at > next) items.push(node("li", { class: "gap" }, `${count(at - next, "step")} not shown`));
      next = at + 1;
      const words = passage ? [text.slice(0, passage[0]), node("mark", null, text.slice(...passage)), text.slice(passage[1])] : [text];
      const more = chars > text.length && text ? ` … (${number(chars)} characters)` : "";
      items.push(node("li", { id: `step-${at}`, class: flags & 1 ? "repeated" : null },
        node("div", { class: "kind" }, node("a", { href: link(run, at), "aria-label": `Link to step ${at + 1}` }, `#${number(at + 1)}`), " ",
          kind === "error" ? node("span", { class: "bad" }, "error") : kind, name ? [" ", node("b", null, name)] : null, time ? ` · ${when(time)}` : "",
          flags & 1 ? node("span", { class: "badge" }, " · repeated") : null, flags & 2 ? node("span", { class: "badge" }, " · here the loop was seen") : null),
        text || more ? node("div", { class: "said" }, words, more) : null));
    }
    if (run.all_steps > next) items.push(node("li", { class: "gap" }, `${count(run.all_steps - next, "step")} not shown`));
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
      [["run"], ["tool"], ["project"], ["from"], ["turns", 1], ["loop"], ["saved tokens", 1]],
      shown.slice(0, PRINTED).map((run) => [nameOf(run).slice(0, 80), run.format, run.project || "", when(run.from).slice(0, 10), number(run.turns), run.loop ? run.loop.said : "", saved(run)[2] ? number(saved(run)[2]) : ""])) || "");
  });
  addEventListener("afterprint", () => $("print").replaceChildren());

  // ---------------------------------------------------------------- begin

  for (const [id, key] of [["format", (run) => run.format], ["project", (run) => run.project || "-"], ["state", (run) => run.state || "unknown"]])
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
