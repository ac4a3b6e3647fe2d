// Shows what /events sends, or a report has in itself. What a crawl has found only ever becomes text: no markup is made of strings.

const MOST_POINTS = 2200; // the server keeps 2,160
const DUE = ["1 s", "10 s", "1 min", "10 min", "1 h", "1 day", "longer"];

// States of hosts with pages: figure, name, colour, what needs to be said of it.
const STATES = [
  ["in_flight", "in flight", "fetched"],
  ["ready", "ready", "ready"],
  ["waiting", "waiting", "waiting"],
  ["gated", "gated", "possible", "share a domain or an address with others"],
  ["locating", "locating", "possible", "address not known yet"],
  ["late", "late", "possible", "domain over its budget"],
  ["dry", "dry", "possible", "all queued pages in flight"],
  ["shelved", "shelved", "possible", "on the disk: others are better"],
  ["parked", "parked", "possible", "on the disk until their time"],
  ["dead", "dead", "failed", "no longer waited for"],
];
const COLOURS = { network: "failed", disk: "failed", machine: "failed", spider: "failed", connections: "fetched", none: "ready", done: "ready", stopped: "queued", elsewhere: "queued" }; // others wait
const DROPPED = {
  flood: "beyond the links of AOPIC_URL_LIMITS",
  duplicate: "on duplicates",
  nofollow: "on nofollow pages",
  weight: "of weight 0",
  offsite: "not in allowed_domains",
  depth: "beyond DEPTH_LIMIT",
  length: "beyond URLLENGTH_LIMIT",
  middleware: "by a spider middleware",
};

// Words

