// Shows what /events sends, or in a report what that has in itself. What a crawl has found (names, URLs) only ever becomes text: no markup is made of strings.

const MOST_POINTS = 2200; // the server keeps 2,160
const DUE = ["1 s", "10 s", "1 min", "10 min", "1 h", "1 day", "longer"];

// States of hosts with pages: figure, name, colour, meaning.
const STATES = [
  ["in_flight", "in flight", "fetched", "requested right now"],
  ["ready", "ready", "ready", "may be requested now"],
  ["waiting", "waiting", "waiting", "must be left alone for a time"],
  ["gated", "gated", "possible", "share a domain or an address with others"],
  ["locating", "locating", "possible", "address not known yet"],
  ["late", "late", "possible", "domain over its budget"],
  ["dry", "dry", "possible", "all queued pages in flight"],
  ["shelved", "shelved", "possible", "on the disk: others are better"],
  ["parked", "parked", "possible", "on the disk until their time"],
  ["dead", "dead", "failed", "no longer waited for"],
];
const WAITS = { gap: "for the gap after a transfer", "crawl delay": "for the crawl delay of their robots.txt", errors: "after errors", down: "without a response" };
const COLOURS = { politeness: "waiting", control: "waiting", paused: "waiting", pause: "waiting", network: "failed", disk: "failed", machine: "failed", spider: "failed", connections: "fetched", none: "ready", done: "ready" };

const DROPPED = {
  flood: "beyond the links of AOPIC_URL_LIMITS",
  duplicate: "on duplicates",
  nofollow: "on pages that ask for it (nofollow)",
  weight: "of weight 0",
  offsite: "not in allowed_domains",
  depth: "beyond DEPTH_LIMIT",
  length: "beyond URLLENGTH_LIMIT",
  middleware: "by a spider middleware",
};

const $ = (id) => document.getElementById(id);
const answers = $("answers") && JSON.parse($("answers").textContent); // of a report, which asks nobody
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const few = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const count = (n) => (n == null ? "–" : whole.format(n));
const number = (n) => (n == null ? "–" : Math.abs(n) >= 1000 ? whole.format(n) : few.format(n));
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const brief = (n) => (n >= 10000 ? compact : few).format(n); // on an axis
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });
const percent = (part, of) => (of ? `${(part > 0.99 * of ? fine : few).format((100 * part) / of)} %` : "–");

function seconds(s) {
  if (s == null) return "–";
  if (s < 1) return s === 0 ? "0 s" : `${few.format(s * 1000)} ms`;
  if (s < 120) return `${few.format(s)} s`;
  if (s < 7200) return `${whole.format(s / 60)} min`;
  return s < 172800 ? `${few.format(s / 3600)} h` : `${few.format(s / 86400)} days`;
}

