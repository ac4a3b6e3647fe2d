// Shows what /events sends. What a crawl has found (names, URLs) only ever becomes text: no markup is made of strings.

const MOST_POINTS = 2200; // the server keeps 2,160
const PLOT = { width: 1000, height: 224, left: 56, right: 12, top: 10, bottom: 24 }; // units of the picture
const WINDOW = 9.5; // seconds, at least, that a speed in the plot is of
const DUE = ["up to 1 s", "up to 10 s", "up to 1 min", "up to 10 min", "up to 1 h", "up to 1 day", "longer"];
const TIMES = ["10 ms", "30 ms", "0.1 s", "0.3 s", "1 s", "3 s", "10 s", "30 s", "longer"];
const STATES = [
  ["ready", "ready", "may be requested now"],
  ["waiting", "waiting", "must be left alone for a time"],
  ["in_flight", "in flight", "requested right now"],
  ["gated", "gated", "share a domain or an address with others"],
  ["locating", "locating", "address not known yet"],
  ["late", "late", "domain over its budget"],
  ["dry", "dry", "all queued pages in flight"],
  ["shelved", "shelved", "on the disk: others are better"],
  ["parked", "parked", "on the disk until their time"],
  ["dead", "dead", "no longer waited for"],
];

const DROPPED = {
  flood: "beyond AOPIC_LINK_FLOOD",
  duplicate: "on duplicates",
  offsite: "not in allowed_domains",
  depth: "beyond DEPTH_LIMIT",
  length: "beyond URLLENGTH_LIMIT",
  middleware: "by a spider middleware",
};

const $ = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const few = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const count = (n) => (n === null || n === undefined ? "–" : whole.format(n));
const number = (n) => (n === null || n === undefined ? "–" : Math.abs(n) >= 1000 ? whole.format(n) : few.format(n));
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });
const percent = (part, of) => (of ? `${(part > 0.99 * of ? fine : few).format((100 * part) / of)} %` : "–");

function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s < 1) return s === 0 ? "0 s" : `${few.format(s * 1000)} ms`;
  if (s < 120) return `${few.format(s)} s`;
  if (s < 7200) return `${whole.format(s / 60)} min`;
  return s < 172800 ? `${few.format(s / 3600)} h` : `${few.format(s / 86400)} days`;
}

function bytes(n) {
  if (n === null || n === undefined) return "–";
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

// Tables

function table(id, heads, rows, { empty = "None.", caption = "" } = {}) {
  const place = $(id);
  if (!rows.length) {
    place.replaceChildren(element("p", empty, "empty"));
    return;
  }
  const made = element("table");
  made.append(element("caption", caption || $(id).getAttribute("aria-label") || "", "hidden"));
  const head = element("tr");
  for (const [text, kind] of heads) {
    const cell = element("th", text, kind);
    cell.scope = "col";
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
      const cell = element(i ? "td" : "th", text, heads[i][1]);
      if (!i) cell.scope = "row";
      line.append(cell);
    });
    made.tBodies[0].append(line);
  }
  place.replaceChildren(made);
}

