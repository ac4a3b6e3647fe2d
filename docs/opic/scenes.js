/* The seven scenes: what ledger.js says, drawn; no arithmetic of cash here.
 *
 * Rule 1: every text of a reader's file or address goes in by textContent or setAttribute of harmless names.
 * Rule 2: nothing moves by itself where the reader prefers reduced motion, and nothing at all unless asked for.
 * Rule 3: whatever a picture shows is in a table or a sentence beside it.
 */
"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";

  /** Milliseconds that coins travel, at speed 1. */
  const TRAVEL = 700;

  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  const count = (units) => Number(units).toLocaleString("en");
  const share = (part, digits = 1) => `${(100 * part).toFixed(digits)} %`;
  /** *text* with characters that are invisible, or turn the direction of writing, as their numbers. */
  const visible = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
  const plural = (n, one, many = `${one}s`) => `${count(n)} ${Number(n) === 1 ? one : many}`;

  // -- elements

  function made(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") element.addEventListener(name, value);
      else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...children.flat(Infinity).map((child) => (child instanceof Node ? child : String(child))));
    return element;
  }

  const html = (tag, attributes = {}, ...children) => made(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) => made(document.createElementNS(SVG, tag), attributes, children);

  /** The parts of the scene with *id*. */
  function parts(id) {
    const section = document.getElementById(id);
    const find = (what) => section.querySelector(what);
    return {
      section,
      said: find(".said"),
      figure: find("[data-figure]"),
      controls: find("[data-controls]"),
      table: find("[data-table]"),
      find,
    };
  }

  /** A table that can scroll sideways; cells may be elements. */
  function table(caption, heads, rows) {
    return html("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
      html("table", {},
        html("caption", {}, caption),
        html("thead", {}, html("tr", {}, heads.map((head) => html("th", { scope: "col" }, head)))),
        html("tbody", {}, rows.map((row) => html("tr", {}, row.map((cell, index) =>
          cell instanceof HTMLTableCellElement ? cell
            : index ? html("td", {}, cell) : html("th", { scope: "row" }, cell)))))));
  }

  const button = (text, act, attributes = {}) => html("button", { type: "button", click: act, ...attributes }, text);

  function select(text, options, act) {
    const list = html("select", { change: () => act(list.value) },
      options.map(([value, name]) => html("option", { value }, name)));
    return html("label", {}, text, list);
  }

  function slider(text, { min, max, step, value, shown }, act) {
    const output = html("output", {}, shown(value));
    const range = html("input", { type: "range", min, max, step, value, input() {
      output.textContent = shown(Number(range.value));
      range.setAttribute("aria-valuetext", shown(Number(range.value)));
      act(Number(range.value));
    } });
    range.setAttribute("aria-valuetext", shown(value));
    return html("label", {}, text, range, output);
  }

  /** Buttons Step, Play and Start again; while it plays, screen readers are not told of every step. */
  function player(scene, { step, reset, wait = () => 900, more = [] }) {
    let timer = 0;
    const play = button("Play", () => (timer ? stop() : start()));
    function stop() {
      clearTimeout(timer);
      timer = 0;
      play.textContent = "Play";
      scene.said.removeAttribute("aria-live");
    }
    function start() {
      play.textContent = "Pause";
      scene.said.setAttribute("aria-live", "off");
      const tick = () => {
        timer = setTimeout(tick, wait());
        if (step(true) === false) stop();
      };
      tick();
    }
    scene.controls.append(
      button("Step", () => { stop(); step(false); }, { class: "main" }),
      play,
      button("Start again", () => { stop(); reset(); }),
      ...more,
    );
    // A scene that nobody sees does not play.
    new IntersectionObserver(([entry]) => { if (timer && !entry.isIntersecting) stop(); }).observe(scene.section);
    return { stop };
  }

  // -- graphs

  let markers = 0;

  function arrowhead() {
    markers += 1;
    const id = `arrow-${markers}`;
    const marker = svg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7,
      markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { class: "arrow", d: "M0 0 8 4 0 8z" }));
    return [svg("defs", {}, marker), `url(#${id})`];
  }

  /** The point where the link from *from* to *to* is after a *part* of its way, bent to its left. */
  function along([x, y], [u, v], part, bend) {
    const [mx, my] = [(x + u) / 2 - (v - y) * bend, (y + v) / 2 + (u - x) * bend];
    const rest = 1 - part;
    return [rest * rest * x + 2 * rest * part * mx + part * part * u, rest * rest * y + 2 * rest * part * my + part * part * v];
  }

  function edgePath(from, to, radius, bend, gap = 3) {
    const length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
    const points = [along(from, to, radius / length, bend), along(from, to, 1 - (radius + gap) / length, bend)];
    const middle = [
      (from[0] + to[0]) / 2 - (to[1] - from[1]) * bend,
      (from[1] + to[1]) / 2 + (to[0] - from[0]) * bend,
    ];
    const [[a, b], [c, d]] = points;
    return `M${a.toFixed(1)} ${b.toFixed(1)}Q${middle.map((each) => each.toFixed(1)).join(" ")} ${c.toFixed(1)} ${d.toFixed(1)}`;
  }

  /** The six pages of the first two scenes. */
  const SIX = [[78, 82], [180, 50], [282, 88], [286, 200], [180, 232], [74, 200]];
  const VAULT = [180, 146];

  /** Where the amounts of each page stand, outside of the ring of links: anchor, and places of cash and history. */
  const BESIDE = [["end", -23, -3, 11], ["middle", 0, -37, -24], ["start", 23, -3, 11], ["start", 23, -3, 11], ["middle", 0, 32, 45], ["end", -23, -3, 11]];
  const BEND = 0.1;

  /** A picture of a web of six, with cash, histories and maybe the virtual page, in which coins travel. */
  class SixPages {
    constructor(label, links, visit, { hasVault, gone }) {
      const [defs, head] = arrowhead();
      this.edges = new Map();
      const edges = links.flatMap((targets, page) => targets.map((target) => {
        const edge = svg("path", { class: "edge", d: edgePath(SIX[page], SIX[target], 19, BEND), "marker-end": head });
        this.edges.set(`${page}>${target}`, edge);
        return edge;
      }));
      const dotted = gone.map(([page, target]) => svg("path", { class: "edge gone", d: edgePath(SIX[page], SIX[target], 19, BEND) }));
      this.pages = SIX.map(([x, y], page) => svg("g", {
        role: "button", tabindex: 0, transform: `translate(${x} ${y})`,
        click: () => visit(page),
        keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); visit(page); } },
      },
        svg("circle", { class: "disc", r: 18 }),
        svg("text", { class: "name" }, page + 1)));
      this.amounts = SIX.map(([x, y], page) => svg("g", { transform: `translate(${x} ${y})`, "aria-hidden": "true" },
        svg("text", { class: "amount cash", "text-anchor": BESIDE[page][0], x: BESIDE[page][1], y: BESIDE[page][2] }),
        svg("text", { class: "amount history", "text-anchor": BESIDE[page][0], x: BESIDE[page][1], y: BESIDE[page][3] })));
      this.vault = svg("rect", { class: "vault", x: VAULT[0] - 46, y: VAULT[1] - 21, width: 92, height: 42, rx: 8 });
      this.vaultText = svg("text", { class: "vault-text", x: VAULT[0], y: VAULT[1] + 13 });
      this.coins = svg("g", {});
      this.element = svg("svg", { viewBox: "0 0 360 302", role: "group", "aria-label": label }, defs, edges, dotted,
        hasVault ? [this.vault, svg("text", { class: "vault-text", x: VAULT[0], y: VAULT[1] - 3 }, "virtual page"), this.vaultText] : [],
        this.pages, this.amounts, this.coins,
        svg("text", { class: "label", x: 2, y: 298 }, "first number: cash · second: history"));
    }

    show(web, lit = -1, targets = []) {
      this.pages.forEach((group, page) => {
        const [cash, history] = this.amounts[page].children;
        cash.textContent = count(web.cash(page));
        history.textContent = count(web.pages[page].history);
        group.setAttribute("aria-label",
          `Page ${page + 1}: cash ${cash.textContent}, history ${history.textContent}. Visit it.`);
      });
      this.vaultText.textContent = web.bank ? count(web.ledger.virtual) : "closed";
      this.vault.classList.toggle("off", !web.bank);
      this.light(lit, targets);
    }

    /** Let the page *lit* and its links to *targets* stand out. */
    light(lit, targets) {
      this.pages.forEach((group, page) => group.classList.toggle("lit", page === lit));
      for (const [name, edge] of this.edges) {
        edge.classList.toggle("lit", targets.some((target) => name === `${lit}>${target}`));
      }
    }

    /** Let coins travel for what *moved*, then call *done*; at once where there is to be no motion. */
    travel(moved, pace, bank, done) {
      this.finish();
      const { page } = moved;
      const ways = moved.targets.map((target, index) => [SIX[page], SIX[target], BEND, moved.paid[index]]);
      if (moved.toVirtual && bank) ways.push([SIX[page], VAULT, 0, moved.toVirtual]);
      if (moved.handed) ways.push(...SIX.map((place) => [VAULT, place, 0, moved.handed]));
      if (calm.matches || pace < 0.3 || !moved.spent) {
        done();
        return;
      }
      // What leaves is gone from its page at once, and reaches the others with its coin, which is larger the more it is worth.
      const [cash, history] = this.amounts[page].children;
      cash.textContent = count(0);
      history.textContent = count(moved.history);
      const coins = ways.map(([, , , units]) => svg("g", { class: "coin" },
        svg("circle", { r: Math.min(9 + Math.sqrt(Number(units)) / 12, 16) }), svg("text", {}, count(units))));
      this.coins.replaceChildren(...coins);
      const begin = performance.now();
      this.done = done;
      const frame = (now) => {
        if (this.done !== done) return;
        const part = Math.min((now - begin) / (TRAVEL * pace), 1);
        coins.forEach((coin, index) => {
          const [x, y] = along(...ways[index].slice(0, 2), part, ways[index][2]);
          coin.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
        });
        if (part < 1) requestAnimationFrame(frame);
        else this.finish();
      };
      frame(begin);
    }

    /** Let coins that travel arrive now. */
    finish() {
      const { done } = this;
      this.done = null;
      this.coins.replaceChildren();
      if (done) done();
    }
  }

  /** What a step moved, in a sentence. */
  function sentence(web, moved, hasVault = true) {
    const { page, spent, targets, paid, toVirtual, handed } = moved;
    const first = handed ? `The virtual page hands ${plural(handed, "coin")} to each page. ` : "";
    if (!spent) return `${first}Page ${page + 1} has no cash, so nothing moves.`;
    const begin = `${first}Page ${page + 1} adds ${plural(spent, "coin")} to its history`;
    if (!targets.length) {
      return `${begin}. It links to nothing, so all of them ${web.bank ? "go to the virtual page" : "are lost"}.`;
    }
    const links = targets.length === 1 ? `page ${targets[0] + 1}` : `each of ${targets.length} pages`;
    const left = hasVault ? "lost" : `left over, as ${toVirtual === 1n ? "it" : "they"} cannot be divided`;
    const rest = !toVirtual ? "" : web.bank ? `, and ${count(toVirtual)} to the virtual page` : `; ${plural(toVirtual, "odd coin")} ${left}`;
    return `${begin}, and pays ${count(paid[0])} to ${links}${rest}.`;
  }

  const cashTable = (web) =>
    table("Cash, history and importance of each page", ["Page", "links to", "cash", "history", "visits", "importance"],
      web.pages.map((page, index) => [
        `Page ${index + 1}`, web.targets(index).map((each) => each + 1).join(", ") || "nothing", count(web.cash(index)),
        count(page.history), page.visits, share(web.importance()[index]),
      ]));

  const SPEEDS = [["1", "normal"], ["2", "slow"], ["0.2", "fast"]];

  /** A scene of six pages that are visited greedily, or as the reader likes. */
  function sixPages(id, label, links, { how = () => ({}), show = () => {}, more = [], hasVault = true, gone = [] }) {
    const scene = parts(id);
    let web, pace = 1;
    const picture = new SixPages(label, links, (page) => { playing.stop(); go(page); }, { hasVault, gone });
    function draw(moved) {
      picture.show(web, moved ? moved.page : -1, moved ? moved.targets : []);
      scene.table.replaceChildren(cashTable(web));
      show(web);
    }
    function go(page) {
      picture.finish();
      const next = page ?? Opic.POLICIES.greedy(web);
      const moved = web.visit(next);
      scene.said.textContent = sentence(web, moved, hasVault);
      picture.light(next, moved.targets);
      picture.travel({ ...moved, history: web.pages[next].history }, pace, web.bank, () => draw(moved));
    }
    function reset() {
      picture.finish();
      web = new Opic.Web(links, how());
      scene.said.textContent = "Every page has 1,000 coins. A step visits the page with the most cash.";
      draw();
    }
    const playing = player(scene, { step: () => go(), reset, wait: () => 300 + 900 * pace,
      more: [select("Speed", SPEEDS, (value) => { pace = Number(value); }), ...more.map((make) => make(reset))] });
    scene.figure.append(picture.element);
    reset();
  }

  function coins() {
    const bars = svg("svg", { viewBox: "0 0 360 134", role: "img" });
    parts("coins").find("[data-bar]").append(bars);
    function show(web) {
      const weights = web.pages.map((page, index) => [page.history, web.cash(index)].map(Number));
      const all = weights.flat().reduce((sum, each) => sum + each, 0);
      const importance = web.importance();
      const width = (units) => (220 * 2 * units) / all; // half of everything fills it
      const rows = weights.map(([history, cash], page) => [
        svg("text", { x: 2, y: 31 + page * 18 }, `page ${page + 1}`),
        svg("rect", { class: "bar-history", x: 52, y: 20 + page * 18, width: Math.min(width(history), 220), height: 13 }),
        svg("rect", { class: "bar-cash", x: 52 + width(history), y: 20 + page * 18, width: width(cash), height: 13 }),
        svg("text", { x: 58 + width(history + cash), y: 31 + page * 18 }, share(importance[page])),
      ]);
      bars.replaceChildren(svg("text", { class: "label", x: 2, y: 12 }, "importance: history (green) and cash (gold), as a part of all"), ...rows.flat());
      bars.setAttribute("aria-label", `Importance: ${importance.map((each, page) => `page ${page + 1} ${share(each)}`).join(", ")}`);
    }
    sixPages("coins", "Six pages", [[1, 2], [2], [0, 3], [4], [2, 5], [0, 4]], { how: () => ({ bank: false }), hasVault: false, show });
  }

  function bank() {
    let hasBank = true;
    let part = Opic.SHARE;
    const bar = svg("svg", { viewBox: "0 0 360 58", role: "img" });
    parts("bank").find("[data-bar]").append(bar);
    function show(web) {
      const all = 6000;
      const width = (units) => (356 * Number(units)) / all;
      const pages = web.pages.map((_, page) => web.cash(page));
      const held = pages.reduce((one, other) => one + other, 0n);
      let x = 2;
      const pieces = pages.map((units) => {
        const piece = svg("rect", { class: "bar-pages", x, y: 20, width: width(units), height: 22 });
        x += width(units);
        return piece;
      });
      pieces.push(svg("rect", { class: "bar-virtual", x, y: 20, width: width(web.ledger.virtual), height: 22 }));
      x += width(web.ledger.virtual);
      if (web.lost) pieces.push(svg("rect", { class: "bar-lost", x, y: 20, width: width(web.lost), height: 22 }));
      const lost = web.lost ? ` + lost ${count(web.lost)}` : "";
      const text = `pages ${count(held)} + virtual page ${count(web.ledger.virtual)}${lost} = ${count(all)}`;
      bar.replaceChildren(svg("text", { x: 2, y: 12 }, text), ...pieces,
        svg("text", { class: "label", x: 2, y: 56 }, "cash of pages 1 to 6, then the virtual page"));
      bar.setAttribute("aria-label", `All cash: ${text}`);
    }
    sixPages("bank", "Six pages, of which page 5 links to nothing, and the virtual page",
      [[1, 2], [2], [0, 3], [4], [], [0, 4]], {
        how: () => ({ bank: hasBank, share: part }),
        show,
        gone: [[4, 2], [4, 5]],
        more: [
          (reset) => {
            const box = html("input", { type: "checkbox", checked: true, change: () => { hasBank = box.checked; reset(); } });
            return html("label", {}, box, "Bank on");
          },
          (reset) => select("It takes", [["0.15", "15 %"], ["", "one link more"], ["0.5", "50 %"]],
            (value) => { part = value ? Number(value) : null; reset(); }),
        ],
      });
  }

  // -- charts

  /** Round numbers in *low* to *high* for the ticks of an axis. */
  function ticksOf(low, high, isLog) {
    if (isLog) {
      const ticks = [];
      for (let power = Math.ceil(Math.log10(low) - 1e-9); power <= Math.log10(high) + 1e-9; power += 1) ticks.push(10 ** power);
      return ticks;
    }
    const rough = (high - low) / 4 || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].find((each) => each * power >= rough) * power;
    return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, n) => n * step).filter((tick) => tick >= low);
  }

  const shortly = (real) => (real >= 0.01 ? String(Number(real.toPrecision(3))) : real.toString().replace("e-", "e−"));

  /** A chart of *series* ({name, kind, points}) with names at the ends of the lines. */
  function chart({ title, xLabel, yLabel, series, xMax, yMin, yMax, isLog = false, dots = [], mark = null, percent = false }) {
    const [left, right, top, bottom] = [40, 292, 24, 190];
    const atX = (x) => left + ((right - left) * x) / xMax;
    const place = (y) => (isLog ? Math.log10(y / yMin) / Math.log10(yMax / yMin) : (y - yMin) / (yMax - yMin));
    const atY = (y) => bottom - (bottom - top) * Math.min(Math.max(place(y), -0.02), 1.02);
    const grid = [
      ...ticksOf(yMin, yMax, isLog).map((tick) => [
        svg("path", { class: "grid", d: `M${left} ${atY(tick)}H${right}` }),
        svg("text", { class: "tick", x: left - 4, y: atY(tick) + 3.5, "text-anchor": "end" },
          percent ? `${shortly(100 * tick)} %` : shortly(tick)),
      ]),
      ...ticksOf(0, xMax, false).map((tick) => [
        svg("path", { class: "axis", d: `M${atX(tick)} ${bottom}v4` }),
        svg("text", { class: "tick", x: atX(tick), y: bottom + 14, "text-anchor": "middle" }, count(tick)),
      ]),
    ];
    const lines = series.filter((each) => each.points.length).map(({ kind, points }) =>
      svg("path", { class: `line ${kind}`,
        d: `M${points.map(([x, y]) => `${atX(x).toFixed(1)} ${atY(y).toFixed(1)}`).join("L")}` }));
    // Names that would lie on each other are moved apart.
    const names = series.filter((each) => each.points.length)
      .map(({ name, kind, points }) => ({ name, kind, x: points.at(-1)[0], y: atY(points.at(-1)[1]) + 4 }))
      .sort((one, other) => one.y - other.y);
    names.forEach((each, index) => { if (index) each.y = Math.max(each.y, names[index - 1].y + 12); });
    return svg("svg", { viewBox: "0 0 360 222", role: "img", "aria-label": title },
      svg("text", { class: "label", x: 2, y: 12 }, yLabel),
      grid,
      mark ? [svg("path", { class: "now", d: `M${atX(mark.x)} ${top}V${bottom}` }),
        svg("text", { class: "label", x: atX(mark.x) - 4, y: top + 10, "text-anchor": "end" }, mark.text)] : [],
      svg("path", { class: "axis", d: `M${left} ${top}V${bottom}H${right}` }),
      lines,
      dots.map(([x, y, isHollow]) => svg("circle", { class: isHollow ? "dot hollow" : "dot", cx: atX(x), cy: atY(y), r: 2.6 })),
      names.map(({ name, kind, x, y }) =>
        svg("text", { class: `series ${kind}`, x: Math.min(atX(x), right) + 5, y: Math.min(y, bottom - 2) }, name)),
      svg("text", { class: "label", x: right, y: 218, "text-anchor": "end" }, xLabel));
  }

  // -- 3: who is next

  const N = 24;

  /** Places of *n* pages in a spiral, as seeds lie in a sunflower. */
  const spiral = (n, middle, wide) => Array.from({ length: n }, (_, page) => {
    const angle = page * 2.399963;
    const far = wide * Math.sqrt((page + 0.6) / n);
    return [middle + far * Math.cos(angle), middle + far * Math.sin(angle)];
  });

  function next() {
    const scene = parts("next");
    const charts = scene.find("[data-charts]");
    const most = 480;
    let seed = 1;
    let webs, truth, errors, bounds, circles;
    const radius = (part) => Math.sqrt(part) * 40;

    function reset() {
      const links = Opic.randomLinks(N, seed);
      truth = Opic.pagerank(links);
      webs = Object.fromEntries(Object.keys(Opic.POLICIES).map((policy) => [policy, new Opic.Web(links, { seed })]));
      errors = { greedy: [], random: [], cycle: [] };
      bounds = { greedy: [], random: [], cycle: [] };
      const places = spiral(N, 100, 82);
      circles = {};
      scene.figure.replaceChildren(...Object.keys(webs).map((policy) => {
        circles[policy] = truth.map((_, page) => svg("circle", { class: "estimate", cx: places[page][0], cy: places[page][1] }));
        const edges = links.flatMap((targets, page) =>
          targets.map((target) => svg("path", { class: "edge faint", d: edgePath(places[page], places[target], 2, BEND, 0) })));
        const rings = truth.map((part, page) =>
          svg("circle", { class: "truth", cx: places[page][0], cy: places[page][1], r: radius(part) }));
        return html("figure", {},
          svg("svg", { viewBox: "0 0 200 200", "aria-hidden": "true" }, edges, circles[policy], rings),
          html("figcaption", {}, policy, html("small", {}, "")));
      }));
      measure();
      draw();
      scene.said.textContent = "Discs are estimates, dashed rings are PageRank. At first all discs are alike. A step is four visits of each crawler.";
    }

    function measure() {
      for (const [policy, web] of Object.entries(webs)) {
        errors[policy].push([web.steps, Opic.distance(web.importance(), truth)]);
        if (web.turns) bounds[policy].push([web.steps, 1 / web.turns]);
      }
    }

    const now = (policy) => ({ error: errors[policy].at(-1)[1], bound: bounds[policy].at(-1)?.[1] });

    function draw() {
      for (const [policy, web] of Object.entries(webs)) {
        web.importance().forEach((part, page) => circles[policy][page].setAttribute("r", radius(part)));
      }
      for (const caption of scene.figure.querySelectorAll("figcaption")) {
        caption.lastChild.textContent = `error ${now(caption.firstChild.data).error.toFixed(3)}`;
      }
      const series = (of) => Object.keys(of).map((name) => ({ name, kind: name, points: of[name] }));
      const both = { xLabel: "visits", xMax: most, isLog: true };
      const said = Object.keys(webs).map((policy) => `${policy} ${now(policy).error.toFixed(3)}`).join(", ");
      charts.replaceChildren(
        chart({ ...both, title: `Error against PageRank by visits. Now: ${said}`,
          yLabel: "error: sum of |estimate − PageRank|", series: series(errors), yMin: 0.01, yMax: 2 }),
        chart({ ...both, title: "1/|H| by visits; the table has the figures", yLabel: "1/|H|: bound of the residual",
          series: series(bounds), yMin: 0.01, yMax: 10 }),
      );
      scene.table.replaceChildren(table("The three crawlers", ["Crawler", "visits", "error", "|H|", "1/|H|"],
        Object.entries(webs).map(([policy, web]) => [policy, web.steps, now(policy).error.toFixed(4), web.turns.toFixed(2),
          now(policy).bound?.toFixed(4) ?? "–"])));
    }

    function step() {
      if (webs.greedy.steps >= most) return false;
      for (let n = 0; n < 4; n += 1) for (const [policy, web] of Object.entries(webs)) web.step(policy);
      measure();
      draw();
      const { greedy, random, cycle } = Object.fromEntries(Object.keys(webs).map((policy) => [policy, now(policy).error]));
      scene.said.textContent =
        `After ${webs.greedy.steps} visits the error of random is ${(random / greedy).toFixed(1)} times that of greedy, ` +
        `and that of cycle ${(cycle / greedy).toFixed(1)} times.`;
      return true;
    }

    player(scene, { step, reset, wait: () => 250, more: [
      button("Run to the end", () => { while (step()) continue; }),
      button("Another web", () => { seed += 1; reset(); }),
    ] });
    reset();
  }

  // -- 4: the web changes

  /** A web whose page 12 gets a link from its most important page. */
  const CHANGING = { seed: 5, page: 11, at: 300, steps: 900 };

  function change() {
    const scene = parts("change");
    const { seed, page, at, steps } = CHANGING;
    const links = Opic.randomLinks(N, seed);
    const before = Opic.pagerank(links);
    const hub = before.indexOf(Math.max(...before));
    const changed = links.map((targets, each) => (each === hub ? [...targets, page] : targets));
    const after = Opic.pagerank(changed);

    /** Estimates of the page after each visit of a crawl with *window*, null for none, and the page's own visits. */
    function run(window) {
      const web = new Opic.Web(links, window ? { window } : {});
      const points = [];
      const dots = [];
      for (let step = 1; step <= steps; step += 1) {
        if (step === at) web.links = changed.map((targets) => [...targets]);
        const last = web.pages[page].visitedTurn;
        const moved = web.step();
        const part = web.importance(window !== null)[page];
        points.push([step, part]);
        if (moved.page === page && web.pages[page].visits > 1) {
          dots.push([step, part, window !== null && web.pages[page].visitedTurn - last >= window.size]);
        }
      }
      return { points, dots, turns: web.ledger.turn };
    }

    const ever = run(null);
    const arrival = ({ points }) => points.find(([step, part]) => step >= at && Math.abs(part / after[page] - 1) < 0.1)?.[0];
    const arrives = (step) => (step ? `after ${step - at} visits` : `not within ${steps - at} visits`);
    const range = ({ points }) => {
      const late = points.filter(([step]) => step > steps - 300).map(([, part]) => part);
      return `between ${share(Math.min(...late))} and ${share(Math.max(...late))}`;
    };

    function show(size) {
      const found = run(new Opic.Window(size));
      const full = found.dots.filter((dot) => !dot[2]).length;
      // The first estimates are wild, whatever the window: not all of them need to be in the picture.
      const highest = Math.max(after[page], ...found.points.slice(50).map(([, part]) => part));
      const truth = [[1, before[page]], [at, before[page]], [at, after[page]], [steps, after[page]]];
      scene.figure.replaceChildren(chart({
        title: `Importance of page 12 by visits, with a window of ${size} turns and without one`,
        xLabel: "visits", yLabel: "importance of page 12", xMax: steps, yMin: 0, yMax: highest * 1.08,
        percent: true, dots: found.dots, mark: { x: at, text: "the new link" },
        series: [
          { name: "PageRank", kind: "true", points: truth },
          { name: "no window", kind: "ever", points: ever.points },
          { name: "window", kind: "window", points: found.points },
        ],
      }));
      scene.said.textContent =
        `With T = ${size} turns the estimate first comes within a tenth of the new PageRank ${arrives(arrival(found))}; ` +
        `without a window ${arrives(arrival(ever))}. In the last 300 visits it is ${range(found)}, ` +
        `without a window ${range(ever)}. Page 12 is revisited ${plural(full, "time")} with S < T, and ` +
        `${plural(found.dots.length - full, "time")} with S ≥ T.`;
      scene.table.replaceChildren(table("Importance of page 12", ["Visits", "PageRank", "window", "no window"],
        [100, 200, 299, 310, 330, 360, 400, 500, 700, 900].map((step) => [
          step, share((step < at ? before : after)[page], 2), share(found.points[step - 1][1], 2), share(ever.points[step - 1][1], 2),
        ])));
    }

    const sizes = [0.5, 1, 2, 4, 8, 16, 32, 64];
    scene.controls.append(slider("Window T", { min: 0, max: sizes.length - 1, step: 1, value: 4,
      shown: (index) => plural(sizes[index], "turn") }, (index) => show(sizes[index])));
    show(8);
  }

  // -- 5: hosts and politeness

  const HOSTS = ["ash", "birch", "cedar", "fir"].map((name) => `${name}.example`);

  function hosts() {
    const scene = parts("hosts");
    const time = scene.find("[data-time]");
    const queues = scene.find("[data-queues]");
    const links = Opic.randomLinks(N, 9);
    const chance = Opic.chances(4);
    const hostOf = links.map((_, page) => HOSTS[page < 4 ? page : Math.floor(chance() ** 1.6 * 4)]);
    const transfers = links.map((_, page) => [0.2, 0.3, 0.15, 0.5][HOSTS.indexOf(hostOf[page])]);
    const seeds = [0, 1, 2, 3];
    let factor = 10;
    let crawl, waits;

    const make = (times) => new Opic.Crawl(links, hostOf, transfers, seeds, { factor: times, connections: 2 });

    /** All visits of a crawl with this *factor*, and how long they take. */
    function whole(times) {
      const all = make(times);
      while (all.step()) continue;
      return { n: all.visits.length, end: Math.max(...all.visits.map((visit) => visit.end)) };
    }

    function reset() {
      crawl = make(factor);
      waits = 0;
      const { n, end } = whole(factor);
      scene.said.textContent =
        `With a factor of ${factor}, two connections fetch ${n} pages in ${end.toFixed(1)} s` +
        (factor ? `; with 0, in ${whole(0).end.toFixed(1)} s.` : ", and no host is ever left alone.");
      draw();
    }

    const best = () => [...crawl.queued].sort((one, other) => crawl.before(one, other))[0];

    function step() {
      const wanted = best();
      const before = new Set(crawl.queued);
      if (!crawl.step()) {
        scene.said.textContent = `All pages that can be found are visited, after ${crawl.now.toFixed(1)} s. ` +
          `${plural(waits, "time")} the best page had to wait for its host, and another page was fetched.`;
        return false;
      }
      const visit = crawl.visits.at(-1);
      const begun = [...before].filter((page) => !crawl.queued.has(page));
      const passed = wanted !== undefined && crawl.queued.has(wanted) && begun.length > 0;
      if (passed) waits += begun.length;
      scene.said.textContent =
        `At ${crawl.now.toFixed(1)} s page ${visit.page + 1} of ${visit.host} has arrived. Its transfer took ` +
        `${(visit.end - visit.begin).toFixed(2)} s, so ${visit.host} is left alone until ${visit.until.toFixed(1)} s.` +
        (passed ? ` Page ${wanted + 1} ranks higher, but its host was not ready: it waits, and the crawler does not.` : "");
      draw();
      return true;
    }

    function draw() {
      const span = Math.max(whole(factor).end, 4) * 1.02;
      const [left, right] = [92, 356];
      const atX = (instant) => left + ((right - left) * Math.min(instant, span)) / span;
      const row = (host) => 24 + HOSTS.indexOf(host) * 34;
      const pattern = svg("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse",
        patternTransform: "rotate(45)" }, svg("path", { class: "hatch", d: "M0 0V5" }));
      const bars = crawl.visits.map(({ page, host, begin, end, until }) => [
        svg("rect", { class: "gap", x: atX(end), y: row(host) + 6, width: Math.max(atX(until) - atX(end), 0), height: 12 }),
        svg("rect", { class: "transfer", x: atX(begin), y: row(host), width: Math.max(atX(end) - atX(begin), 1.5), height: 24 }),
        atX(end) - atX(begin) > 11
          ? svg("text", { class: "transfer-name", x: (atX(begin) + atX(end)) / 2, y: row(host) + 16 }, page + 1) : [],
      ]);
      time.replaceChildren(svg("svg", { viewBox: "0 0 360 186", role: "img",
        "aria-label": "Transfers of each host in time; the table has them all" },
        svg("defs", {}, pattern),
        HOSTS.map((host) => [
          svg("text", { x: 2, y: row(host) + 16 }, host),
          svg("path", { class: "grid", d: `M${left} ${row(host) + 12}H${right}` }),
        ]),
        bars,
        svg("path", { class: "now", d: `M${atX(crawl.now)} 14V162` }),
        svg("path", { class: "axis", d: `M${left} 162H${right}` }),
        ticksOf(0, span, false).map((tick) => [
          svg("path", { class: "axis", d: `M${atX(tick)} 162v4` }),
          svg("text", { class: "tick", x: atX(tick), y: 176, "text-anchor": "middle" }, `${tick} s`),
        ]),
        svg("text", { class: "label", x: 2, y: 10 }, "filled: transfer · hatched: left alone")));
      drawQueues();
      scene.table.replaceChildren(table("Visits in the order of their ends", ["Page", "host", "begin", "end", "left alone until"],
        crawl.visits.map(({ page, host, begin, end, until }) =>
          [`Page ${page + 1}`, host, `${begin.toFixed(2)} s`, `${end.toFixed(2)} s`, `${until.toFixed(2)} s`])));
    }

    function drawQueues() {
      const waiting = [...crawl.queued].sort((one, other) => crawl.before(one, other));
      const chip = (page, isBest) => [html("b", isBest ? { class: "best" } : {}, page + 1), " "];
      const levels = [...new Set(waiting.map((page) => crawl.frontQueueOf(page)))];
      const isReady = (host) => crawl.ready.get(host) <= crawl.now;
      const winner = crawl.best();
      const status = (host) => {
        const at = crawl.ready.get(host);
        return at === undefined ? "unknown" : at === Infinity ? "a transfer is under way" : isReady(host) ? "ready" : `ready at ${at.toFixed(1)} s`;
      };
      const list = (title, rows) => html("div", {}, html("h3", {}, title), html("ul", {}, rows.length ? rows : html("li", { class: "soft" }, "empty")));
      const later = HOSTS.filter((host) => crawl.ready.get(host) > crawl.now && crawl.ready.get(host) < Infinity)
        .sort((one, other) => crawl.ready.get(one) - crawl.ready.get(other));
      queues.replaceChildren(
        list("Front queues", levels.map((level) => html("li", {}, html("span", { class: "soft" }, `queue ${level}: `),
          waiting.filter((page) => crawl.frontQueueOf(page) === level).map((page) => chip(page, page === winner))))),
        list("Back queues", HOSTS.filter((host) => waiting.some((page) => hostOf[page] === host)).map((host) =>
          html("li", {}, `${host.split(".")[0]}: `, waiting.filter((page) => hostOf[page] === host).map((page) => chip(page, page === winner)),
            html("span", { class: "soft status" }, status(host))))),
        list("Heap of times", later.map((host) => html("li", {}, `${crawl.ready.get(host).toFixed(1)} s: ${host}`))));
    }

    scene.controls.append(slider("Factor", { min: 0, max: 20, step: 1, value: 10, shown: (value) => `× ${value}` },
      (value) => { factor = value; playing.stop(); reset(); }));
    const playing = player(scene, { step, reset, wait: () => 700 });
    reset();
  }

  // -- 6: draw a web

  const EXAMPLE = Opic.fromFragment("#web=18,20;50,12;82,22;84,70;50,86;16,68;50,48/1.6;2.6;6;6.2;6.3;0.6;0.4");

  function draw() {
    const scene = parts("draw");
    const form = scene.find("[data-form]");
    const text = form.querySelector("textarea");
    const wrong = form.querySelector(".wrong");
    const [defs, head] = arrowhead();
    const layer = svg("g", {});
    const canvas = svg("svg", { class: "canvas", viewBox: "0 0 360 300", role: "group", "aria-label": "The web that you draw" }, defs, layer);
    scene.figure.append(canvas);
    let drawn = Opic.fromFragment(location.hash) ?? EXAMPLE;
    let web, chosen = -1, drag = null;
    const at = ([x, y]) => [18 + x * 3.24, 22 + y * 2.56];
    const from = (x, y) => [(x - 18) / 3.24, (y - 22) / 2.56].map((each) => Math.min(Math.max(Math.round(each), 0), 100));

    /** The point of the picture under the pointer. */
    function pointed(event) {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(canvas.getScreenCTM().inverse());
      return from(point.x, point.y);
    }

    function changed(said) {
      web = new Opic.Web(drawn.links, {});
      text.value = Opic.toText(drawn.links);
      wrong.textContent = "";
      scene.said.textContent = said;
      if (said) {
        try {
          history.replaceState(null, "", `#${Opic.toFragment(drawn)}`);
        } catch {
          // Browsers may refuse this for files; the picture works without it.
        }
      }
      show();
    }

    function add(place) {
      if (drawn.places.length >= Opic.MOST_DRAWN) {
        scene.said.textContent = `There can be at most ${Opic.MOST_DRAWN} pages.`;
        return;
      }
      drawn = { places: [...drawn.places, place], links: [...drawn.links, []] };
      changed(`Page ${drawn.places.length} is new. It links to nothing yet.`);
    }

    function remove(page) {
      if (drawn.places.length < 2) {
        scene.said.textContent = "The last page stays.";
        return;
      }
      const keep = (_, each) => each !== page;
      const links = drawn.links.filter(keep)
        .map((targets) => targets.filter((each) => each !== page).map((each) => (each > page ? each - 1 : each)));
      drawn = { places: drawn.places.filter(keep), links };
      chosen = -1;
      changed(`Page ${page + 1} and its links are gone; later pages have moved up by one.`);
    }

    function choose(page) {
      if (chosen < 0) {
        chosen = page;
        scene.said.textContent = `Page ${page + 1} is chosen. Now choose the page that it shall link to.`;
        show();
      } else if (chosen === page) {
        chosen = -1;
        scene.said.textContent = "No page is chosen.";
        show();
      } else {
        const source = chosen;
        const had = drawn.links[source].includes(page);
        const links = drawn.links.map((targets, each) =>
          each !== source ? targets : had ? targets.filter((target) => target !== page) : [...targets, page]);
        drawn = { ...drawn, links };
        chosen = -1;
        changed(`Page ${source + 1} ${had ? "no longer links" : "now links"} to page ${page + 1}.`);
      }
      layer.querySelectorAll("g")[page]?.focus();
    }

    function move(page, place) {
      drawn = { ...drawn, places: drawn.places.map((each, index) => (index === page ? place : each)) };
    }

    function keydown(event, page) {
      const ways = { ArrowLeft: [-3, 0], ArrowRight: [3, 0], ArrowUp: [0, -3], ArrowDown: [0, 3] };
      if (event.key === "Enter" || event.key === " ") choose(page);
      else if (event.key === "Delete" || event.key === "Backspace") remove(page);
      else if (ways[event.key]) {
        const [x, y] = drawn.places[page].map((each, axis) => Math.min(Math.max(each + ways[event.key][axis], 0), 100));
        move(page, [x, y]);
        changed(`Page ${page + 1} is at ${x} % across and ${y} % down.`);
      } else return;
      event.preventDefault();
      layer.querySelectorAll("g")[Math.min(page, drawn.places.length - 1)]?.focus();
    }

    function show() {
      const spots = drawn.places.map(at);
      const parts = web.importance();
      const radius = (page) => 9 + 34 * Math.sqrt(parts[page]) * 0.6;
      layer.replaceChildren(
        ...drawn.links.flatMap((targets, page) => targets.map((target) => svg("path", {
          class: "edge", "marker-end": head, d: edgePath(spots[page], spots[target], Math.max(radius(target), 4), BEND),
        }))),
        ...spots.map(([x, y], page) => svg("g", {
          role: "button", tabindex: 0, transform: `translate(${x} ${y})`, class: page === chosen ? "chosen" : false,
          "aria-pressed": page === chosen,
          "aria-label": `Page ${page + 1}: importance ${share(parts[page])}, links to ${drawn.links[page].map((each) => each + 1).join(", ") || "nothing"}`,
          keydown: (event) => keydown(event, page),
          pointerdown: (event) => { drag = { page, moved: false, x: event.clientX, y: event.clientY }; event.stopPropagation(); },
        }, svg("circle", { class: "disc", r: radius(page) }), svg("text", { class: "name" }, page + 1))));
      const ranks = Opic.pagerank(drawn.links);
      scene.table.replaceChildren(table(`After ${plural(web.steps, "visit")}`,
        ["Page", "cash", "history", "visits", "importance", "PageRank"],
        web.pages.map((page, index) => [`Page ${index + 1}`, count(web.cash(index)), count(page.history), page.visits,
          share(parts[index]), share(ranks[index])])));
    }

    canvas.addEventListener("pointerdown", (event) => { drag = { page: -1, x: event.clientX, y: event.clientY, moved: false }; });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) return;
      drag.moved = drag.moved || Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 6;
      if (drag.moved && drag.page >= 0) {
        move(drag.page, pointed(event));
        show();
      }
    });
    window.addEventListener("pointerup", (event) => {
      const was = drag;
      drag = null;
      if (!was) return;
      if (was.page >= 0 && was.moved) changed(`Page ${was.page + 1} is moved.`);
      else if (was.page >= 0) choose(was.page);
      else if (!was.moved && canvas.contains(event.target)) add(pointed(event));
    });
    window.addEventListener("pointercancel", () => { drag = null; });

    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const links = Opic.fromText(text.value);
      if (typeof links === "string") {
        wrong.textContent = links;
        return;
      }
      // Pages that are there stay where they are; the others get places on a ring.
      const ring = links.map((_, page) => [50 + 42 * Math.sin((2 * Math.PI * page) / links.length), 50 - 42 * Math.cos((2 * Math.PI * page) / links.length)].map(Math.round));
      const places = links.length === drawn.places.length ? drawn.places : ring;
      drawn = { places, links };
      chosen = -1;
      changed(`The web has ${plural(links.length, "page")} and ${plural(links.flat().length, "link")}.`);
    });

    function step(times) {
      let moved;
      for (let n = 0; n < times; n += 1) moved = web.step();
      scene.said.textContent = times === 1 ? sentence(web, moved)
        : `After ${plural(web.steps, "visit")} the estimates are ${Opic.distance(web.importance(), Opic.pagerank(drawn.links)).toFixed(4)} from PageRank.`;
      show();
    }
    scene.controls.append(
      button("Step", () => step(1), { class: "main" }),
      button("100 steps", () => step(100)),
      button("Start again", () => changed("Every page has 1,000 coins again.")),
      button("Add a page", () => add([50, 50].map((each) => each + Math.round(30 * Math.sin(drawn.places.length * (each + 1)))))),
      button("Remove the chosen page", () => (chosen < 0 ? (scene.said.textContent = "Choose a page first.") : remove(chosen))),
      button("The example", () => { drawn = EXAMPLE; chosen = -1; changed("This is the example again."); }),
    );
    window.addEventListener("hashchange", () => {
      const other = Opic.fromFragment(location.hash);
      if (other) {
        drawn = other;
        chosen = -1;
        changed("This is the web of the address.");
      }
    });
    changed("");
    scene.said.textContent = "Discs grow with the estimated importance as the crawler visits the pages.";
    if (Opic.fromFragment(location.hash)) scene.section.scrollIntoView();
  }

  // -- 7: a crawl of the reader's own

  /** Bytes of a file that is read: a list of 30 pages has some 10,000. */
  const MOST_BYTES = 5_000_000;

  /** Where the dashboard that serves this page has the top pages of its crawl; empty on other sites. */
  const SERVED = document.querySelector('meta[name="top-pages"]')?.content ?? "";

  function mine() {
    const scene = parts("mine");
    const drop = scene.find("[data-drop]");
    const input = scene.find("input");

    async function open(file) {
      if (!file) return;
      try {
        show(file.size > MOST_BYTES
          ? `This file has ${count(file.size)} bytes; at most ${count(MOST_BYTES)} are read. “-n 30” makes a short one.`
          : Opic.fromTop(await file.text()));
      } catch {
        show("This file cannot be read.");
      }
    }

    /** Show the crawl of the dashboard that this page is a part of. */
    async function look() {
      scene.said.textContent = "Looking at all pages …";
      try {
        const response = await fetch(SERVED, { cache: "no-store" });
        const { pages, problem } = await response.json();
        show(problem || (pages.length ? Opic.fromTop(JSON.stringify(pages)) : "No page is known yet."));
      } catch {
        show("The crawl does not answer.");
      }
    }

    /** Show *rows*, or say why there are none. */
    function show(rows) {
      scene.table.replaceChildren();
      if (typeof rows === "string") {
        scene.said.textContent = rows;
        return;
      }
      const shown = rows.slice(0, Opic.MOST_ROWS);
      const widest = shown[0].importance || 1;
      const all = rows.reduce((sum, row) => sum + row.importance, 0);
      scene.said.textContent =
        `${plural(rows.length, "row")} ${rows.length > shown.length ? `(the first ${shown.length} are shown) ` : ""}with ` +
        `${share(all)} of all importance. A bar is importance: what is history in it is green, what is cash is gold.`;
      scene.table.replaceChildren(table("Most important first", ["Page or host", "importance", "drawn", "history", "visits"],
        shown.map(({ name, importance, cash, history, visits, state }) => {
          const whole = cash + history || 1;
          const width = (100 * importance) / widest;
          const known = (width * history) / whole;
          const picture = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
            svg("rect", { class: "bar-history", x: 0, y: 0, width: known, height: 10 }),
            svg("rect", { class: "bar-cash", x: known, y: 0, width: width - known, height: 10 }));
          const text = `${name.slice(0, 300)}${name.length > 300 ? "…" : ""}${["", "visited"].includes(state) ? "" : ` (${state.slice(0, 40)})`}`;
          return [html("td", { class: "name" }, visible(text)), share(importance, 3), html("td", {}, picture), share(history / whole), count(visits)];
        })));
    }

    if (SERVED) {
      scene.controls.append(button("Show this crawl", look, { class: "main" }));
      scene.find("[data-own]").hidden = false;
    }
    input.addEventListener("change", () => open(input.files[0]));
    for (const kind of ["dragenter", "dragover"]) {
      drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
    }
    for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => { event.preventDefault(); open(event.dataTransfer.files[0]); });
  }

  for (const scene of [coins, bank, next, change, hosts, draw, mine]) scene();
})();