const $ = (id) => document.getElementById(id);
const on = (id, event, act) => $(id).addEventListener(event, act);
const answers = $("answers") && JSON.parse($("answers").textContent); // of a report
const formatter = (options) => { const { format } = new Intl.NumberFormat("en", options); return (n) => (n == null ? "–" : format(n)); };
const count = formatter({ maximumFractionDigits: 0 });
const few = formatter({ maximumSignificantDigits: 3 });
const fine = formatter({ maximumFractionDigits: 3 });
const compact = formatter({ notation: "compact", maximumSignificantDigits: 3 });
const number = (n) => (Math.abs(n) >= 1000 ? count : few)(n);
const percent = (part, of) => (of ? `${(part > 0.99 * of ? fine : few)((100 * part) / of)}\xa0%` : "–");
const timesLess = (n) => `${n > 1e6 ? "over a million" : number(n)} times less`;
const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
const day = (at) => new Date(at * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

function seconds(s) {
  if (!s) return s === 0 ? "0 s" : "–";
  if (s < 1) return `${few(s * 1000)} ms`;
  if (s < 120) return `${few(s)} s`;
  if (s < 7200) return `${count(s / 60)} min`;
  return s < 172800 ? `${few(s / 3600)} h` : `${few(s / 86400)} days`;
}

function bytes(n) {
  if (n == null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  for (; n >= 1000 && units.length > 1; units.shift()) n /= 1000;
  return `${few(n)} ${units[0]}`;
}

// Elements: "p.note" is one with a class.

function make(what, ...inside) {
  const [name, ...classes] = what.split(".");
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(" ");
  made.append(...inside);
  return made;
}

const button = (text, act, what = "button") => Object.assign(make(what, text), { type: "button", onclick: act });

// A button that says why something is not crawled; in a report only its name.
const opener = (name) => (answers ? name : button(name, () => answer(name), "button.plain"));

const isUsed = (id) => $(id).contains(document.activeElement);

const styled = (made, property, value) => made.style.setProperty(property, value) || made;

// Only what differs changes: layout takes longer than scripts.

function say(place, text) {
  const shown = $(place) || place;
  if (shown.textContent !== text) shown.textContent = text;
}

function match(old, made) {
  if (old.isEqualNode(made)) return;
  if (!made.tagName || made.onclick || !old.cloneNode().isEqualNode(made.cloneNode())) old.replaceWith(made);
  else fill(old, made);
}

function fill(place, made) {
  const parts = [...made.childNodes];
  parts.forEach((part, i) => (place.childNodes[i] ? match(place.childNodes[i], part) : place.append(part)));
  while (place.childNodes[parts.length]) place.lastChild.remove();
}

const put = (id, ...inside) => fill($(id), make("div", ...inside));

// Figures: a name and a text; without a text none.
const boxes = (id, rows) => put(id, ...rows.filter((row) => row[1]).map(([name, text]) => make("div", make("dt", name), make("dd", text))));

const heading = (place) => place.ariaLabel || place.closest("section, details").querySelector("h2").textContent;

// A head is a text, or [text, class, act of a button]; a cell is a text, an element, or several.
function table(id, heads, rows) {
  const place = $(id);
  if (place.closest("details")?.open === false) return;
  if (!rows.length) return put(id, make("p.empty", "None."));
  const made = make("table", make("caption.hidden", heading(place)));
  const columns = heads.map((head, i) => {
    const [text, kind = i ? "n" : "name", act] = [head].flat();
    return { text, kind, act };
  });
  const cell = (scope, { text, kind }, inside) => {
    const placed = make(`${scope ? "th" : "td"}.${kind}`, ...[inside].flat());
    if (scope) placed.scope = scope;
    else if (kind === "n") placed.dataset.head = text;
    if (inside === "–") placed.classList.add("nothing");
    return placed;
  };
  if (heads[0]) made.createTHead().append(make("tr", ...columns.map((head) => cell("col", head, head.act ? button(head.text, head.act, "button.plain") : head.text))));
  made.createTBody().append(...rows.map((row) => make("tr", ...row.map((inside, i) => cell(i ? "" : "row", columns[i], inside)))));
  put(id, made);
}

const items = (texts) => texts.map((each) => make("li", ...[each].flat()));
const facts = (id, rows) => table(id, ["", ["", "value"]], rows);

// Rows of [name, number, remark, colour]; the length of a bar repeats the number beside it.
function bars(id, rows) {
  const most = Math.max(...rows.map((row) => row[1]), 1);
  const bar = (n, colour) => styled(make(`div.${colour}`), "width", `${(100 * n) / most}%`);
  table(id, ["", "", ["", "bar"]], rows.map(([name, n, remark, colour = "fetched"]) => [
    remark ? [name, make("span.note", ` – ${remark}`)] : name, count(n), bar(n, colour),
  ]));
}

// Over time

let points = [];

// The figure of a snapshot at a path, such as "pages.queued"; of several the sum.
function figure(now, path) {
  const found = path.split(".").reduce((part, name) => part?.[name], now) ?? null;
  return found && typeof found === "object" ? Object.values(found).reduce((all, n) => all + n, 0) : found;
}

const paths = new Set(["at", "rate.failed"]); // what is kept of a snapshot: these, and what is drawn

function addPoint(now) {
  if (now.at <= points.at(-1)?.at) return;
  points.push(Object.fromEntries([...paths].map((path) => [path, figure(now, path)])));
  if (points.length > MOST_POINTS) points = points.filter((_, i) => i % 2 || i > MOST_POINTS / 2);
}

// As many points as can be told apart, with the last one.
function thinned(list) {
  const every = Math.ceil(list.length / 300);
  return list.filter((_, i) => (list.length - 1 - i) % every === 0);
}

// Lists of points between which something ran.
function runsOf(list) {
  const gaps = list.slice(1).map((point, i) => point.at - list[i].at).sort((a, b) => a - b);
  const pause = Math.max(30, 5 * (gaps[Math.floor(gaps.length / 2)] || 0));
  const runs = [];
  list.forEach((point, i) => {
    if (!i || point.at - list[i - 1].at > pause) runs.push([]);
    runs.at(-1).push(point);
  });
  return runs.filter((run) => run.length > 1);
}

// Bands of the plot, of areas that are stacked or of lines: [name, value of a point, colour].
const of = (path) => paths.add(path) && ((point) => point[path] ?? NaN);
const withPages = (point) => (point["hosts.ready"] || 0) + (point["hosts.waiting"] || 0) + (point["hosts.in_flight"] || 0);
let before = new Map(); // of each point the one ten before it
const rateOf = (path) => paths.add(path) && ((point) => {
  const last = before.get(point);
  return last && point[path] >= last[path] ? (point[path] - last[path]) / (point.at - last.at) : 0;
});
const MEDIA = { html: ["HTML", "fetched"], image: ["images", "ready"], application: ["application", "waiting"] };
const ofMedia = Object.keys(MEDIA).map((kind) => rateOf(`media.${kind}`));
const ofAll = rateOf("media");
const [found, unchanged] = [rateOf("found"), rateOf("found.unchanged")];
const STATUSES = { "2xx": "fetched", "3xx": "ready", "4xx": "possible", "5xx": "waiting", none: "failed" };
const BANDS = [
  { name: "fetched a second", height: 150, lines: [["politeness allowed", of("hosts.ceiling"), "allowed"], ["fetched", of("rate.pages"), "fetched"]] },
  { name: "hosts", height: 112, areas: [["in flight", of("hosts.in_flight"), "fetched"], ["ready", of("hosts.ready"), "ready"], ["waiting", of("hosts.waiting"), "waiting"]] },
  { name: "pages queued", lines: [["queued", of("pages.queued"), "queued"]] },
  { name: "answers a second", areas: Object.entries(STATUSES).map(([name, colour]) => [name === "none" ? "no answer" : name, rateOf(`statuses.${name}`), colour]) },
  { name: "bytes a second", areas: [...Object.values(MEDIA).map(([name, colour], i) => [name, ofMedia[i], colour]),
    ["others", (point) => Math.max(0, ofMedia.reduce((left, value) => left - value(point), ofAll(point))), "possible"]] },
  { name: "importance gathered: times that all cash was spent", lines: [["gathered", of("ledger.turns"), "fetched"]], recrawl: true },
  { name: "% of visited pages that were as before", lines: [["as before", (point) => (100 * unchanged(point)) / found(point), "ready"]], recrawl: true },
];
const partsOf = ({ areas, lines }) => areas || lines;

function svg(name, attributes, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

// Areas on each other, and lines: all charts are made of these.
function shapes({ areas = [], lines = [] }, runs, x, y) {
  const path = (list, value) => list.map((point) => `${x(point.at).toFixed(1)},${y(value(point)).toFixed(1)}`);
  const between = (list, low, high, className) => svg("polygon", { class: className, points: [...path(list, high), ...path(list, low).reverse()].join(" ") });
  const none = () => 0;
  return runs.flatMap((run) => {
    let below = none;
    const made = areas.map(([, value, colour]) => {
      const low = below;
      below = (point) => low(point) + (value(point) || 0);
      return between(run, low, below, `area ${colour}`);
    });
    for (const [, value, colour] of lines) {
      const list = run.filter((point) => Number.isFinite(value(point)));
      if (list.length < 2) continue;
      if (colour !== "allowed") made.push(between(list, none, value, `under ${colour}`));
      made.push(svg("polyline", { class: `line ${colour}`, points: path(list, value).join(" ") }));
    }
    return made;
  });
}

function spark(value, colour, past = points) {
  const known = thinned(past.filter((point) => Number.isFinite(value(point))));
  const picture = svg("svg", { viewBox: "0 0 200 40", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (known.length < 2) return picture;
  const span = known.at(-1).at - known[0].at || 1;
  const most = Math.max(...known.map(value)) || 1;
  picture.append(...shapes({ lines: [["", value, colour]] }, runsOf(known), (at) => (200 * (at - known[0].at)) / span, (n) => 39 - (37 * n) / most));
  return picture;
}

let shown = { bands: [], points: [], x: () => 0, width: 0 };

function roundUp(n) {
  const step = 10 ** Math.floor(Math.log10(n));
  return step * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((k) => k * step >= n);
}

function draw() {
  const end = points.at(-1)?.at || 0;
  const known = thinned(points.filter((point) => Number.isFinite(point["rate.pages"]) && point.at >= end - $("range").value));
  const runs = runsOf(known);
  if (!runs.length) return put("plot", make("p.empty", "A plot needs two points; they come while a crawl runs."));
  before = new Map(runs.flatMap((run) => run.map((point, i) => [point, i ? run[Math.max(0, i - 10)] : null])));
  const now = known.at(-1);
  const [first, last] = [known[0].at, now.at];
  const width = Math.max($("plot").clientWidth, 280);
  const isNarrow = width < 600;
  const [left, right] = [52, width - 4];
  const x = (at) => left + ((at - first) / (last - first || 1)) * (right - left);
  const recrawls = known.some((point) => point.found);
  const total = (band, point) => partsOf(band).map(([, value]) => value(point) || 0).reduce((a, b) => (band.areas ? a + b : Math.max(a, b)));
  let top = 4;
  const bands = BANDS.filter((band) => (recrawls || !band.recrawl) && (band.lines || known.some((point) => total(band, point)))).map((band) => {
    const { height = 56 } = band;
    top += isNarrow && partsOf(band)[1] ? 34 : 20;
    const placed = { ...band, height, top, most: roundUp(Math.max(...known.map((point) => total(band, point)), 0.1)) };
    top += height + 8;
    return placed;
  });
  top += 14;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${top}`, height: top, role: "img", "aria-label": `From ${clock(first)} to ${clock(last)}. Now: ${number(now["rate.pages"])} fetched a second of ${number(now["hosts.ceiling"])} that politeness allowed` });
  const line = (className, from, to, y1 = 18, y2 = top - 20) => svg("line", { class: className, x1: from, x2: to, y1, y2 });
  const text = (at, y, anchor, ...inside) => svg("text", { x: at, y, "text-anchor": anchor }, ...inside);
  for (const band of bands) {
    const y = (n) => band.top + band.height - (Math.min(n, band.most) / band.most) * band.height;
    const parts = partsOf(band);
    picture.append(text(left, band.top - (isNarrow && parts[1] ? 20 : 6), "start", band.name));
    const key = parts.flatMap(([name, , colour]) => [svg("tspan", { class: `key ${colour}` }, "  ■ "), name]);
    if (parts[1]) picture.append(text(right, band.top - 6, "end", ...key));
    for (const part of band.height > 100 ? [0, 0.5, 1] : [0, 1]) {
      const n = part * band.most;
      picture.append(line("grid", left, right, y(n), y(n)), text(left - 6, y(n) + 4, "end", (n >= 10000 ? compact : few)(n)));
    }
    picture.append(...shapes(band, runs, x, y));
  }
  const marks = isNarrow ? 2 : 4;
  for (let i = 0; i <= marks; i += 1) {
    const instant = first + ((last - first) * i) / marks;
    picture.append(text(x(instant), top - 4, ["start", "end"][i && i / marks] ?? "middle", (last - first > 86400 ? day : clock)(instant)));
  }
  for (const { at } of latest?.control.asked || []) if (at >= first && at <= last) picture.append(line("asked waiting", x(at), x(at)));
  shown = { bands, points: known, x, width, hover: picture.appendChild(line("hover", 0, 0)) };
  $("plot").replaceChildren(picture);
  hover(hovered);
}

// The values at a moment, under the pointer or by the arrow keys.
let hovered = null; // from the end

function hover(i) {
  hovered = i;
  const { bands, points: known, x, hover: mark } = shown;
  const point = i === null ? null : known[Math.max(0, known.length - 1 - i)];
  mark?.setAttribute("visibility", point ? "visible" : "hidden");
  if (!point) return say("values", "Speeds are over the ten seconds before each point.");
  for (const end of ["x1", "x2"]) mark.setAttribute(end, x(point.at));
  const values = bands.map((band) => `${band.name.split(":")[0]} ${partsOf(band).map(([name, value]) => `${number(value(point))} ${name}`).join(", ")}`);
  say("values", `${clock(point.at)}: ${values.join("; ")}`);
}

on("plot", "pointermove", (event) => {
  const at = ((event.clientX - $("plot").getBoundingClientRect().left) * shown.width) / $("plot").clientWidth;
  const far = shown.points.map((point) => Math.abs(shown.x(point.at) - at));
  if (far.length) hover(far.length - 1 - far.indexOf(Math.min(...far)));
});
for (const name of ["pointerleave", "blur"]) on("plot", name, () => hover(null));
on("plot", "keydown", ({ key }) => {
  const step = { ArrowLeft: 1, ArrowRight: -1 }[key];
  if (step) hover(Math.min(Math.max((hovered ?? -1) + step, 0), shown.points.length - 1));
  if (key === "Escape") hover(null);
});
on("range", "change", () => {
  hovered = null;
  draw();
});

// The head

let limit;

function showHead({ verdict, forecast, is_live: isLive }) {
  const { limit: kind, headline, sentence } = verdict;
  const text = headline || sentence || "No figures yet.";
  const subject = /^.+?(?= limits? | has paused |[:.])/.exec(text)?.[0] ?? "";
  put("headline", make(`em.${COLOURS[kind] || "waiting"}`, subject), text.slice(subject.length));
  say("verdict", sentence === text ? "" : sentence);
  if (kind !== limit) say("spoken", text); // a screen reader is not interrupted by each new figure
  limit = kind;
  if (!isLive) return say("forecast", "");
  const left = forecast.seconds; // rounded once, as in the headline
  say("forecast", `${left === null ? "No end in sight" : `About ${seconds(left < 120 ? Math.round(left) : left)} to go`}: ${forecast.because}.`);
}

// What an operator asks of the crawl, in the words of scrapy aopic control.
const UNDO = { resume: "Go on", rate: "Any speed", connections: "All transfers", unblock: "Unblock", slow: "Usual gaps for", allow: "Follow links to" };

function undo(what) {
  const [action, ...values] = what.split(" ");
  return button([UNDO[action], ...values.filter((word) => word !== "0")].join(" "), () => order(what));
}

async function order(what) {
  say("ordered", `${what} …`);
  const { problem } = await ask(`/api/v1/control?do=${encodeURIComponent(what)}`, { method: "POST", headers: { "Aopic-Order": "1" } });
  say("ordered", problem || `Asked: ${what}. It is in force within two seconds.`);
  setTimeout(() => say("ordered", ""), 8000);
}

const canOrder = () => latest?.is_live && latest.store.name && !answers;

on("pause", "click", () => order(latest.control.paused_since ? "resume" : "pause"));
on("slower", "click", () => order(`rate ${Math.max(0.1, (latest.control.rate || latest.rate?.pages || 1) / 2).toPrecision(2)}`));
on("stop", "click", () => {
  if (confirm("Stop this run? What is queued stays; the command that started it goes on.")) order("stop");
});

function showControl({ control }) {
  const { sentences, undoing = [], asked = [] } = control;
  $("steer").hidden = !canOrder();
  say("pause", control.paused_since ? "Go on" : "Pause");
  const list = (texts) => make("ul", ...items(texts));
  const had = isUsed("orders");
  const shown = [];
  if (sentences.length) shown.push(make("p", "Set by an operator:"), list(sentences));
  if (canOrder()) shown.push(...undoing.map(undo));
  if (asked.length) {
    const past = make("details.inner", make("summary", "What was asked"), list(asked.map(({ at, what }) => `${clock(at)} ${what}`).reverse()));
    past.open = $("orders").querySelector("[open]");
    shown.push(past);
  }
  put("orders", ...shown);
  if (had && document.activeElement === document.body) $("pause").focus();
}

// A recrawl visits pages more than once.
const done = ({ visited, failed }) => visited + failed;
const unit = ({ pages, visits }) => (visits.all > done(pages) ? "visits" : "pages");
const most = (numbers) => Object.entries(numbers || {}).sort((a, b) => b[1] - a[1]);
const tiles = Array.from({ length: 4 }, () => ["dt", "dd.value", "dd.more", "dd.spark"].map((part) => make(part)));
$("four").append(...tiles.map((parts) => make("div", ...parts)));

function showFour(now, due) {
  const { pages, hosts, rate, is_live: isLive, visits: { all, failed, gone } } = now;
  const word = unit(now);
  const isRecent = rate && rate.failed !== null;
  const lately = rate ? `over ${Math.round(rate.seconds)} s${isLive ? "" : " before the last commit"}` : "";
  const reasons = most(hosts.waits).map(([why, n]) => `${count(n)} ${why}`).join(", ");
  const growth = rate?.growth;
  const rows = [
    [`${word} a second`, number(rate?.pages), rate ? `${lately}${hosts.ceiling === null ? "" : `; politeness allowed ${number(hosts.ceiling)}`}` : "no crawl runs", of("rate.pages"), "fetched"],
    ["pages queued", count(pages.queued), growth ? `${growth < 0 ? "shrinks" : "grows"} by ${few(Math.abs(growth))} ${Math.abs(growth) === 1 ? "page" : "pages"} for each visit` : "", of("pages.queued"), "queued"],
    ["hosts have pages", count(STATES.reduce((sum, [key]) => sum + hosts[key], 0)), `${count(hosts.in_flight)} in flight, ${count(hosts.ready)} ready, ${count(hosts.waiting)} waiting${reasons && ` (${reasons})`}`, withPages, "queued"],
    ["failed", isRecent ? percent(rate.failed, rate.pages) : percent(failed, all),
      all ? `${isRecent ? `${lately}; ${percent(failed, all)} ` : ""}of all ${word}. Beside these, ${percent(gone, all)} are forbidden or gone` : lately,
      (point) => (point["rate.pages"] ? (100 * point["rate.failed"]) / point["rate.pages"] : NaN), "failed"],
  ];
  $("four").classList.toggle("past", !isLive);
  rows.forEach(([name, value, more, past, colour], i) => {
    const [head, figure, remark, picture] = tiles[i];
    say(head, name);
    say(figure, value);
    say(remark, more);
    if (due) picture.replaceChildren(spark(past, colour));
  });
}

function showTotals(now) {
  const { hosts, rate, connections, topic, visits } = now;
  boxes("totals", [
    ["pages", count(done(now.pages))],
    ["visits", unit(now) === "visits" && count(visits.all)],
    ["failed", count(visits.failed)], ["gone", count(visits.gone)], [hosts.known === 1 ? "host" : "hosts", count(hosts.known)],
    ["downloads", connections && `${count(connections.in_use)} of ${count(connections.limit)}`],
    ["in callbacks", connections && count(connections.callbacks)],
    ["traffic", rate?.bytes != null && `${bytes(rate.bytes)}/s`],
    ["relevant lately", topic?.lately != null && percent(topic.lately, 1)],
  ]);
}

// Front queues: 63 holds the most cash.
function showFronts({ hosts: { front_queues: fronts, ready_queues: ready }, is_live: isLive, regret }) {
  const used = Object.keys(fronts).map(Number).sort((a, b) => b - a);
  const best = used[0] ?? -1;
  const bestReady = Math.max(-1, ...Object.keys(ready));
  const lowest = Math.min(best, used.at(-1), ...Object.keys(ready));
  const deepest = Math.log10(1 + Math.max(1, ...Object.values(fronts)));
  put("fronts", ...Array.from({ length: best < 0 ? 0 : best - lowest + 1 }, (_, i) => {
    const n = fronts[best - i] || 0;
    const cell = make(`i.${n ? "some" : "none"}.${ready[best - i] ? "ready" : "fetched"}${i ? "" : ".best"}`);
    return styled(cell, "--shade", (0.3 + (0.7 * Math.log10(1 + n)) / deepest).toFixed(2));
  }));
  $("fronts").ariaLabel = `Hosts, from those with the best page to those with the least: ${used.map((level) => count(fronts[level])).join(", ") || "none"}`;
  say("ends", used.length > 1 ? `to ${timesLess(2 ** (best - lowest))}` : "");
  const worse = (queues) => (queues < 0.5 ? "worth about as much as" : `worth ${timesLess(2 ** queues)} than`);
  const now = best < 0 ? "No host in memory has pages that wait."
    : !isLive ? "The best page is framed."
    : bestReady < 0 ? "The best page (framed) waits, as no host is ready."
    : best === bestReady ? "The best page (framed) is next: its host is ready."
    : `The best page (framed) must wait for its host; the next one is ${worse(best - bestReady)} it.`;
  say("regret", `${now}${regret === null ? "" : ` The last thousand fetched pages were ${worse(regret)} the best that waited, on average.`}`);
}

// Hosts

function showHosts(now) {
  const { hosts } = now;
  const some = STATES.filter(([key]) => hosts[key]);
  put("states", ...some.map(([key, , colour]) => styled(make(`i.${colour}`), "flex-grow", hosts[key])));
  $("states").ariaLabel = `Hosts that have pages: ${some.map(([key, name]) => `${count(hosts[key])} ${name}`).join(", ") || "none"}`;
  put("states-legend", ...some.map(([key, name, colour, meaning]) => make(`span.${colour}`, `${count(hosts[key])} ${name}${meaning ? ` (${meaning})` : ""}`)));
  const due = hosts.due_in.map((each, i) => each && `${count(each)} for ${DUE[i] === "longer" ? "" : "up to "}${DUE[i]}`).filter(Boolean);
  say("waits", `Of hosts in memory ${due[0] ? `must be left alone: ${due.join(", ")}` : "none must be left alone"}.`);
  if (!isAsked()) listOwn();
}

// All hosts, by pages or by name, are asked for.
const isAsked = () => ["queued", "fetched"].includes($("by").value) || Boolean($("part").value.trim());
const listOwn = () => listHosts(latest[$("by").value] || [], `Of hosts in memory${latest.is_live ? "" : " at the last commit"}.`);
let sorted = {}; // column and direction, as long as nobody has chosen another list
let listed = [];

function hostState(wait, { state, why }) {
  const colour = STATES.find(([, name]) => name === state)?.[2] || "possible";
  return make(`span.state.${colour}`, wait ? `${seconds(wait)}${why && `: ${why}`}` : state);
}

// Name, class, figure, how it is shown.
const HOST_COLUMNS = [
  ["host", "name", "name", opener],
  ["now", "text", "wait", hostState],
  ["fetched", "n", "visited", count],
  ["queued", "n", "queued", count],
  ["transfer", "n", "transfer", (n) => seconds(n || null)],
  ["errors", "n", "errors", (n) => count(n || null)],
  ["relevant", "n", "relevance", (part) => percent(part, part != null)],
];

function listHosts(hosts, note) {
  listed = hosts;
  say("rows-note", note);
  if (!isUsed("rows")) listRows(); // who is on a name stays there
}

function listRows() {
  const columns = HOST_COLUMNS.filter(([, , each]) => each !== "relevance" || listed.some((host) => host[each] != null));
  const [, , key] = columns[sorted.column] || [];
  const rows = key ? listed.toSorted(({ [key]: a }, { [key]: b }) => sorted.sign * ((a > b) - (a < b))) : listed;
  const heads = columns.map(([name, kind], column) => [name, kind, () => {
    sorted = { column, sign: sorted.column === column ? -sorted.sign : column ? -1 : 1 };
    listRows();
    $("rows").querySelectorAll("th button")[column]?.focus();
  }]);
  table("rows", heads, rows.map((host) => columns.map(([, , each, show]) => show(host[each], host))));
  if (key) $("rows").querySelectorAll("thead th")[sorted.column]?.setAttribute("aria-sort", sorted.sign > 0 ? "ascending" : "descending");
}

async function findHosts(event) {
  event.preventDefault();
  sorted = {};
  if (!isAsked()) return latest && listOwn();
  say("rows-note", "Looking …");
  const { hosts, problem } = await ask(`/api/v1/hosts?by=${$("by").value}&find=${encodeURIComponent($("part").value)}`);
  listHosts(hosts || [], problem || `The first ${count(hosts.length)} of all hosts of the job, as of the last commit at ${clock(asked())}.`);
}

on("look-up", "submit", findHosts);
on("by", "change", findHosts);

const BROUGHT = /^(page|nofollow|noindex|redirect|duplicate|content|language)/;
const GONE = /^(robots|not found|http 4(04|10))/;
const failing = (cause) => (GONE.test(cause) ? "possible" : "failed");

function showFailures({ failures, is_live: isLive }) {
  $("failures").hidden = !isLive; // a stored job has none
  if (isUsed("failed")) return;
  put("failed", ...items(failures.length ? failures.map(({ at, url, cause, is_over: isOver }) => [
    make(`b.${failing(cause)}`, cause), make("span.soft", ` at ${clock(at)}${isOver ? "" : ", waits for another try"}`), make("code", opener(url)),
  ]) : ["None."]));
}

function showFetched({ fetched = [], is_live: isLive }) {
  $("fetched").hidden = !isLive || answers;
  if (isUsed("fetched-rows")) return;
  table("fetched-rows", ["page", "status", "size", "at"], fetched.map(({ at, url, status, size }) => [opener(url), status, bytes(size), clock(at)]));
}

// The 95 % interval of a part of n, as the command line has it.
function wilson(part, n) {
  const z = 1.96 ** 2 / n;
  const half = Math.sqrt(z * (part * (1 - part) + z / 4));
  return [-half, half].map((by) => percent(part + z / 2 + by, 1 + z)).join(" to ");
}

function showTopic({ topic }) {
  $("topic").hidden = !topic;
  if (!topic) return;
  const { lately, harvest, labels } = topic;
  say("topic-brief", `${percent(lately ?? harvest, 1)} relevant${lately === null ? "" : " lately"}`);
  const said = labels ? `by ${labels} labels` : "by their grades, unchecked: scrapy aopic topic label JOBDIR checks it";
  const n = Math.min(topic.pages, 500);
  const [last, all] = lately === null ? ["", ""] : [`last ${count(n)} `, ` (95 %: ${wilson(lately, n)}), and of all ${percent(harvest, 1)}`];
  say("harvest", `Of the ${last}pages that were read, ${percent(lately ?? harvest, 1)} are relevant${all}, ${said}.`);
  bars("relevance", [
    ["relevant", topic.relevant], ["not relevant, or duplicates", topic.pages - topic.relevant, "", "possible"],
  ]);
}

function showOutcomes({ outcomes, refused, deferred, dropped }) {
  const rows = most(outcomes);
  say("outcomes-brief", rows.slice(0, 4).map(([name, n]) => `${count(n)} ${name}`).join(", "));
  bars("classes", rows.map(([name, n]) => [name, n, "", BROUGHT.test(name) ? "fetched" : failing(name)]));
  const others = (numbers, remark, names = {}) => most(numbers).map(([name, n]) => [names[name] || name, n, remark, "possible"]);
  bars("refused", [...others(refused, "refused URLs"), ...others(deferred, "put back"), ...others(dropped, "dropped links", DROPPED)]);
}

function showOrder({ ledger, order: name, queue_seconds: queueSeconds }) {
  const { turns, total, pages, virtual } = ledger;
  const missing = total - pages - virtual;
  const spent = turns > 0 ? `${number(turns)} times` : "";
  say("order-brief", missing ? "cash is missing" : spent ? `all cash was spent ${spent}` : "no cash has been spent");
  say("cash", missing
    ? `${count(missing)} units of cash are missing, which is a fault of the package: scrapy aopic check JOBDIR says more, and please report it.`
    : spent && `If it was all spent once more, no importance would move by more than ${percent(1, turns)} of all importance.`);
  const part = (units) => (pages ? `${number(units / pages)} times what pages hold` : "–");
  facts("ledger", [
    ["order of the pages", name],
    ["average time in the queue", seconds(queueSeconds)],
    ["cash of pages; the rest is the virtual page's", percent(pages, total)],
    ["spent by pages", part(ledger.distributed)],
    ["spent by the virtual page", part(ledger.virtual_distributed)],
  ]);
}

function showStore({ store, machine, transfers, is_live: isLive }) {
  say("store-brief", `${machine ? `${bytes(machine.memory)} of memory, ` : ""}${bytes(store.size_bytes)} stored`);
  const { cache_hits: hits = 0, cache_misses: misses = 0 } = store;
  const { memory, memory_limit: limit, cpu, starved, loop_lag: late, loop_lag_max: latest } = machine || {};
  facts("facts", [
    ["job", store.name || "in memory"],
    ...isLive ? [
      ["last commit", `${seconds(store.commit_age)} ago, took ${seconds(store.last_commit)}; the slowest ${seconds(store.slowest_commit)}`],
      ["page records found in memory", percent(hits, hits + misses)],
    ] : [],
    ["transfers", `${count(transfers.n)}, ${bytes(transfers.bytes)}`], ["average transfer", averageTransfer(transfers)],
    ...machine ? [
      ["memory of the process", `${bytes(memory)}, ${bytes(limit)} at most`],
      ["processor, lately", `${few(100 * cpu)} % of a core${starved >= 0.1 ? `; waits for one ${count(100 * starved)} % of the time, as others use it` : ""}`],
      ["event loop late by", `${seconds(late)} on average lately${latest === null ? "" : `, ${seconds(latest)} at most in this run`}`],
    ] : [],
  ]);
}

const averageTransfer = ({ n, seconds: all }) => seconds(n ? all / n : null);

// A job in shards: what all workers do together.

const FIGURES = { "pages queued": "pages.queued", hosts: "hosts.known" };
let jobDue = 0;

async function showShards(now) {
  const isOne = now.shards.n < 2;
  $("job").hidden = isOne;
  $("job-figures").hidden = !isOne && !now.is_live;
  for (const id of ["queue", "hosts", "outcomes", "order", "store"]) $(id).hidden = now.counted_since === null; // no store was read
  if (isOne || Date.now() < jobDue) return;
  jobDue = now.is_live ? Date.now() + 5000 : 0;
  const job = now.is_live ? await ask("/api/v1/job") : now;
  if (job.problem && now.is_live) return say("job-note", job.problem);
  const { shards, pages } = job;
  say("job-note", shards.is_quiet
    ? "No shard has anything to do, and no letter is on its way: the job is done."
    : `${shards.held} of ${shards.n} shards are crawled; workers: ${shards.alive}. ${now.is_live ? `All other sections are of the ${now.shards.held} shards of this worker.` : "What limits a worker is in its own dashboard."}`);
  const paths = { "pages a second": "rate.pages", visited: "pages.visited", failed: "visits.failed", gone: "visits.gone", ...FIGURES, "letters on the way": "shards.on_the_way" };
  boxes("job-figures", Object.entries(paths).map(([name, path]) => [name, number(figure(job, path))]));
  table(
    "workers",
    ["worker", ["now", "text"], "shards", "of all visits", "queued", "pages/s", "for"],
    shards.workers.map((row) => {
      const own = shards.each.filter((shard) => shard.worker === row.worker);
      const [queued, visited] = ["queued", "visited"].map((name) => own.reduce((all, shard) => all + shard[name], 0));
      const isIdle = own.every((shard) => shard.is_idle);
      const state = !row.shards ? "idle: no shard is free" : !isIdle ? "at work" : queued ? `idle: its ${count(queued)} pages must wait` : "idle: nothing queued in its shards";
      return [row.worker, state, count(row.shards), percent(visited, pages.visited), count(queued), number(row.rate), seconds(row.seconds)];
    }),
  );
}

// Two crawls side by side, in a report.
function showCompared(now) {
  const other = answers?.["/api/v1/compared"];
  if (!other) return;
  $("compared").hidden = false;
  const both = [[now, points], [other.snapshot, other.history]];
  const past = (path, colour) => (_, its) => make("span.spark", spark(of(path), colour, its));
  const figures = { ...FIGURES, "visits a second, since it began": "mean_rate", "times that all cash was spent": "ledger.turns" };
  const failed = (name) => ({ visits }) => percent(visits[name], visits.all);
  table("compared-rows", ["figure", ...both.map(([each]) => each.store.name)], [
    ["now", ({ verdict }) => verdict.headline],
    ["pages", ({ pages }) => count(done(pages))],
    ["failed", failed("failed")],
    ["forbidden or gone", failed("gone")],
    ...Object.entries(figures).map(([name, path]) => [name, (each) => number(figure(each, path))]),
    ["seconds a transfer", ({ transfers }) => averageTransfer(transfers)],
    ["order", ({ order: name }) => name],
    ["fetched a second, over time", past("rate.pages", "fetched")],
    ["pages queued, over time", past("pages.queued", "queued")],
  ].map(([name, value]) => [name, ...both.map((each) => value(...each))]));
}

let latest = null;
let drawn = 0;

// Out of sight nothing changes: the crawl needs the processor.
const PARTS = { speed: (_, due) => due && draw(), four: showFour, totals: showTotals, queue: showFronts, hosts: showHosts, failures: showFailures, fetched: showFetched, topic: showTopic, outcomes: showOutcomes, order: showOrder, store: showStore };
const seen = {};
const observer = new IntersectionObserver((all) => all.forEach(({ target: { id }, isIntersecting }) => {
  seen[id] = isIntersecting;
  if (isIntersecting && latest) PARTS[id](latest, true);
}));
for (const id in PARTS) observer.observe($(id));

function show(now) {
  const isFirst = !latest;
  latest = now;
  addPoint(now);
  const due = now.at >= drawn + Math.min((now.at - points[0].at) / 4, Math.max(10, Math.min(points.length / 36, $("range").value / 60))); // 10 to 60 s
  if (due) drawn = now.at;
  for (const id in PARTS) if (isFirst || seen[id] || $(id).hidden) PARTS[id](now, due);
  if (isFirst) showTraps();
  say("title", now.spider || now.store.name || "crawl");
  document.title = `${$("title").textContent} – crawl`;
  const { at, started_at: began, is_live: isLive, problem } = now;
  const running = began === null ? "" : ` for ${seconds(Math.max(0, Math.round(at - began)))}`;
  setState(problem || (isLive ? `Running${running}` : `As of the last commit, ${day(at)}`), problem ? "bad" : isLive ? "live ready" : "");
  for (const part of [showHead, showCompared, showShards, showControl]) part(now);
}

function setState(text, className) {
  say("state", text);
  $("state").className = className;
}

// Questions

const asked = () => (answers ? latest.at : Date.now() / 1000);

async function ask(path, options) {
  if (answers) return answers[path];
  try {
    const response = await fetch(path, { cache: "no-store", ...options });
    return response.ok ? await response.json() : { problem: (await response.text()).trim() };
  } catch {
    return { problem: "The crawl does not answer." };
  }
}

async function answer(of) {
  say("reply-of", of);
  say("answer", "Looking …");
  if (!$("reply").open) $("reply").showModal();
  const host = URL.canParse(of) ? new URL(of).host : of;
  const { problem, kind, sentences = [] } = await ask(`/api/v1/why?of=${encodeURIComponent(of)}`);
  const texts = problem ? [problem] : [`${kind[0].toUpperCase()}${kind.slice(1)}.`, ...sentences];
  put("answer", ...texts.map((text) => make("p", text)));
  $("of-host").hidden = !host || !canOrder();
  say("block", `Block ${host}`);
  $("block").value = host;
}

on("block", "click", () => {
  order(`block ${$("block").value}`);
  $("reply").close();
});
on("gap", "change", () => order(`slow ${$("gap").value} ${$("block").value}`));
on("ask", "submit", (event) => {
  event.preventDefault();
  answer($("of").value);
});

// What looks at the whole store waits until its section opens.
function lookUp(id, list) {
  on(id, "toggle", async () => {
    if (!$(id).open) return;
    say(`${id}-note`, "Looking …");
    const found = await ask(`/api/v1/${id}`);
    say(`${id}-note`, found.problem || `as of ${clock(asked())}`);
    if (!found.problem) list(found);
  });
}

lookUp("top", ({ pages }) => table(
  "pages",
  ["page", "importance", "visits", ["state", "text"]],
  pages.map((page) => [opener(page.url), number(page.importance), count(page.visits), page.state]),
));

lookUp("domains", ({ domains }) => {
  // Importance of a fetched page; 1 is the average.
  const fetched = domains.reduce((sum, row) => sum + row.visited, 0);
  const worth = (row) => (row.importance !== null && row.visited ? (row.importance * fetched) / row.visited : null);
  table(
    "domain-rows",
    ["domain", "fetched", "of all fetches", "queued", "hosts", "importance a fetch, of average"],
    domains.map((row) => [row.domain || "all others", count(row.visited), percent(row.visited, fetched), count(row.queued), count(row.hosts), number(worth(row))]),
  );
});

// A trap is worth knowing of before anybody asks.
async function showTraps() {
  const { traps = [], problem } = await ask("/api/v1/traps");
  $("traps-note").className = traps.length ? "may-be" : "";
  say("traps-note", problem || traps.map((trap) => `${trap.host} took ${percent(trap.visited_part, 1)} of all fetches`).join(", ") || "none");
  put("traps", ...items(traps.map(({ pattern, order: what, command, deny_url: deny, ...trap }) => [
    make("code", make("b", pattern)),
    `took ${percent(trap.visited_part, 1)} of all fetches (${count(trap.visited)}) and brought ${percent(trap.brought_part, 1)} of all importance; ${count(trap.queued)} wait, ${count(trap.held)} of them behind others. `,
    make("code", command),
    ...deny ? ["Links to it are left out of later runs by this in AOPIC_SCOPE:", make("code", `"deny_urls": [${JSON.stringify(deny)}]`)] : [],
    ...canOrder() ? [what, deny && `deny ${deny}`].filter(Boolean).flatMap((each) => [button(each, () => order(each)), " "]) : [],
  ])));
}

for (const id of ["topic", "outcomes", "order", "store"]) on(id, "toggle", () => $(id).open && latest && PARTS[id](latest));
window.addEventListener("resize", draw);
for (const each of document.querySelectorAll(".scroll")) Object.assign(each, { tabIndex: 0, role: "region", ariaLabel: heading(each) });

// Life

async function begin() {
  const past = await ask("/api/v1/history");
  if (Array.isArray(past)) points = past;
  if (answers) {
    for (const each of document.querySelectorAll("[data-asks]")) each.hidden = true;
    show(await ask("/api/v1/snapshot"));
    return;
  }
  const source = new EventSource("/events");
  let waits;
  source.addEventListener("snapshot", (event) => {
    clearTimeout(waits);
    show(JSON.parse(event.data));
  });
  const looks = setInterval(() => document.hidden || showTraps(), 120000);
  source.addEventListener("bye", (event) => {
    source.close();
    clearInterval(looks);
    const { reason, why } = JSON.parse(event.data);
    setState(`The crawl is over: ${reason}. These are its last figures.`, "");
    if (!latest?.is_live) return;
    const { pages: { queued }, store: { name: job } } = latest;
    showHead({
      verdict: {
        limit: "stopped",
        headline: queued ? `Ended: ${why}. ${count(queued)} ${queued === 1 ? "page waits" : "pages wait"}.` : "Done: nothing is queued.",
        sentence: job ? `The command that started it goes on where it was${queued ? "" : " with --again"}. To look at it meanwhile: scrapy aopic dashboard ${job}` : "The job was in memory, and is gone.",
      },
    });
  });
  source.addEventListener("error", () => {
    clearTimeout(waits);
    waits = setTimeout(() => setState(source.readyState === EventSource.CLOSED ? "Not connected: an old token, or too many pages that watch. Reload to try again." : "No connection to the crawl; trying again.", "bad"), 500);
  });
}

begin();