// Rows of [name, number, remark]; the length of a bar repeats the number beside it.
function bars(id, caption, rows, { empty = "None." } = {}) {
  const place = $(id);
  if (!rows.length) {
    place.replaceChildren(element("p", empty, "empty"));
    return;
  }
  const most = Math.max(...rows.map((row) => row[1]), 1);
  const made = element("table", undefined, "bars");
  made.append(element("caption", caption, "hidden"));
  const body = element("tbody");
  for (const [name, n, remark] of rows) {
    const line = element("tr");
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

// The plot

let points = [];

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function roundUp(n) {
  const step = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].map((k) => k * step).find((k) => k >= n);
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
const day = (at) => new Date(at * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

// Seconds between two points from which nothing ran between them.
function pauseIn(list) {
  const gaps = list.slice(1).map((point, i) => point.at - list[i].at).sort((a, b) => a - b);
  return Math.max(30, 5 * (gaps[Math.floor(gaps.length / 2)] || 0));
}

// The points with the pages per second since about ten seconds before each, without those that have no such speed.
function withSpeed(list) {
  const counted = list.filter((point) => Number.isFinite(point["pages.visited"]) && Number.isFinite(point["pages.failed"]));
  const pause = pauseIn(counted);
  let j = 0;
  return counted
    .map((point, i) => {
      while (j + 1 < i && point.at - counted[j + 1].at >= WINDOW) j += 1;
      const before = counted[j];
      const time = point.at - before.at;
      if (i === 0 || time > pause) return null;
      if (time < WINDOW) return Number.isFinite(point["rate.pages"]) ? point : null;
      const done = point["pages.visited"] + point["pages.failed"] - before["pages.visited"] - before["pages.failed"];
      return { ...point, "rate.pages": Math.max(done, 0) / time };
    })
    .filter(Boolean);
}

function draw() {
  const known = withSpeed(points);
  if (known.length < 2) {
    $("plot").replaceChildren(element("p", "A plot needs two points; they come while a crawl runs.", "empty"));
    $("legend").replaceChildren();
    return;
  }
  const width = Math.max($("plot").clientWidth, 280);
  const box = { ...PLOT, width };
  const first = known[0].at;
  const last = known[known.length - 1].at;
  const fastest = Math.max(...known.map((point) => point["rate.pages"]), 0.1);
  const top = roundUp(Math.max(fastest, ...known.map((point) => Math.min(point["hosts.ceiling"] || 0, 3 * fastest))));
  const x = (at) => box.left + ((at - first) / (last - first || 1)) * (box.width - box.left - box.right);
  const y = (n) => box.height - box.bottom - (Math.min(n, top) / top) * (box.height - box.top - box.bottom);
  const label = `Pages per second from ${clock(first)} to ${clock(last)}; now ${number(known[known.length - 1]["rate.pages"])}`;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${box.height}`, role: "img", "aria-label": label });
  for (let i = 0; i <= 4; i += 1) {
    const value = (top * i) / 4;
    picture.append(
      svg("line", { class: "grid", x1: box.left, x2: width - box.right, y1: y(value), y2: y(value) }),
      svg("text", { x: box.left - 6, y: y(value) + 4, "text-anchor": "end" }, number(value)),
    );
  }
  const marks = width < 600 ? 2 : 4;
  for (let i = 0; i <= marks; i += 1) {
    const at = first + ((last - first) * i) / marks;
    const anchor = i === 0 ? "start" : i === marks ? "end" : "middle";
    picture.append(svg("text", { x: x(at), y: box.height - 6, "text-anchor": anchor }, (last - first > 86400 ? day : clock)(at)));
  }
  const pause = pauseIn(known);
  const line = (name, className) => {
    const runs = [];
    let before;
    for (const point of known.filter((each) => each[name] !== null && each[name] !== undefined)) {
      if (!before || point.at - before.at > pause) runs.push([]);
      runs[runs.length - 1].push(`${x(point.at).toFixed(1)},${y(point[name]).toFixed(1)}`);
      before = point;
    }
    const drawn = runs.filter((run) => run.length > 1);
    for (const run of drawn) picture.append(svg("polyline", { class: className, points: run.join(" ") }));
    return drawn.length > 0;
  };
  const hasCeiling = line("hosts.ceiling", "two");
  line("rate.pages", "one");
  $("plot").replaceChildren(picture);
  $("legend").replaceChildren(element("span", "pages/s, over ten seconds"));
  if (hasCeiling) $("legend").append(element("span", "what politeness allows the hosts in memory", "two"));
  if ($("points").closest("details").open) listPoints(known);
}

function listPoints(known) {
  const every = Math.max(1, Math.floor(known.length / 60));
  const rows = known.filter((_, i) => (known.length - 1 - i) % every === 0).reverse();
  table(
    "points",
    [["time", "name"], ["pages/s", "n"], ["politeness allows", "n"], ["queued", "n"], ["connections", "n"]],
    rows.map((point) => [clock(point.at), number(point["rate.pages"]), number(point["hosts.ceiling"]), count(point["pages.queued"]), count(point["connections.in_use"])]),
  );
}

// The figure of a snapshot at a path, such as "pages.queued".
const figure = (now, path) => path.split(".").reduce((part, name) => (part ? part[name] : part), now) ?? null;

const POINT = ["at", "rate.pages", "hosts.ceiling", "pages.queued", "pages.visited", "pages.failed", "connections.in_use"];

function addPoint(now) {
  const before = points[points.length - 1];
  if (before && now.at <= before.at) return;
  points.push(Object.fromEntries(POINT.map((path) => [path, figure(now, path)])));
  if (points.length > MOST_POINTS) points = points.filter((_, i) => i % 2 || i > MOST_POINTS / 2);
}

// The whole page

let limit;

function showVerdict(now) {
  const sentence = now.verdict ? now.verdict.sentence : "";
  const place = $("verdict");
  place.hidden = !sentence;
  setText("verdict", sentence);
  place.classList.toggle("bad", Boolean(now.problem) || Boolean(now.verdict && ["network", "disk", "machine", "spider"].includes(now.verdict.limit)));
  const kind = now.verdict ? now.verdict.limit : "";
  if (kind !== limit) setText("said", sentence); // a screen reader is not interrupted by each new figure
  limit = kind;
}

// What an operator asks of the crawl (scrapy aopic control): nothing can be asked for here.
function showControl({ control: { sentences } }) {
  const place = $("asked");
  if (place.dataset.said === sentences.join("\n")) return; // a screen reader hears it once
  place.dataset.said = sentences.join("\n");
  if (!sentences.length) {
    place.replaceChildren();
    return;
  }
  const list = element("ul");
  list.append(...sentences.map((each) => element("li", each)));
  place.replaceChildren(element("p", "Set by an operator, with scrapy aopic control:"), list);
}

function showTopic({ topic }) {
  $("topic").hidden = !topic;
  if (!topic) return;
  setText(
    "harvest",
    topic.lately === null
      ? `Of all pages that were read, ${percent(topic.harvest, 1)} are relevant.`
      : `Of the last 500 pages that were read, ${percent(topic.lately, 1)} are relevant, and of all ${percent(topic.harvest, 1)}.`,
  );
  bars("relevance", "Pages that were read, by relevance", [
    ["relevant", topic.relevant, ""],
    ["not relevant, or duplicates", topic.pages - topic.relevant, ""],
  ]);
}

function showFigures(now) {
  const { pages, hosts, rate, connections } = now;
  const rows = [
    ["pages/s (1 min)", rate ? number(rate.pages) : "–"],
    ["visited", count(pages.visited)],
    ["failed", count(pages.failed)],
    ["queued", count(pages.queued)],
    ["hosts", count(hosts.known)],
    ["downloads", connections ? `${count(connections.in_use)} of ${count(connections.limit)}` : "–"],
    ["in callbacks", connections ? count(connections.callbacks) : "–"],
    ["traffic", rate ? `${bytes(rate.bytes)}/s` : "–"],
  ];
  if (now.topic && now.topic.lately !== null) rows.push(["relevant lately", percent(now.topic.lately, 1)]);
  boxes("figures", rows);
}

// A row of figures, each a name and a text.
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

function showForecast({ forecast, rate }) {
  const end = forecast.seconds === null ? "No end in sight" : `About ${seconds(forecast.seconds)} to go`;
  const growth = rate && rate.growth !== null ? ` The queue ${rate.growth < 0 ? "shrinks" : "grows"} by ${few.format(Math.abs(rate.growth))} pages a page.` : "";
  setText("forecast", `${end}: ${forecast.because}.${forecast.because.includes("queue grows") ? "" : growth}`);
}

function showHosts(now) {
  const { hosts } = now;
  bars("states", "Hosts by state", STATES.filter(([key]) => hosts[key]).map(([key, name, remark]) => [name, hosts[key], remark]));
  const waits = Object.entries(hosts.waits).map(([name, n]) => [name, n, "reason"]);
  const due = hosts.due_in.map((n, i) => [DUE[i], n, ""]).filter((row) => row[1]);
  bars("waits", "Waiting hosts in memory by reason, and by time", [...waits, ...due], { empty: "No host in memory waits." });
  const heads = [["host", "name"], ["state", ""], ["transfer", "n"], ["wait", "n"], ["queued", "n"]];
  const row = (host) => [host.name, host.why ? `${host.state}: ${host.why}` : host.state, seconds(host.transfer), host.wait ? seconds(host.wait) : "–", count(host.queued)];
  for (const name of ["slow", "waiting"]) table(name, heads, now[name].map(row));
  table(
    "failing",
    [["host", "name"], ["state", ""], ["errors", "n"], ["wait", "n"], ["queued", "n"]],
    now.failing.map((host) => [host.name, host.state, count(host.errors), host.wait ? seconds(host.wait) : "–", count(host.queued)]),
  );
}

function showOutcomes(now) {
  const sorted = (object) => Object.entries(object).sort((a, b) => b[1] - a[1]);
  bars("classes", "Visits by outcome", sorted(now.outcomes), { empty: "No visit has ended." });
  const rows = sorted(now.refused).map(([name, n]) => [name, n, "refused URLs"]);
  bars("refused", "URLs that were refused, and pages that were put back", [
    ...rows,
    ...sorted(now.deferred).map(([name, n]) => [name, n, "put back"]),
    ...sorted(now.dropped || {}).map(([name, n]) => [DROPPED[name] || name, n, "dropped links"]),
  ]);
}

function showOrder(now) {
  const { ledger } = now;
  const turns = ledger.turns;
  setText(
    "cash",
    turns > 0
      ? `The cash of all pages has been spent ${number(turns)} times, which bounds the residual of each importance by ${number(ledger.convergence)}.`
      : "No cash has been spent yet.",
  );
  const drift = ledger.total - ledger.pages - ledger.virtual;
  facts("ledger", "The ledger", [
    ["order", now.order],
    ["cash of pages", percent(ledger.pages, ledger.total)],
    ["cash of the virtual page", percent(ledger.virtual, ledger.total)],
    ["cash that is missing", drift ? `${whole.format(drift)} units` : "none"],
    ["average time in the queue", seconds(now.queue_seconds)],
  ]);
  showFlow(now);
  const ready = now.hosts.ready_queues || {};
  const highest = (queues) => Math.max(...Object.keys(queues).map(Number));
  const best = highest(now.hosts.front_queues);
  const bestReady = highest(ready);
  setText(
    "regret",
    best < 0 || !now.is_live
      ? ""
      : bestReady < 0
        ? `The best page in memory waits in front queue ${best}; no host is ready.`
        : best === bestReady
          ? `The best page in memory is of a host that is ready: the order is that of importance.`
          : `The best page in memory waits in front queue ${best}, and the best of a host that is ready in ${bestReady}: politeness costs ${best - bestReady} ${best - bestReady === 1 ? "queue" : "queues"} now.`,
  );
  setText(
    "regret-mean",
    now.regret === null || now.regret === undefined
      ? ""
      : `The last thousand pages in flight, or so, lay ${few.format(now.regret)} front queues below the best that waited in memory, on average: 0 would be the order of importance, and the rest is what politeness costs it.`,
  );
  const fronts = Object.entries(now.hosts.front_queues).map(([level, n]) => [Number(level), n]);
  fronts.sort((a, b) => b[0] - a[0]);
  bars("fronts", "Hosts in memory by front queue", fronts.map(([level, n]) => [`front queue ${level}`, n, ready[level] ? `${count(ready[level])} ready` : ""]));
}

// What was spent between two snapshots, a second; the first of them is half a minute old at most.
const FLOW_WINDOW = 30; // seconds
let flows = [];

function showFlow({ at, ledger, is_live: isLive }) {
  flows = flows.filter((each) => at - each.at <= FLOW_WINDOW && each.at < at);
  const before = flows[0];
  flows.push({ at, pages: ledger.distributed, virtual: ledger.virtual_distributed });
  const turns = (units) => (ledger.pages ? `${number(units / ledger.pages)} times what pages hold` : "–");
  const speed = (now, then) => (before && isLive ? `, ${percent((now - then) / (at - before.at), ledger.pages)} of it a second` : "");
  facts("flow", "Cash flow", [
    ["pages to links and the virtual page", `${turns(ledger.distributed)}${speed(ledger.distributed, before && before.pages)}`],
    ["virtual page to pages", `${turns(ledger.virtual_distributed)}${speed(ledger.virtual_distributed, before && before.virtual)}`],
  ]);
}

function showStore(now) {
  const { store, machine, transfers } = now;
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
      ["processor", `${few.format(100 * machine.cpu)} % of a core${machine.starved >= 0.1 ? `; waits for one ${whole.format(100 * machine.starved)} % of the time, as others use it` : ""}`],
      ["event loop late by", `${seconds(machine.loop_lag)} on average, ${seconds(machine.loop_lag_max)} at most`],
    );
  }
  facts("facts", "Store and machine", rows);
  bars("durations", "Transfers by their time", transfers.durations.map((n, i) => [i < 8 ? `up to ${TIMES[i]}` : TIMES[i], n, ""]).filter((row) => row[1]), { empty: "No transfer has ended." });
}

// A job in shards: what all workers do together, which no worker knows by itself.

const JOB_EVERY = 5000; // milliseconds
const OF_STORES = ["hosts", "outcomes", "lists", "order", "store"]; // sections without figures if no store was read
let jobDue = 0;

async function showShards(now) {
  const isOne = now.shards.n < 2;
  $("job").hidden = isOne;
  $("job-figures").hidden = !isOne && !now.is_live; // they are on top of the page
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
    ["pages/s (1 min)", number(job.rate && job.rate.pages)],
    ["visited", count(job.pages.visited)],
    ["failed", count(job.pages.failed)],
    ["queued", count(job.pages.queued)],
    ["hosts", count(job.hosts.known)],
    ["letters on the way", count(shards.on_the_way)],
  ]);
  table(
    "workers",
    [["worker", "name"], ["shards", "n"], ["pages/s", "n"], ["for", "n"]],
    shards.workers.map((row) => [row.worker, count(row.shards), number(row.rate), seconds(row.seconds)]),
    { empty: "No worker crawls this job now." },
  );
  table(
    "shards",
    [["shard", ""], ["worker", "name"], ["queued", "n"], ["visited", "n"], ["failed", "n"], ["hosts", "n"], ["letters", "n"]],
    shards.each.map((row) => [count(row.shard), row.worker ? `${row.worker}${row.is_idle ? " (idle)" : ""}` : "none", count(row.queued), count(row.visited), count(row.failed), count(row.hosts), count(row.letters)]),
  );
}

function show(now) {
  const name = now.spider || now.store.name || "crawl";
  setText("title", name);
  document.title = `${name} – crawl`;
  const at = clock(now.at);
  const state = $("state");
  state.classList.toggle("bad", Boolean(now.problem));
  setText("state", now.problem || (now.is_live ? "Running" : `As of the last commit, ${new Date(now.at * 1000).toLocaleDateString("en-CA")} ${at}`));
  showVerdict(now);
  showShards(now);
  showControl(now);
  showFigures(now);
  showTopic(now);
  showForecast(now);
  showHosts(now);
  showOutcomes(now);
  showOrder(now);
  showStore(now);
  addPoint(now);
  draw();
}

// Questions

async function ask(path) {
  try {
    const response = await fetch(path, { cache: "no-store" });
    return response.ok ? await response.json() : { problem: (await response.text()).trim() };
  } catch {
    return { problem: "The crawl does not answer." };
  }
}

$("load-top").addEventListener("click", async () => {
  setText("top-note", "Looking at all pages …");
  const { pages, problem } = await ask("/api/v1/top");
  setText("top-note", problem || `As of ${clock(Date.now() / 1000)}.`);
  if (pages) {
    table(
      "pages",
      [["page", "name"], ["importance", "n"], ["visits", "n"], ["state", ""]],
      pages.map((page) => [page.url, number(page.importance), count(page.visits), page.state]),
      { empty: "No page is known." },
    );
  }
});

// Rectangles whose areas are as the numbers, each as square as can be (Bruls, Huizing and van Wijk, 2000).
function squarified(numbers, width, height) {
  const all = numbers.reduce((sum, n) => sum + n, 0);
  const boxes_ = [];
  let [x, y, w, h] = [0, 0, width, height];
  let rest = numbers.map((n) => (n * width * height) / all);
  const worst = (row, side) => {
    const sum = row.reduce((a, b) => a + b, 0);
    return Math.max((side * side * Math.max(...row)) / (sum * sum), (sum * sum) / (side * side * Math.min(...row)));
  };
  while (rest.length) {
    const side = Math.min(w, h);
    let n = 1;
    while (n < rest.length && worst(rest.slice(0, n + 1), side) <= worst(rest.slice(0, n), side)) n += 1;
    const row = rest.slice(0, n);
    const thick = row.reduce((a, b) => a + b, 0) / side;
    let along = 0;
    for (const area of row) {
      const long = area / thick;
      boxes_.push(w >= h ? [x, y + along, thick, long] : [x + along, y, long, thick]);
      along += long;
    }
    if (w >= h) [x, w] = [x + thick, w - thick];
    else [y, h] = [y + thick, h - thick];
    rest = rest.slice(n);
  }
  return boxes_;
}

$("load-domains").addEventListener("click", async () => {
  setText("domains-note", "Looking at all hosts …");
  const { domains, traps, problem } = await ask("/api/v1/domains");
  const known = domains && domains.some((row) => row.importance !== null && row.importance !== undefined);
  setText("domains-note", problem || `As of ${clock(Date.now() / 1000)}. Areas are fetched pages${known ? "; the stronger the colour, the more important these are" : ""}.`);
  if (!domains) return;
  // How important a fetched page is, of the average: 1 is that of the whole crawl.
  const fetched = domains.reduce((sum, row) => sum + row.visited, 0);
  const worth = (row) => (known && row.visited ? (row.importance * fetched) / row.visited : null);
  const name = (row) => row.domain || "all others";
  const drawn = domains.filter((row) => row.visited > 0);
  const size = { width: $("map").clientWidth, height: 256 };
  const picture = svg("svg", { viewBox: `0 0 ${size.width} ${size.height}`, "aria-hidden": "true" });
  squarified(drawn.map((row) => row.visited), size.width, size.height).forEach(([x, y, w, h], i) => {
    const value = worth(drawn[i]);
    const shade = value === null ? 1 : Math.min(Math.max(0.6 + 0.2 * Math.log2(value || 0.01), 0.15), 1); // half as important: a fifth paler
    picture.append(svg("rect", { x, y, width: w, height: h, "fill-opacity": shade.toFixed(2) }));
    const text = name(drawn[i]).slice(0, Math.floor((w - 10) / 7));
    if (h > 18 && text.length > 3) picture.append(svg("text", { x: x + 6, y: y + 16 }, text));
  });
  $("map").replaceChildren(...(drawn.length ? [picture] : []));
  table(
    "domain-rows",
    [["domain", "name"], ["fetched", "n"], ["queued", "n"], ["hosts", "n"], ["importance a fetch, of average", "n"]],
    domains.map((row) => [name(row), count(row.visited), count(row.queued), count(row.hosts), number(worth(row))]),
    { empty: "No host is known." },
  );
  $("trapped").hidden = !(traps && traps.length);
  table(
    "traps",
    [["host", "name"], ["queued", "n"], ["fetched", "n"], ["", ""]],
    (traps || []).map((row) => [row.host, count(row.queued), count(row.visited), row.is_late ? "its domain is over its budget" : ""]),
  );
});

$("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  setText("answer", "Looking …");
  const { problem, kind, sentences = [] } = await ask(`/api/v1/why?of=${encodeURIComponent($("of").value)}`);
  $("answer").replaceChildren(...(problem ? [problem] : [`${kind[0].toUpperCase()}${kind.slice(1)}.`, ...sentences]).map((text) => element("p", text)));
});

$("points").closest("details").addEventListener("toggle", draw);
window.addEventListener("resize", draw);

// Life

async function begin() {
  const past = await ask("/api/v1/history");
  if (Array.isArray(past)) points = past;
  const source = new EventSource("/events");
  let waits;
  source.addEventListener("snapshot", (event) => {
    clearTimeout(waits);
    show(JSON.parse(event.data));
  });
  source.addEventListener("bye", (event) => {
    source.close();
    setText("state", `The crawl is over: ${JSON.parse(event.data).reason}. These are its last figures.`);
  });
  source.addEventListener("error", () => {
    clearTimeout(waits);
    waits = setTimeout(() => {
      setText("state", source.readyState === EventSource.CLOSED ? "Not connected: the token is not that of this run, or too many pages are watching. Reload to try again." : "No connection to the crawl; trying again.");
      $("state").classList.add("bad");
    }, 500);
  });
}

begin();