function bytes(n) {
  if (n == null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i += 1) n /= 1000;
  return `${few.format(n)} ${units[i]}`;
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function setText(id, text) {
  const place = $(id);
  if (place.textContent !== text) place.textContent = text;
}

// Tables: a cell is a text or an element.

const isClosed = (place) => place.closest("details")?.open === false; // nobody sees it

function table(id, heads, rows, { empty = "None.", caption = "" } = {}) {
  const place = $(id);
  if (isClosed(place)) return;
  if (!rows.length) {
    place.replaceChildren(element("p", empty, "empty"));
    return;
  }
  const made = element("table");
  made.append(element("caption", caption || place.getAttribute("aria-label") || "", "hidden"));
  const head = element("tr");
  for (const [text, kind] of heads) {
    const cell = element("th", undefined, kind);
    cell.scope = "col";
    cell.append(text);
    head.append(cell);
  }
  if (heads.some(([text]) => text)) {
    made.append(element("thead"));
    made.tHead.append(head);
  }
  made.append(element("tbody"));
  for (const row of rows) {
    const line = element("tr");
    row.forEach((text, i) => {
      const cell = element(i ? "td" : "th", undefined, heads[i][1]);
      if (!i) cell.scope = "row";
      else if (typeof heads[i][0] === "string" ? heads[i][0] : heads[i][0].textContent) cell.dataset.head = heads[i][0].textContent ?? heads[i][0];
      cell.append(text);
      line.append(cell);
    });
    made.tBodies[0].append(line);
  }
  place.replaceChildren(made);
}

// Rows of [name, number, remark, colour]; the length of a bar repeats the number beside it.
function bars(id, caption, rows, { empty = "None." } = {}) {
  const place = $(id);
  if (isClosed(place)) return;
  if (!rows.length) {
    place.replaceChildren(element("p", empty, "empty"));
    return;
  }
  const most = Math.max(...rows.map((row) => row[1]), 1);
  const made = element("table", undefined, "bars");
  made.append(element("caption", caption, "hidden"));
  const body = element("tbody");
  for (const [name, n, remark, colour] of rows) {
    const line = element("tr", undefined, colour);
    const head = element("th", name, "name");
    head.scope = "row";
    if (remark) head.append(element("span", ` – ${remark}`, "note"));
    const bar = element("td", undefined, "bar");
    bar.setAttribute("aria-hidden", "true");
    if (n > 0) {
      const length = element("div");
      length.style.width = `${(100 * n) / most}%`;
      bar.append(length);
    }
    line.append(head, element("td", count(n), "n"), bar);
    body.append(line);
  }
  made.append(body);
  place.replaceChildren(made);
}

const facts = (id, caption, rows) => table(id, [["", "name"], ["", "value"]], rows, { caption });

// What is over time

let points = [];

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function roundUp(n) {
  const step = 10 ** Math.floor(Math.log10(n));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((k) => k * step).find((k) => k >= n);
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
const day = (at) => new Date(at * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

// The figure of a snapshot at a path, such as "pages.queued".
const figure = (now, path) => path.split(".").reduce((part, name) => (part ? part[name] : part), now) ?? null;

const POINT = ["at", "rate.pages", "rate.failed", "hosts.ceiling", "pages.queued", "hosts.ready", "hosts.waiting", "hosts.in_flight",
  "statuses.2xx", "statuses.3xx", "statuses.4xx", "statuses.5xx", "statuses.none", "media.html", "media.image", "media.application", "media", "ledger.turns", "round.found.unchanged", "round.found"];
const sum = (counts) => (typeof counts === "object" && counts ? Object.values(counts).reduce((all, n) => all + n, 0) : counts);

function addPoint(now) {
  const before = points[points.length - 1];
  if (before && now.at <= before.at) return;
  points.push(Object.fromEntries(POINT.map((path) => [path, sum(figure(now, path))])));
  if (points.length > MOST_POINTS) points = points.filter((_, i) => i % 2 || i > MOST_POINTS / 2);
}

// Lists of points in each of which something ran all the time.
function runsOf(list) {
  const gaps = list.slice(1).map((point, i) => point.at - list[i].at).sort((a, b) => a - b);
  const pause = Math.max(30, 5 * (gaps[Math.floor(gaps.length / 2)] || 0));
  const runs = [];
  list.forEach((point, i) => {
    if (!i || point.at - list[i - 1].at > pause) runs.push([]);
    runs[runs.length - 1].push(point);
  });
  return runs.filter((run) => run.length > 1);
}

const withPages = (point) => (point["hosts.ready"] || 0) + (point["hosts.waiting"] || 0) + (point["hosts.in_flight"] || 0);

// What stands in the bands of the plot: [name, path or function, colour], stacked where there are several.
const of = (path) => (point) => point[path] || 0;
const rateOf = (path) => (point) => (point.before && point[path] >= point.before[path] ? (point[path] - point.before[path]) / (point.at - point.before.at) : 0);
const otherMedia = (point) => Math.max(0, rateOf("media")(point) - ["html", "image", "application"].reduce((all, kind) => all + rateOf(`media.${kind}`)(point), 0));
const isFresh = (point) => {
  const [n, same] = ["round.found", "round.found.unchanged"].map((path) => rateOf(path)(point));
  return n ? (100 * same) / n : NaN;
};
const BANDS = [
  { name: "fetched a second", height: 150, lines: [["politeness allowed", of("hosts.ceiling"), "allowed"], ["fetched", of("rate.pages"), "fetched"]] },
  { name: "hosts", height: 112, areas: [["in flight", of("hosts.in_flight"), "fetched"], ["ready", of("hosts.ready"), "ready"], ["waiting", of("hosts.waiting"), "waiting"]] },
  { name: "pages queued", height: 56, lines: [["queued", of("pages.queued"), "queued"]] },
  { name: "answers a second, by status", height: 56, areas: [["2xx", rateOf("statuses.2xx"), "fetched"], ["3xx", rateOf("statuses.3xx"), "ready"], ["4xx", rateOf("statuses.4xx"), "possible"], ["5xx", rateOf("statuses.5xx"), "waiting"], ["no answer", rateOf("statuses.none"), "failed"]] },
  { name: "bytes a second, by media type", height: 56, areas: [["HTML", rateOf("media.html"), "fetched"], ["images", rateOf("media.image"), "ready"], ["application", rateOf("media.application"), "waiting"], ["others", otherMedia, "possible"]] },
  { name: "importance gathered: times that all cash was spent", height: 56, lines: [["gathered", of("ledger.turns"), "fetched"]], recrawl: true },
  { name: "% of visited pages that were as before", height: 56, lines: [["as before", isFresh, "ready"]], recrawl: true },
];
let shown = { bands: [], points: [], x: () => 0, width: 0 };
let drawnAt = 0;

// As many points as can be told apart, the last one among them.
function thinned(list) {
  const every = Math.ceil(list.length / 300);
  return list.filter((_, i) => (list.length - 1 - i) % every === 0);
}

// Whether the last point is a pixel beyond what is drawn: of a long crawl it is seldom.
function isDue() {
  const { points: drawn, width } = shown;
  const end = points[points.length - 1].at;
  return drawn.length < 2 || end - drawnAt >= (drawn[drawn.length - 1].at - drawn[0].at) / width;
}

function draw() {
  const end = points[points.length - 1]?.at || 0;
  const known = thinned(points.filter((point) => Number.isFinite(point["rate.pages"]) && point.at >= end - $("range").value));
  const runs = runsOf(known);
  if (!runs.length) {
    $("plot").replaceChildren(element("p", "A plot needs two points; they come while a crawl runs.", "empty"));
    return;
  }
  for (const run of runs) run.forEach((point, i) => (point.before = run[Math.max(0, i - 10)] === point ? null : run[Math.max(0, i - 10)]));
  const width = Math.max($("plot").clientWidth, 280);
  const [left, right] = [52, 4];
  const first = known[0].at;
  const last = known[known.length - 1].at;
  const x = (at) => left + ((at - first) / (last - first || 1)) * (width - left - right);
  const recrawls = known.some((point) => point["round.found"]);
  const total = ({ areas, lines }, point) => (areas ? areas.reduce((all, [, value]) => all + value(point), 0) : Math.max(...lines.map(([, value]) => value(point) || 0)));
  let top = 18;
  const bands = BANDS.filter((band) => (recrawls || !band.recrawl) && (band.lines || known.some((point) => total(band, point)))).map((band) => {
    const placed = { ...band, top, most: roundUp(Math.max(...known.map((point) => total(band, point)), 0.1)) };
    top += band.height + 28;
    return placed;
  });
  const now = known[known.length - 1];
  const label = `From ${clock(first)} to ${clock(last)}. Now: ${number(now["rate.pages"])} fetched a second of ${number(now["hosts.ceiling"])} that politeness allowed, ${count(withPages(now))} hosts, ${count(now["pages.queued"])} pages queued`;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${top}`, height: top, role: "img", "aria-label": label });
  const at = ({ top: from, height, most }, n) => from + height - (Math.min(n, most) / most) * height;
  for (const band of bands) {
    picture.append(svg("text", { x: left, y: band.top - 6 }, band.name));
    for (const part of band.height > 100 ? [0, 0.5, 1] : [0, 1]) {
      const y = at(band, part * band.most);
      picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y, y2: y }), svg("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, brief(part * band.most)));
    }
    for (const run of runs) {
      const path = (value, list = run) => list.map((point) => `${x(point.at).toFixed(1)},${at(band, value(point)).toFixed(1)}`);
      let low = () => 0;
      for (const [, value, colour] of band.areas || []) {
        const below = low;
        const high = (point) => below(point) + value(point);
        picture.append(svg("polygon", { class: `area ${colour}`, points: [...path(high), ...path(below).reverse()].join(" ") }));
        low = high;
      }
      for (const [, value, colour] of band.lines || []) {
        if (colour === "fetched") picture.append(svg("polygon", { class: "area speed", points: [...path(value), ...path(() => 0).reverse()].join(" ") }));
        const list = run.filter((point) => (colour === "allowed" ? Number.isFinite(point["hosts.ceiling"]) : Number.isFinite(value(point))));
        if (list.length > 1) picture.append(svg("polyline", { class: `line ${colour}`, points: path(value, list).join(" ") }));
      }
    }
  }
  const marks = width < 600 ? 2 : 4;
  for (let i = 0; i <= marks; i += 1) {
    const instant = first + ((last - first) * i) / marks;
    const anchor = i === 0 ? "start" : i === marks ? "end" : "middle";
    picture.append(svg("text", { x: x(instant), y: top - 5, "text-anchor": anchor }, (last - first > 86400 ? day : clock)(instant)));
  }
  for (const { at: instant } of latest?.control.asked || []) if (instant >= first && instant <= last) picture.append(svg("line", { class: "asked", x1: x(instant), x2: x(instant), y1: 18, y2: top - 24 }));
  picture.append(svg("line", { id: "hover", y1: 18, y2: top - 24, visibility: "hidden" }));
  shown = { bands, points: known, x, width };
  drawnAt = last;
  $("plot").replaceChildren(picture);
  if (hovered !== null) hover(hovered);
  if ($("points").closest("details").open) listPoints(known);
}

// The values at a moment, in words: under the pointer, or by the arrow keys.
let hovered = null; // index from the end, so that it stays at its moment's side

function hover(i) {
  hovered = i;
  const { bands, points: known, x } = shown;
  const point = i === null ? null : known[Math.max(0, known.length - 1 - i)];
  $("hover")?.setAttribute("visibility", point ? "visible" : "hidden");
  if (!point) setText("values", "Speeds are over the ten seconds before each point.");
  if (!point) return;
  for (const end of ["x1", "x2"]) $("hover").setAttribute(end, x(point.at));
  const values = bands.map(({ name, areas, lines }) => `${name.split(/[,:]/)[0]} ${(areas || lines).map(([each, value]) => `${number(value(point))} ${each}`).join(", ")}`);
  setText("values", `${clock(point.at)}: ${values.join("; ")}`);
}

$("plot").addEventListener("pointermove", (event) => {
  const at = ((event.clientX - $("plot").getBoundingClientRect().left) * shown.width) / $("plot").clientWidth;
  const far = shown.points.map((point) => Math.abs(shown.x(point.at) - at));
  if (far.length) hover(far.length - 1 - far.indexOf(Math.min(...far)));
});
$("plot").addEventListener("pointerleave", () => hover(null));
$("plot").addEventListener("blur", () => hover(null));
$("plot").addEventListener("keydown", ({ key }) => {
  const step = { ArrowLeft: 1, ArrowRight: -1 }[key];
  if (step) hover(Math.min(Math.max((hovered ?? -1) + step, 0), shown.points.length - 1));
  if (key === "Escape") hover(null);
});
$("range").addEventListener("change", () => {
  hover(null);
  draw();
});

function listPoints(known) {
  const every = Math.max(1, Math.floor(known.length / 60));
  const rows = known.filter((_, i) => (known.length - 1 - i) % every === 0).reverse();
  table(
    "points",
    [["time", "name"], ["fetched/s", "n"], ["politeness allowed", "n"], ["in flight", "n"], ["ready", "n"], ["waiting", "n"], ["queued", "n"]],
    rows.map((point) => [clock(point.at), number(point["rate.pages"]), number(point["hosts.ceiling"]), ...["hosts.in_flight", "hosts.ready", "hosts.waiting", "pages.queued"].map((name) => count(point[name]))]),
  );
}

// A small picture of the past of a figure, for the eye: numbers are in the table of the plot.
function spark(value, className, past = points) {
  const picture = svg("svg", { viewBox: "0 0 200 40", preserveAspectRatio: "none", "aria-hidden": "true" });
  const known = thinned(past.filter((point) => Number.isFinite(value(point))));
  if (known.length < 2) return picture;
  const first = known[0].at;
  const span = known[known.length - 1].at - first || 1;
  const most = Math.max(...known.map(value)) || 1;
  for (const run of runsOf(known)) {
    const path = run.map((point) => `${((200 * (point.at - first)) / span).toFixed(1)} ${(38 - (36 * value(point)) / most).toFixed(1)}`);
    const x = (point) => ((200 * (point.at - first)) / span).toFixed(1);
    picture.append(svg("path", { class: className, d: `M${x(run[0])} 40L${path.join("L")}L${x(run[run.length - 1])} 40Z` }), svg("polyline", { class: className, points: path.join(" ") }));
  }
  return picture;
}

let limit;

function showHead(now) {
  const { limit: kind, headline, sentence } = now.verdict;
  const text = headline || sentence || "No figures yet.";
  if ($("headline").textContent !== text) {
    const subject = /^.+?(?= limits? | has paused |[:.])/.exec(text)?.[0] ?? "";
    $("headline").replaceChildren(element("em", subject, COLOURS[kind]), text.slice(subject.length));
  }
  setText("verdict", sentence === text ? "" : sentence);
  if (kind !== limit) setText("spoken", text); // a screen reader is not interrupted by each new figure
  limit = kind;
  const { forecast } = now;
  const end = forecast.seconds === null ? "No end in sight" : `About ${seconds(Math.round(forecast.seconds))} to go`;
    setText("forecast", now.is_live ? `${end}: ${forecast.because}.` : "");
}

const grows = (n) => `${n < 0 ? "shrinks" : "grows"} by ${few.format(Math.abs(n))} pages for each visit`;

// What an operator asks of the crawl, here or by scrapy aopic control: the words are the same.
const UNDO = { resume: "Go on", rate: "Any speed", connections: "All transfers", unblock: "Unblock", slow: "Usual gaps for" };
const UNDONE = (what) => [UNDO[what.split(" ")[0]], what.split(" ").slice(1).filter((word) => word !== "0").join(" ")].join(" ").trim();

function button(text, act, className) {
  const made = element("button", text, className);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

async function order(what) {
  setText("ordered", `${what} …`);
  const { problem } = await ask(`/api/v1/control?do=${encodeURIComponent(what)}`, { method: "POST", headers: { "Aopic-Order": "1" } });
  setText("ordered", problem || `Asked: ${what}. It is in force within two seconds.`);
  setTimeout(() => setText("ordered", ""), 8000);
}

const canOrder = () => latest?.is_live && latest.store.name && !answers;

$("pause").addEventListener("click", () => order(latest.control.paused_since ? "resume" : "pause"));
$("slower").addEventListener("click", () => order(`rate ${Math.max(0.1, (latest.control.rate || latest.rate?.pages || 1) / 2).toPrecision(2)}`));
$("stop").addEventListener("click", () => {
  if (confirm("Stop this run? What is queued stays; the command that started it goes on.")) order("stop");
});

function showControl({ control }) {
  const { sentences, undoing = [], asked = [] } = control;
  $("steer").hidden = !canOrder();
  setText("pause", control.paused_since ? "Go on" : "Pause");
  const place = $("orders");
  const key = JSON.stringify([sentences, asked, canOrder()]);
  if (place.dataset.shown === key) return; // a screen reader hears it once
  place.dataset.shown = key;
  const list = (texts) => {
    const made = element("ul");
    made.append(...texts.map((each) => element("li", each)));
    return made;
  };
  const had = place.contains(document.activeElement);
  place.replaceChildren();
  if (sentences.length) place.append(element("p", "Set by an operator:"), list(sentences));
  if (canOrder()) place.append(...undoing.map((what) => button(UNDONE(what), () => order(what))));
  if (asked.length) {
    const past = element("details", undefined, "inner");
    past.append(element("summary", "What was asked"), list(asked.map(({ at, what }) => `${clock(at)} ${what}`).reverse()));
    place.append(past);
  }
  if (had) $("pause").focus();
}

// A recrawl visits pages more than once.
const done = ({ visited, failed }) => visited + failed;
const unit = ({ pages, visits }) => (visits.all > done(pages) ? "visits" : "pages");

const hostsWithPages = (hosts) => STATES.reduce((sum, [key]) => sum + hosts[key], 0);
const hostsOf = (n) => `${count(n)} ${n === 1 ? "host" : "hosts"}`;
const waitsOf = (hosts) => Object.entries(hosts.waits).sort((a, b) => b[1] - a[1]);

function showFour(now, due) {
  const { pages, hosts, rate, is_live: isLive } = now;
  const { all, failed, gone } = now.visits;
  const word = unit(now);
  const known = rate && rate.failed !== null;
  const lately = !rate ? "" : `over ${Math.round(rate.seconds)} s${isLive ? "" : " before the last commit"}`;
  const reasons = waitsOf(hosts).map(([why, n]) => `${count(n)} ${why}`).join(", ");
  const rows = [
    [`${word} a second`, number(rate && rate.pages), rate ? `${lately}${hosts.ceiling === null ? "" : `; politeness allowed ${number(hosts.ceiling)}`}` : "no crawl runs", (point) => point["rate.pages"], "fetched"],
    ["pages queued", count(pages.queued), rate && rate.growth ? grows(rate.growth) : "", (point) => point["pages.queued"], "queued"],
    ["hosts have pages", count(hostsWithPages(hosts)), `${count(hosts.in_flight)} in flight, ${count(hosts.ready)} ready, ${count(hosts.waiting)} waiting${reasons ? ` (${reasons})` : ""}`, withPages, "queued"],
    ["failed", known ? percent(rate.failed, rate.pages) : percent(failed, all), `${known ? `${lately}; ${percent(failed, all)} ` : ""}of all ${word}. Beside these, ${percent(gone, all)} are forbidden or gone`, (point) => (point["rate.pages"] ? (100 * point["rate.failed"]) / point["rate.pages"] : NaN), "failed"],
  ];
  const place = $("four");
  place.classList.toggle("past", !isLive);
  if (!place.children.length) {
    place.append(
      ...rows.map(() => {
        const box = element("div");
        box.append(element("dt"), element("dd", "", "value"), element("dd", "", "more"), element("dd", "", "spark"));
        return box;
      }),
    );
  }
  rows.forEach(([name, value, more, past, colour], i) => {
    const [head, number_, text, picture] = place.children[i].children;
    head.textContent = name;
    number_.textContent = value;
    text.textContent = more;
    if (due) picture.replaceChildren(spark(past, colour));
  });
}

function showTotals(now) {
  const { hosts, rate, connections } = now;
  const rows = ["failed", "gone"].map((name) => [name, count(now.visits[name])]);
  if (unit(now) === "visits") rows.unshift(["visits", count(now.visits.all)]);
  rows.unshift(["pages", count(done(now.pages))]);
  rows.push(
    [hosts.known === 1 ? "host" : "hosts", count(hosts.known)],
  );
  if (connections) rows.push(["downloads", `${count(connections.in_use)} of ${count(connections.limit)}`], ["in callbacks", count(connections.callbacks)]);
  if (rate && rate.bytes !== null) rows.push(["traffic", `${bytes(rate.bytes)}/s`]);
  if (now.topic && now.topic.lately !== null) rows.push(["relevant lately", percent(now.topic.lately, 1)]);
  boxes("totals", rows);
}

// Figures: a name and a text.
function boxes(id, rows) {
  const place = $(id);
  if (place.children.length !== rows.length) {
    place.replaceChildren(
      ...rows.map(([name]) => {
        const box = element("div");
        box.append(element("dt", name), element("dd"));
        return box;
      }),
    );
  }
  rows.forEach(([, text], i) => {
    place.children[i].lastChild.textContent = text;
  });
}

// Front queues: 63 holds the most cash.

function showFronts(now) {
  const { front_queues: fronts, ready_queues: ready } = now.hosts;
  const highest = (queues) => Math.max(-1, ...Object.keys(queues));
  const [best, bestReady] = [highest(fronts), highest(ready)];
  const most = Math.log10(1 + Math.max(1, ...Object.values(fronts)));
  const place = $("fronts");
  const used = Object.keys(fronts).map(Number);
  const lowest = Math.min(best, ...used, ...Object.keys(ready).map(Number));
  if (place.children.length !== best - lowest + 1) place.replaceChildren(...Array.from({ length: best < 0 ? 0 : best - lowest + 1 }, () => element("i")));
  [...place.children].forEach((cell, i) => {
    const level = best - i;
    const n = fronts[level] || 0;
    cell.className = `${n ? "some" : ""} ${ready[level] ? "ready" : ""} ${level === best ? "best" : ""}`;
    cell.style.setProperty("--shade", (0.3 + (0.7 * Math.log10(1 + n)) / most).toFixed(2));
    cell.title = `${i ? `worth ${number(2 ** i)} times less than the best` : "the best pages"}: ${hostsOf(n)}, ${count(ready[level] || 0)} ready`;
  });
  place.setAttribute("aria-label", used.length ? `Hosts, from those with the best page to those with the least: ${used.sort((one, other) => other - one).map((level) => count(fronts[level])).join(", ")}` : "No host in memory has pages");
  setText("ends", used.length > 1 ? `to ${number(2 ** (best - lowest))} times less` : "");
  const worse = (queues) => (queues < 0.5 ? "worth about as much as" : `worth ${number(2 ** queues)} times less than`);
  const parts = [];
  if (best < 0) parts.push("No host in memory has pages that wait.");
  else if (!now.is_live) parts.push("Hosts that were in memory; the framed queue is that of the best page.");
  else if (bestReady < 0) parts.push("The best page (framed) waits, as no host is ready.");
  else parts.push(best === bestReady ? "The best page (framed) is next: its host is ready." : `The best page (framed) must wait for its host; the next one is ${worse(best - bestReady)} it.`);
  if (now.regret !== null) {
    parts.push(`The last thousand fetched pages were ${worse(now.regret)} the best that waited, on average.`);
  }
  setText("regret", parts.join(" "));
}

// Hosts

function showHosts(now) {
  const { hosts } = now;
  const all = hostsWithPages(hosts);
  const some = STATES.filter(([key]) => hosts[key]);
  $("states").replaceChildren(
    ...some.map(([key, , colour]) => {
      const part = element("i", undefined, colour);
      part.style.flex = `${hosts[key]} 1 0`;
      return part;
    }),
  );
  $("states").setAttribute("aria-label", `Hosts that have pages: ${some.map(([key, name]) => `${count(hosts[key])} ${name}`).join(", ") || "none"}`);
  $("states-legend").replaceChildren(
    ...some.map(([key, name, colour, meaning]) => {
      const part = element("span", `${count(hosts[key])} ${name}`, colour === "fetched" ? "flight" : colour);
      part.title = meaning;
      return part;
    }),
  );
  const reasons = waitsOf(hosts);
  const n = reasons.reduce((sum, [, each]) => sum + each, 0);
  const due = hosts.due_in.map((each, i) => [each, DUE[i]]).filter(([each]) => each);
  setText(
    "waits",
    n
      ? `Of ${hostsOf(all)} with pages, ${count(n)} in memory must be left alone: ${reasons.map(([why, each]) => `${count(each)} ${WAITS[why]}`).join(", ")}. The same ${count(n)} by time: ${due.map(([each, until]) => (until === "longer" ? `${count(each)} for longer` : `${count(each)} for up to ${until}`)).join(", ")}.`
      : `Of ${hostsOf(all)} with pages, none in memory must be left alone.`,
  );
  if (!isAsked()) listHosts(now[$("by").value] || [], ofMemory());
}

// Hosts that the figures do not have are asked for: all hosts, by pages or by name.
const isAsked = () => ["queued", "fetched"].includes($("by").value) || Boolean($("part").value.trim());
const ofMemory = () => (latest.is_live ? "Of hosts in memory, as of now." : "Of hosts that were in memory at the last commit.");
let sorted = null; // column and direction, as long as nobody has chosen another list
let listed = [];

function hostState({ state, wait, why }) {
  const colour = (STATES.find(([, name]) => name === state) || [])[2] || "possible";
  return element("span", wait ? `${seconds(wait)}${why ? `: ${why}` : ""}` : state, `state ${colour}`);
}

const HOST_COLUMNS = [
  ["host", "name", (host) => host.name, (host) => opener(host.name)],
  ["now", "", (host) => host.wait, hostState],
  ["fetched", "n", (host) => host.visited, (host) => count(host.visited)],
  ["queued", "n", (host) => host.queued, (host) => count(host.queued)],
  ["transfer", "n", (host) => host.transfer, (host) => (host.transfer ? seconds(host.transfer) : "–")],
  ["errors", "n", (host) => host.errors, (host) => (host.errors ? count(host.errors) : "–")],
];

function listHosts(hosts, note) {
  listed = hosts;
  setText("rows-note", note);
  if ($("rows").contains(document.activeElement)) return; // who is on a name stays there
  listRows();
}

function listRows() {
  const rows = [...listed];
  if (sorted) {
    const value = HOST_COLUMNS[sorted.column][2];
    rows.sort((a, b) => sorted.sign * ((value(a) > value(b)) - (value(a) < value(b))));
  }
  const heads = HOST_COLUMNS.map(([name, kind], column) => {
    const sort = () => {
      sorted = { column, sign: sorted && sorted.column === column ? -sorted.sign : column ? -1 : 1 };
      listRows();
      $("rows").querySelectorAll("th button")[column]?.focus();
    };
    return [button(name, sort, "plain"), kind];
  });
  table("rows", heads, rows.map((host) => HOST_COLUMNS.map((column) => column[3](host))), { empty: "None." });
  if (sorted) $("rows").querySelectorAll("thead th")[sorted.column]?.setAttribute("aria-sort", sorted.sign > 0 ? "ascending" : "descending");
}

async function findHosts() {
  sorted = null;
  if (!isAsked()) {
    if (latest) listHosts(latest[$("by").value] || [], ofMemory());
    return;
  }
  setText("rows-note", "Looking at all hosts …");
  const { hosts, problem } = await ask(`/api/v1/hosts?by=${$("by").value}&find=${encodeURIComponent($("part").value)}`);
  listHosts(hosts || [], problem || `The first ${count(hosts.length)} of all hosts of the job, as of the last commit at ${clock(asked())}.`);
}

$("look-up").addEventListener("submit", (event) => {
  event.preventDefault();
  findHosts();
});
$("by").addEventListener("change", findHosts);

// A button that says why something is or is not crawled; in a report only its name.
function opener(name) {
  if (answers) return name;
  return button(name, () => answer(name), "plain");
}

let shownFailures = "";

function showFailures(now) {
  const { failures, is_live: isLive } = now;
  $("failures").hidden = !isLive; // a stored job has none: its outcomes count all that failed by cause
  const key = JSON.stringify(failures);
  if (key === shownFailures || $("failed").contains(document.activeElement)) return;
  shownFailures = key;
  $("failed").replaceChildren(
    ...failures.map(({ at, url, cause, is_over: isOver }) => {
      const item = element("li");
      const place = element("code");
      place.append(opener(url));
      item.append(element("b", cause, GONE.test(cause) ? "gone" : ""), element("span", ` at ${clock(at)}${isOver ? "" : ", waits for another try"}`), place);
      return item;
    }),
  );
  if (!failures.length) $("failed").replaceChildren(element("li", "None.", "empty"));
}

function showFetched({ fetched = [], is_live: isLive }) {
  $("fetched").hidden = !isLive || answers;
  if ($("fetched-rows").contains(document.activeElement)) return;
  table("fetched-rows", [["page", "name"], ["status", "n"], ["size", "n"], ["at", "n"]], fetched.map(({ at, url, status, size }) => [opener(url), String(status), bytes(size), clock(at)]), { empty: "None yet." });
}

function showTopic({ topic }) {
  $("topic").hidden = !topic;
  if (!topic) return;
  setText("topic-brief", `${percent(topic.lately ?? topic.harvest, 1)} relevant${topic.lately === null ? "" : " lately"}`);
  const said = topic.labels
    ? `by ${topic.labels} labels`
    : "by their grades, unchecked: scrapy aopic topic label JOBDIR checks it";
  setText(
    "harvest",
    topic.lately === null
      ? `Of all pages that were read, ${percent(topic.harvest, 1)} are relevant, ${said}.`
      : `Of the last 500 pages that were read, ${percent(topic.lately, 1)} are relevant, and of all ${percent(topic.harvest, 1)}, ${said}.`,
  );
  bars("relevance", "Pages that were read, by relevance", [
    ["relevant", topic.relevant, ""],
    ["not relevant, or duplicates", topic.pages - topic.relevant, "", "possible"],
  ]);
}

const BROUGHT = /^(page|nofollow|noindex|redirect|duplicate|content|language)/;
const GONE = /^(robots|not found|http 4(04|10))/;

function showOutcomes(now) {
  const rows = (object) => Object.entries(object).sort((a, b) => b[1] - a[1]);
  const outcomes = rows(now.outcomes);
  setText("outcomes-brief", outcomes.slice(0, 4).map(([name, n]) => `${count(n)} ${name}`).join(", "));
  bars("classes", "Visits by outcome", outcomes.map(([name, n]) => [name, n, "", BROUGHT.test(name) ? "" : GONE.test(name) ? "possible" : "failed"]), { empty: "No visit has ended." });
  bars("refused", "URLs that were refused, and pages that were put back", [
    ...rows(now.refused).map(([name, n]) => [name, n, "refused URLs", "possible"]),
    ...rows(now.deferred).map(([name, n]) => [name, n, "put back", "possible"]),
    ...rows(now.dropped || {}).map(([name, n]) => [DROPPED[name] || name, n, "dropped links", "possible"]),
  ]);
}

function showOrder(now) {
  const { ledger } = now;
  const { turns } = ledger;
  const missing = ledger.total - ledger.pages - ledger.virtual;
  setText("order-brief", missing ? "cash is missing" : turns > 0 ? `all cash was spent ${number(turns)} times` : "no cash has been spent");
  setText(
    "cash",
    missing
      ? `${whole.format(missing)} units of cash are missing, which is a fault of the package: scrapy aopic check JOBDIR says more, and please report it.`
      : turns > 0
        ? `Estimates settle as cash is spent. All of it was spent ${number(turns)} times: if it was all spent once more, no importance would move by more than ${percent(1, turns)} of all importance. Should the crawl end at a value of yours, set AOPIC_MIN_CONVERGENCE.`
        : "Estimates settle as cash is spent; none has been spent yet.",
  );
  const part = (units) => (ledger.pages ? `${number(units / ledger.pages)} times what pages hold` : "–");
  facts("ledger", "The ledger", [
    ["order of the pages", now.order],
    ["average time in the queue", seconds(now.queue_seconds)],
    ["cash of pages that wait or were fetched", percent(ledger.pages, ledger.total)],
    ["cash of the virtual page, for pages that are still to be found", percent(ledger.virtual, ledger.total)],
    ["spent by pages, on links and the virtual page", part(ledger.distributed)],
    ["spent by the virtual page, on pages", part(ledger.virtual_distributed)],
  ]);
}

function showStore(now) {
  const { store, machine, transfers } = now;
  setText("store-brief", [machine && `${bytes(machine.memory)} of memory`, `${bytes(store.size_bytes)} stored`].filter(Boolean).join(", "));
  const rows = [
    ["job", store.name || "in memory"],
    ["size", bytes(store.size_bytes)],
  ];
  if (now.is_live) {
    const looked = (store.cache_hits || 0) + (store.cache_misses || 0);
    rows.push(
      ["last commit", `${seconds(store.commit_age)} ago, took ${seconds(store.last_commit)}`],
      ["slowest commit", seconds(store.slowest_commit)],
      ["page records found in memory", percent(store.cache_hits || 0, looked)],
    );
  }
  rows.push(
    ["transfers", `${count(transfers.n)}, ${bytes(transfers.bytes)}`],
    ["average transfer", transfers.n ? seconds(transfers.seconds / transfers.n) : "–"],
  );
  if (machine) {
    rows.push(
      ["memory of the process", `${bytes(machine.memory)}, ${bytes(machine.memory_limit)} at most`],
      ["processor, lately", `${few.format(100 * machine.cpu)} % of a core${machine.starved >= 0.1 ? `; waits for one ${whole.format(100 * machine.starved)} % of the time, as others use it` : ""}`],
      ["event loop late by", `${seconds(machine.loop_lag)} on average lately${machine.loop_lag_max === null ? "" : `, ${seconds(machine.loop_lag_max)} at most in this run`}`],
    );
  }
  facts("facts", "Store and machine", rows);
}

// A job in shards: what all workers do together, which no worker knows by itself.

const JOB_EVERY = 5000; // milliseconds
const OF_STORES = ["queue", "hosts", "outcomes", "order", "store"]; // sections without figures if no store was read
let jobDue = 0;

async function showShards(now) {
  const isOne = now.shards.n < 2;
  $("job").hidden = isOne;
  $("job-figures").hidden = !isOne && !now.is_live; // they are above
  for (const id of OF_STORES) $(id).hidden = now.counted_since === null;
  if (isOne || Date.now() < jobDue) return;
  jobDue = now.is_live ? Date.now() + JOB_EVERY : 0;
  const job = now.is_live ? await ask("/api/v1/job") : now;
  if (now.is_live && job.problem) {
    setText("job-note", job.problem);
    return;
  }
  const { shards } = job;
  setText(
    "job-note",
    shards.is_quiet
      ? "No shard has anything to do, and no letter is on its way: the job is done."
      : `${count(shards.held)} of ${count(shards.n)} shards are crawled by ${count(shards.alive)} ${shards.alive === 1 ? "worker" : "workers"}. ${now.is_live ? `All other sections are of the ${count(now.shards.held)} shards of this worker.` : "What limits a worker is in its own dashboard."}`,
  );
  boxes("job-figures", [
    ["pages a second", number(job.rate && job.rate.pages)],
    ["visited", count(job.pages.visited)],
    ["failed", count(job.pages.failed)],
    ["queued", count(job.pages.queued)],
    ["hosts", count(job.hosts.known)],
    ["letters on the way", count(shards.on_the_way)],
  ]);
  table(
    "workers",
    [["worker", "name"], ["now", ""], ["shards", "n"], ["of all visits", "n"], ["queued", "n"], ["pages/s", "n"], ["for", "n"]],
    shards.workers.map((row) => {
      const own = shards.each.filter((shard) => shard.worker === row.worker);
      const [queued, visited] = ["queued", "visited"].map((name) => own.reduce((all, shard) => all + shard[name], 0));
      const idle = !row.shards ? "idle: no shard is free" : own.every((shard) => shard.is_idle) ? (queued ? `idle: its ${count(queued)} pages must wait` : "idle: nothing queued in its shards") : "at work";
      return [row.worker, idle, count(row.shards), percent(visited, job.pages.visited), count(queued), number(row.rate), seconds(row.seconds)];
    }),
    { empty: "No worker crawls this job now." },
  );
  table(
    "shards",
    [["shard", ""], ["worker", "name"], ["queued", "n"], ["visited", "n"], ["failed", "n"], ["hosts", "n"], ["letters", "n"]],
    shards.each.map((row) => [count(row.shard), row.worker ? `${row.worker}${row.is_idle ? " (idle)" : ""}` : "none", count(row.queued), count(row.visited), count(row.failed), count(row.hosts), count(row.letters)]),
  );
}

// Two crawls side by side, in a report.
function showCompared(now) {
  const other = answers?.["/api/v1/compared"];
  if (!other) return;
  $("compared").hidden = false;
  const both = [[now, points], [other.snapshot, other.history]];
  const row = ([name, value]) => [name, ...both.map(([each, past]) => value(each, past))];
  const past = (value, colour) => (each, its) => {
    const place = element("span", undefined, "spark");
    place.append(spark(value, colour, its));
    return place;
  };
  table("compared-rows", [["figure", "name"], ...both.map(([each]) => [each.store.name, "n"])], [
    ["now", (each) => each.verdict.headline],
    ["pages", (each) => count(done(each.pages))],
    ["failed", (each) => percent(each.visits.failed, each.visits.all)],
    ["forbidden or gone", (each) => percent(each.visits.gone, each.visits.all)],
    ["pages queued", (each) => count(each.pages.queued)],
    ["hosts", (each) => count(each.hosts.known)],
    ["visits a second, since it began", (each) => number(each.mean_rate)],
    ["bytes a transfer", (each) => bytes(each.transfers.n ? each.transfers.bytes / each.transfers.n : null)],
    ["seconds a transfer", (each) => (each.transfers.n ? seconds(each.transfers.seconds / each.transfers.n) : "–")],
    ["times that all cash was spent", (each) => number(each.ledger.turns)],
    ["order", (each) => each.order],
    ["fetched a second, over time", past((point) => point["rate.pages"], "fetched")],
    ["pages queued, over time", past((point) => point["pages.queued"], "queued")],
  ].map(row));
}

let latest = null;

function show(now) {
  const isFirst = !latest;
  latest = now;
  if (isFirst) showTraps();
  const name = now.spider || now.store.name || "crawl";
  setText("title", name);
  document.title = `${name} – crawl`;
  const state = $("state");
  state.classList.toggle("bad", Boolean(now.problem));
  state.classList.toggle("live", now.is_live && !now.problem);
  const running = now.started_at === null ? "" : ` for ${seconds(Math.max(0, Math.round(now.at - now.started_at)))}`;
  setText("state", now.problem || (now.is_live ? `Running${running}` : `As of the last commit, ${new Date(now.at * 1000).toLocaleDateString("en-CA")} ${clock(now.at)}`));
  addPoint(now);
  showHead(now);
  showCompared(now);
  showShards(now);
  showControl(now);
  const due = isDue();
  showFour(now, due);
  showTotals(now);
  if (due) draw();
  showFronts(now);
  showHosts(now);
  showFailures(now);
  showFetched(now);
  showTopic(now);
  showOutcomes(now);
  showOrder(now);
  showStore(now);
}

// Questions

const asked = () => (answers ? latest.at : Date.now() / 1000); // when what is answered now was so

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
  setText("reply-of", of);
  setText("answer", "Looking …");
  if (!$("reply").open) $("reply").showModal();
  const host = URL.canParse(of) ? new URL(of).host : of;
  const { problem, kind, sentences = [] } = await ask(`/api/v1/why?of=${encodeURIComponent(of)}`);
  $("answer").replaceChildren(...(problem ? [problem] : [`${kind[0].toUpperCase()}${kind.slice(1)}.`, ...sentences]).map((text) => element("p", text)));
  $("of-host").hidden = !host || !canOrder();
  setText("block", `Block ${host}`);
  $("block").value = host;
}

$("block").addEventListener("click", () => {
  order(`block ${$("block").value}`);
  $("reply").close();
});
$("gap").addEventListener("change", () => order(`slow ${$("gap").value} ${$("block").value}`));

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  answer($("of").value);
});

// What takes a look at the whole store is looked up when its section opens.
function whenOpened(id, load) {
  $(id).addEventListener("toggle", () => {
    if ($(id).open) load();
  });
}

whenOpened("top", async () => {
  setText("top-note", "Looking at all pages …");
  const { pages, problem } = await ask("/api/v1/top");
  setText("top-note", problem || `as of ${clock(asked())}`);
  if (pages) {
    table(
      "pages",
      [["page", "name"], ["importance", "n"], ["visits", "n"], ["state", ""]],
      pages.map((page) => [opener(page.url), number(page.importance), count(page.visits), page.state]),
      { empty: "No page is known." },
    );
  }
});

whenOpened("domains", async () => {
  setText("domains-note", "Looking at all hosts …");
  const { domains, problem } = await ask("/api/v1/domains");
  setText("domains-note", problem || `as of ${clock(asked())}`);
  if (!domains) return;
  // How important a fetched page is, of the average: 1 is that of the whole crawl.
  const fetched = domains.reduce((sum, row) => sum + row.visited, 0);
  const worth = (row) => (row.importance !== null && row.visited ? (row.importance * fetched) / row.visited : null);
  table(
    "domain-rows",
    [["domain", "name"], ["fetched", "n"], ["of all fetches", "n"], ["queued", "n"], ["hosts", "n"], ["importance a fetch, of average", "n"]],
    domains.map((row) => [row.domain || "all others", count(row.visited), percent(row.visited, fetched), count(row.queued), count(row.hosts), number(worth(row))]),
    { empty: "No host is known." },
  );
});

// A trap is worth knowing of before anybody asks; a look at the hosts is made again only while the page is seen.
const TRAPS_EVERY = 120000; // milliseconds

async function showTraps() {
  if (document.hidden && !answers) return;
  const { traps = [], problem } = await ask("/api/v1/traps");
  $("traps-note").className = traps.length ? "may-be" : "";
  setText("traps-note", problem || (traps.length ? traps.map((trap) => `${trap.host} took ${percent(trap.visited_part, 1)} of all fetches`).join(", ") : "none"));
  $("traps").replaceChildren(
    ...traps.map((trap) => {
      const item = element("li");
      const pattern = element("code");
      pattern.append(element("b", trap.pattern));
      item.append(
        pattern,
        `took ${percent(trap.visited_part, 1)} of all fetches (${count(trap.visited)}) and brought ${percent(trap.brought_part, 1)} of all importance; ${count(trap.queued)} wait. `,
        element("code", trap.command),
      );
      if (canOrder()) item.append(button(trap.order, () => order(trap.order)), " ");
      if (trap.deny_url) item.append("Links to it are left out of later runs by this in AOPIC_SCOPE:", element("code", `"deny_urls": [${JSON.stringify(trap.deny_url)}]`));
      return item;
    }),
  );
}

$("points").closest("details").addEventListener("toggle", draw);
for (const id of ["topic", "outcomes", "order", "store"]) whenOpened(id, () => latest && show(latest));
window.addEventListener("resize", draw);

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
  const looks = setInterval(showTraps, TRAPS_EVERY);
  source.addEventListener("bye", (event) => {
    source.close();
    clearInterval(looks);
    const { reason, why } = JSON.parse(event.data);
    $("state").classList.remove("live");
    setText("state", `The crawl is over: ${reason}. These are its last figures.`);
    if (!latest || !latest.is_live) return;
    const job = latest.store.name;
    const { queued } = latest.pages;
    setText("headline", queued ? `Ended: ${why}. ${count(queued)} ${queued === 1 ? "page waits" : "pages wait"}.` : "Done: nothing is queued.");
    setText("spoken", $("headline").textContent);
    setText("forecast", "");
    setText("verdict", job ? `${queued ? "The command that started it, with the same job folder, goes on where it was." : "To visit its pages again: the same command with --again."} To look at it meanwhile: scrapy aopic dashboard ${job}` : "The job was in memory, and is gone.");
  });
  source.addEventListener("error", () => {
    clearTimeout(waits);
    waits = setTimeout(() => {
      setText("state", source.readyState === EventSource.CLOSED ? "Not connected: the token is not that of this run, or too many pages are watching. Reload to try again." : "No connection to the crawl; trying again.");
      $("state").classList.remove("live");
      $("state").classList.add("bad");
    }, 500);
  });
}

begin();
