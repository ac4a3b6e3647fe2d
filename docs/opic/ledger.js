/* The logic of the explainer: the ledger of scrapy_aopic, small webs that use it, and what their scenes measure.
 *
 * Rule 1: whatever is called as in scrapy_aopic/core does the same, to the unit. tests/docs/test_opic.py drives both.
 * Rule 2: no document, no clock, no chance that is not an argument; so it runs under any engine.
 * Rule 3: units are BigInt, as a product of two amounts has more than the 53 bits of a double. Where the core has a
 *   float, this has a double, with the same operations in the same order.
 *
 * A classic script, no module: browsers refuse to load modules from file:// addresses.
 */
"use strict";

const Opic = (() => {
  // -- ledger (scrapy_aopic/core/ledger.py, spending.py)

  /** All cash of a job, in units. */
  const TOTAL = (1n << 53n) - 1n;

  /** Part of each distribution that goes to the virtual page by default. */
  const SHARE = 0.15;

  /** Seeds' worth of cash that the virtual page adds to a distribution by default. */
  const ENDOWMENT = 6;

  /** A seed gets 2**-24 of the virtual page. */
  const SEED_SHIFT = 24n;

  /** Visited pages of a registered domain after which its pages are endowed with half as much. */
  const ENDOWMENT_HALF_LIFE = 10;

  /** Classes of pages: visited or not, times chosen or not. */
  const N_PAGE_CLASSES = 4;

  /** Classes among which the virtual page spends evenly, by policy; an endowment has none. */
  const SPENDING = { endowment: [], unvisited: [0, 2], visited: [1, 3], chosen: [2, 3] };

  /** *real* without its fraction, as a whole number. */
  const whole = (real) => BigInt(Math.trunc(real));

  const sum = (units) => units.reduce((all, each) => all + each, 0n);
  const least = (one, other) => (one < other ? one : other);

  /** *real* with that many binary *digits*; a tie goes to the even neighbour. */
  function rounded(real, digits) {
    if (!real) return real;
    let exponent = Math.floor(Math.log2(Math.abs(real))) + 1;
    let mantissa = real / 2 ** exponent;
    if (Math.abs(mantissa) >= 1) [mantissa, exponent] = [mantissa / 2, exponent + 1];
    if (Math.abs(mantissa) < 0.5) [mantissa, exponent] = [mantissa * 2, exponent - 1];
    const scaled = mantissa * 2 ** digits;
    const below = Math.floor(scaled);
    const up = scaled - below > 0.5 || (scaled - below === 0.5 && below % 2 !== 0);
    return (below + (up ? 1 : 0)) * 2 ** (exponent - digits);
  }

  /** How much of a page's past counts (scrapy_aopic/core/window.py). */
  class Window {
    /**
     * @param {number} size length T in units of *clock*; for "variable" the number of visits
     * @param {string} kind "interpolation", "fixed", "variable" or "ewma"
     * @param {string} clock "turns" or "seconds"
     */
    constructor(size = 8, kind = "interpolation", clock = "turns") {
      Object.assign(this, { size, kind, clock });
    }

    /** History of *page* once it spends *spent* units at virtual time *turn* and *now* (seconds). */
    history(page, spent, turn, now, newcomer = -1n) {
      if (!page.visits) return newcomer >= 0n ? newcomer : spent;
      const [instant, last] = this.#instants(page, turn, now);
      const passed = (instant - last) / this.size;
      const known = Number(page.history);
      if (this.kind === "interpolation") {
        return passed < 1 ? whole(known * (1 - passed)) + spent : whole(Number(spent) / passed);
      }
      if (this.kind === "ewma") {
        const part = -Math.expm1(-passed);
        return whole(known * (1 - part)) + whole(Number(spent) * (passed ? part / passed : 1));
      }
      const marks = this.#marks(page, spent, instant, last);
      const units = sum(marks.slice(1).map((mark) => mark[1]));
      const begin = marks[0][0];
      if (this.kind === "variable") {
        return instant > begin ? whole((Number(units) * this.size) / (instant - begin)) : page.history + spent;
      }
      const [until, oldest] = marks[1];
      const outside = Math.max(instant - this.size - begin, 0);
      return outside ? units - whole(Number(oldest) * (outside / (until - begin))) : units;
    }

    /** Let *page* have spent *spent* units. */
    visit(page, spent, turn, now, newcomer = -1n) {
      turn = rounded(turn, 32);
      now = rounded(now, 40);
      const history = this.history(page, spent, turn, now, newcomer);
      const keeps = page.visits && (this.kind === "fixed" || this.kind === "variable");
      page.marks = keeps ? this.#marks(page, spent, ...this.#instants(page, turn, now)) : [];
      page.history = history;
      page.visits += 1;
      page.visitedTurn = turn;
      page.visitedAt = now;
    }

    #instants(page, turn, now) {
      if (this.clock === "turns" || this.kind === "variable") {
        return [Math.max(turn, page.visitedTurn), page.visitedTurn];
      }
      return [Math.max(now, page.visitedAt), page.visitedAt];
    }

    #marks(page, spent, instant, last) {
      const k = Math.trunc(this.size);
      let marks = page.marks;
      if (!marks.length || marks[marks.length - 1][0] !== last) {
        marks =
          this.kind === "variable"
            ? [[last - 1, 0n], [last, page.history / BigInt(k)]]
            : [[last - this.size, 0n], [last, page.history]];
      }
      marks = [...marks, [instant, spent]];
      if (this.kind === "variable") return marks.slice(-k - 1);
      let first = 0;
      while (first + 2 < marks.length && marks[first + 1][0] <= instant - this.size) first += 1;
      return marks.slice(first);
    }
  }

  /** What the ledger knows of a page. */
  class Page {
    constructor(isChosen = false) {
      this.isChosen = isChosen;
      this.cash = 0n;
      this.handed = 0n;
      this.history = 0n;
      this.visits = 0;
      this.visitedTurn = 0;
      this.visitedAt = 0;
      this.marks = [];
      this.isFailed = false;
      this.isMerged = false;
    }

    get class() {
      return (this.visits > 0 ? 1 : 0) + (this.isChosen ? 2 : 0);
    }

    get isMember() {
      return !this.isFailed && !this.isMerged;
    }
  }

  /** Moves cash between pages and the virtual page; the sum of all cash never changes. */
  class Ledger {
    /**
     * @param {object} how virtual: units that the virtual page holds at first; total: all units; window; share: part of
     *   each distribution that goes to the virtual page, null for 1/(links + 1); endowment: in seeds' worth; spending:
     *   a name in SPENDING; averages: whether a page's first history is the average of its class
     */
    constructor({ virtual = TOTAL, total = TOTAL, window = new Window(), share = SHARE, endowment = ENDOWMENT,
      spending = "endowment", averages = false } = {}) {
      this.total = total;
      this.virtual = virtual;
      this.distributed = 0n;
      this.virtualDistributed = 0n;
      this.history = 0n;
      this.turn = 0;
      this.handed = Array(N_PAGE_CLASSES).fill(0n);
      this.members = Array(N_PAGE_CLASSES).fill(0);
      this.newcomers = [0n, 0n];
      this.window = window;
      this.share = share;
      this.averages = averages;
      this.classes = SPENDING[spending];
      this.endowment = this.classes.length ? 0 : endowment;
    }

    /** Units that the pages hold together. */
    get held() {
      return this.total - this.virtual;
    }

    owed(page) {
      return page.isMember ? this.handed[page.class] - page.handed : 0n;
    }

    admit(page, cash = 0n) {
      page.cash = cash;
      page.handed = this.handed[page.class];
      this.members[page.class] += 1;
    }

    catchUp(page) {
      const owed = this.owed(page);
      page.cash += owed;
      page.handed += owed;
    }

    cash(page) {
      return page.cash + this.owed(page);
    }

    grant(page, worth = 1) {
      const units = least(whole(Number(this.virtual >> SEED_SHIFT) * worth), this.virtual / 2n);
      this.virtual -= units;
      page.cash += units;
      return units;
    }

    /**
     * Let *page* distribute *spent* of its cash over its links, of which those with *weights* are paid.
     * @returns {bigint[]} units for each of them; the caller credits them
     */
    visit(page, spent, weights, nLinks, now, { weight = 0n, domainVisited = null, isPlain = true } = {}) {
      this.catchUp(page);
      page.cash -= spent;
      this.#passTime(spent);
      this.distributed += spent;
      let amount = spent;
      let paid = weights.map(() => 0n);
      if (weights.some((each) => each)) {
        if (this.endowment && domainVisited !== null) amount += this.#endow(domainVisited);
        const share = this.share !== null ? this.share : 1 / (nLinks + 1);
        const shared = amount - whole(Number(amount) * share);
        const all = weight || BigInt(nLinks);
        paid = weights.map((each) => (shared * each) / all);
      }
      this.virtual += amount - sum(paid);
      this.#remember(page, spent, now, isPlain);
      return paid;
    }

    #passTime(units) {
      const inTurn = this.classes.length ? this.total : this.held;
      this.turn += inTurn ? Number(units) / Number(inTurn) : 0;
    }

    #endow(visited) {
      const reserve = Number(this.virtual >> SEED_SHIFT);
      const units = whole((reserve * this.endowment) / (1 + visited / ENDOWMENT_HALF_LIFE));
      this.virtual -= units;
      this.virtualDistributed += units;
      return units;
    }

    #remember(page, spent, now, isPlain) {
      if (!page.visits) this.members[page.class] -= 1;
      this.history -= page.history;
      this.window.visit(page, spent, this.turn, now, isPlain ? this.#newcomer() : -1n);
      this.history += page.history;
      if (page.visits === 1) this.admit(page, page.cash);
      else if (page.visits === 2 && isPlain) {
        this.newcomers = [this.newcomers[0] + page.history, this.newcomers[1] + 1n];
      }
    }

    #newcomer() {
      const [known, n] = this.newcomers;
      const visited = BigInt(this.members[1] + this.members[3]);
      return this.averages && n && 2n * n >= visited ? known / n : -1n;
    }

    /** Let a visited page end for good: its cash goes to the virtual page, and its history ends if pages come back. */
    fail(page) {
      this.catchUp(page);
      const units = page.cash;
      if (this.averages) {
        this.history -= page.history;
        page.history = 0n;
        page.marks = [];
      }
      page.cash = 0n;
      this.virtual += units;
      this.members[page.class] -= 1;
      page.isFailed = true;
      return units;
    }

    /** Move all cash and history of *page* to *other*, both of them visited. */
    merge(page, other) {
      this.catchUp(page);
      this.catchUp(other);
      other.cash += page.cash;
      other.history += page.history;
      other.marks = [];
      page.marks = [];
      page.cash = page.history = 0n;
      this.members[page.class] -= 1;
      page.isMerged = true;
    }

    /** Let the virtual page hand cash to its classes if it holds more than *rival* units; returns units for each. */
    spendVirtual(rival) {
      const n = BigInt(this.classes.reduce((all, each) => all + this.members[each], 0));
      const each = n && this.virtual > rival ? this.virtual / n : 0n;
      if (!each) return 0n;
      const spent = each * n;
      this.#passTime(spent);
      this.virtual -= spent;
      this.virtualDistributed += spent;
      for (const which of this.classes) this.handed[which] += each;
      return each;
    }

    /** Units that *page* counts for: by the window from its second visit on, or all that it ever got. */
    weight(page, byWindow = false) {
      return byWindow && page.visits > 1 ? page.history : page.history + this.cash(page);
    }
  }

  // -- order and politeness (scrapy_aopic/core/order.py, politeness.py)

  /** Front queue of a page with *cash* units: its binary digits. */
  const frontQueue = (cash) => (cash ? Math.min(cash.toString(2).length, 63) : 0);

  /** Seconds to leave a host alone after a transfer of *transfer* seconds. */
  const gapAfter = (transfer, factor, minGap = 0, maxGap = 60) =>
    Math.min(Math.max(factor * Math.max(transfer, 0), minGap), Math.max(maxGap, minGap));

  /** Evenly distributed numbers, 0 to 1, the same for the same *seed* (mulberry32). */
  function chances(seed) {
    let state = seed | 0;
    return () => {
      state = (state + 0x6d2b79f5) | 0;
      let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
      mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
    };
  }

  // -- webs whose pages are visited again and again

  /** The paper's three ways to choose the next page. */
  const POLICIES = {
    /** The page with the most cash; of several the first. */
    greedy: (web) => web.pages.reduce((best, _, page) => (web.cash(page) > web.cash(best) ? page : best), 0),
    /** Any page with the same chance. */
    random: (web) => Math.floor(web.chance() * web.pages.length),
    /** All pages in turn. */
    cycle: (web) => web.steps % web.pages.length,
  };

  /** A small web and its ledger; pages are numbers from 0. */
  class Web {
    /**
     * @param {number[][]} links pages that each page links to
     * @param {object} how coins: units that each page holds at first; seed: of the random policy; bank: whether there is
     *   a virtual page; and what Ledger takes
     */
    constructor(links, { coins = 1000n, seed = 1, bank = true, share = SHARE, window = new Window(1e18),
      spending = "chosen", ...how } = {}) {
      const total = coins * BigInt(links.length);
      this.links = links.map((targets) => [...targets]);
      this.bank = bank;
      this.ledger = new Ledger({ total, virtual: 0n, share: bank ? share : 0, window, spending, ...how });
      this.pages = links.map(() => new Page(true));
      for (const page of this.pages) this.ledger.admit(page, coins);
      this.chance = chances(seed);
      this.steps = 0;
      this.lost = 0n;
    }

    cash(page) {
      return this.ledger.cash(this.pages[page]);
    }

    /** Distinct pages that *page* links to, without itself. */
    targets(page) {
      return [...new Set(this.links[page])].filter((target) => target !== page);
    }

    /** Visit *page*; returns what moved. */
    visit(page, now = 0) {
      const { ledger } = this;
      const visited = this.pages[page];
      ledger.catchUp(visited);
      const handed = this.bank ? ledger.spendVirtual(visited.cash) : 0n;
      ledger.catchUp(visited);
      const spent = visited.cash;
      const targets = this.targets(page);
      const before = ledger.virtual;
      const paid = ledger.visit(visited, spent, targets.map(() => 1n), targets.length, now);
      targets.forEach((target, index) => {
        ledger.catchUp(this.pages[target]);
        this.pages[target].cash += paid[index];
      });
      const toVirtual = ledger.virtual - before;
      if (!this.bank) {
        // A web without a bank is what the ledger would be without its rule: what has nowhere to go is gone.
        ledger.virtual = before;
        ledger.total -= toVirtual;
        this.lost += toVirtual;
      }
      this.steps += 1;
      return { page, spent, targets, paid, toVirtual, handed };
    }

    /** Visit the page that *policy* chooses. */
    step(policy = "greedy", now = 0) {
      return this.visit(POLICIES[policy](this), now);
    }

    /** Importance of each page as a part of 1, by all cash that it ever had, or by what the window counts. */
    importance(byWindow = false) {
      const weights = this.pages.map((page) => Number(this.ledger.weight(page, byWindow)));
      const all = weights.reduce((one, other) => one + other, 0);
      return weights.map((each) => (all ? each / all : 0));
    }

    /** |H| in units of all cash: how often all of it was distributed. */
    get turns() {
      const { distributed, virtualDistributed, total } = this.ledger;
      return total ? Number(distributed + virtualDistributed) / Number(total) : 0;
    }
  }

  /** PageRank of each page; a page without links counts as one that links to all. */
  function pagerank(links, damping = 0.85) {
    const n = links.length;
    const targets = links.map((each, page) => [...new Set(each)].filter((target) => target !== page));
    let ranks = Array(n).fill(1 / n);
    for (let round = 0; round < 1000; round += 1) {
      const next = Array(n).fill(0);
      let dangling = 0;
      targets.forEach((each, page) => {
        if (!each.length) dangling += ranks[page];
        for (const target of each) next[target] += (damping * ranks[page]) / each.length;
      });
      const all = (1 - damping) * (1 - dangling) + dangling;
      const result = next.map((rank) => rank + all / n);
      const moved = result.reduce((far, rank, page) => far + Math.abs(rank - ranks[page]), 0);
      ranks = result;
      if (moved < 1e-15) break;
    }
    return ranks;
  }

  /** Links of *n* pages of which few get many: a page is linked to in proportion to the links that it has already. */
  function randomLinks(n, seed) {
    const chance = chances(seed);
    const found = Array(n).fill(1);
    return Array.from({ length: n }, (_, page) => {
      const targets = new Set();
      const most = Math.min(1 + Math.floor(chance() ** 2 * 5), n - 1);
      while (targets.size < most) {
        let left = chance() * found.reduce((all, each) => all + each, 0);
        const target = Math.max(found.findIndex((each) => (left -= each) < 0), 0);
        if (target !== page) targets.add(target);
      }
      for (const target of targets) found[target] += 1;
      return [...targets];
    });
  }

  /** Sum of the absolute differences of two lists of shares: 0 if they are equal, at most 2. */
  const distance = (one, other) => one.reduce((far, each, index) => far + Math.abs(each - other[index]), 0);

  // -- a polite crawl that visits each page once

  /**
   * A crawl on a virtual clock: AOPIC_ORDER = "opic", and hosts that are left alone after each transfer.
   *
   * A page waits in the front queue of its cash; of the hosts that are ready, the one with the best page is next.
   */
  class Crawl {
    /**
     * @param {number[][]} links pages that each page links to
     * @param {string[]} hosts host of each page
     * @param {number[]} transfers seconds that the transfer of each page takes
     * @param {number[]} seeds
     * @param {object} how factor, minGap, maxGap: the gap after a transfer; connections; and what Ledger takes
     */
    constructor(links, hosts, transfers, seeds, { factor = 10, minGap = 0, maxGap = 60, connections = 1, ...how } = {}) {
      Object.assign(this, { links, hosts, transfers, factor, minGap, maxGap, connections });
      this.ledger = new Ledger({ endowment: 0, ...how });
      this.pages = new Map(); // those that are known, with the order in which they were found
      this.queued = new Set();
      this.flying = [];
      this.visits = [];
      this.ready = new Map(); // when each host may be requested again; Infinity while it is
      this.now = 0;
      for (const seed of seeds) {
        this.ledger.grant(this.#find(seed, 0n));
      }
    }

    #find(page, cash) {
      const found = new Page();
      this.ledger.admit(found, cash);
      found.place = this.pages.size;
      this.pages.set(page, found);
      this.queued.add(page);
      if (!this.ready.has(this.hosts[page])) this.ready.set(this.hosts[page], 0);
      return found;
    }

    frontQueueOf(page) {
      return frontQueue(this.ledger.cash(this.pages.get(page)));
    }

    /** Whether page *one* comes before page *other*, hosts apart. */
    before(one, other) {
      return (
        this.frontQueueOf(other) - this.frontQueueOf(one) || this.pages.get(one).place - this.pages.get(other).place
      );
    }

    /** The best page of a host that may be requested now; undefined if there is none. */
    best() {
      return [...this.queued]
        .filter((page) => this.ready.get(this.hosts[page]) <= this.now)
        .sort((one, other) => this.before(one, other))[0];
    }

    /** Begin whatever may begin, then let time pass until a transfer has ended; returns whether anything happened. */
    step() {
      for (;;) {
        while (this.flying.length < this.connections) {
          const page = this.best();
          if (page === undefined) break;
          this.queued.delete(page);
          this.ready.set(this.hosts[page], Infinity);
          const cash = this.ledger.cash(this.pages.get(page));
          const end = this.now + this.transfers[page];
          this.flying.push({ page, begin: this.now, end, cash, number: this.visits.length + this.flying.length });
        }
        this.flying.sort((one, other) => one.end - other.end || one.number - other.number);
        const waits = [...this.queued].map((page) => this.ready.get(this.hosts[page]));
        const free = this.flying.length < this.connections;
        const wake = free ? Math.min(...waits, Infinity) : Infinity;
        const first = this.flying.length ? this.flying[0].end : Infinity;
        const instant = Math.min(wake, first);
        if (instant === Infinity) return false;
        this.now = instant;
        if (first <= instant) {
          while (this.flying.length && this.flying[0].end <= this.now) this.#end(this.flying.shift());
          return true;
        }
      }
    }

    #end({ page, begin, end, cash }) {
      const gap = gapAfter(end - begin, this.factor, this.minGap, this.maxGap);
      this.ready.set(this.hosts[page], end + gap);
      const targets = [...new Set(this.links[page])].filter((target) => target !== page);
      const paid = this.ledger.visit(this.pages.get(page), cash, targets.map(() => 1n), targets.length, this.now);
      targets.forEach((target, index) => {
        const known = this.pages.get(target);
        if (known) known.cash += paid[index];
        else this.#find(target, paid[index]);
      });
      this.visits.push({ page, host: this.hosts[page], begin, end, until: end + gap });
    }
  }

  // -- webs that readers draw

  /** Pages that a drawn web may have. */
  const MOST_DRAWN = 30;

  /** The fragment of an address that holds a drawn web: places in percent, then links. */
  const toFragment = ({ places, links }) =>
    `web=${places.map(([x, y]) => `${Math.round(x)},${Math.round(y)}`).join(";")}/` +
    links.map((targets) => targets.join(".")).join(";");

  /** The web that *fragment* holds, null if it holds none. Whatever it is, the result has sound pages and links. */
  function fromFragment(fragment) {
    const found = /^#?web=([0-9,;]{3,400})\/([0-9.;]{0,4000})$/.exec(fragment);
    if (!found) return null;
    const places = found[1].split(";").map((place) => place.split(",").map(Number));
    if (places.length > MOST_DRAWN) return null;
    if (!places.every((place) => place.length === 2 && place.every((each) => each >= 0 && each <= 100))) return null;
    const rows = found[2].split(";");
    if (rows.length !== places.length) return null;
    const links = rows.map((row, page) =>
      [...new Set(row.split(".").filter(Boolean).map(Number))].filter(
        (target) => target < places.length && target !== page,
      ),
    );
    return { places, links };
  }

  /** Links as a reader writes them, a line each: "1: 2 3". Returns the links, or a sentence that says what is wrong. */
  function fromText(text) {
    const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
    if (!lines.length) return "Write at least one line, such as “1: 2 3”.";
    const rows = [];
    for (const line of lines) {
      const found = /^(\d{1,3})\s*:\s*((?:\d{1,3}[\s,]*)*)$/.exec(line);
      if (!found) return `“${line.slice(0, 40)}” is not of the form “1: 2 3”.`;
      rows.push([Number(found[1]), (found[2].match(/\d+/g) || []).map(Number)]);
    }
    const n = Math.max(...rows.flatMap(([page, targets]) => [page, ...targets]));
    if (n > MOST_DRAWN) return `There can be at most ${MOST_DRAWN} pages, and page ${n} is one too many.`;
    if (rows.some(([page, targets]) => page < 1 || targets.some((target) => target < 1))) {
      return "Pages are numbered from 1.";
    }
    const links = Array.from({ length: n }, () => []);
    for (const [page, targets] of rows) {
      links[page - 1].push(...targets.map((target) => target - 1).filter((target) => target !== page - 1));
    }
    return links.map((targets) => [...new Set(targets)]);
  }

  const toText = (links) =>
    links.map((targets, page) => `${page + 1}: ${targets.map((target) => target + 1).join(" ")}`.trimEnd()).join("\n");

  // -- a crawl of the reader's own

  /** Rows of a file that are shown. */
  const MOST_ROWS = 30;

  /**
   * The pages or hosts that `scrapy aopic top JOBDIR --json` wrote, best first.
   * @returns {object[] | string} name, importance, cash, history, visits; or a sentence that says what is wrong
   */
  function fromTop(text) {
    const made = "“scrapy aopic top JOBDIR --json > top.json” makes one that can be read.";
    let rows;
    try {
      // Cash and history may have more digits than a double holds; only their proportions are shown.
      rows = JSON.parse(text);
    } catch {
      return `This file is not JSON. ${made}`;
    }
    if (!Array.isArray(rows) || !rows.length) return `This file has no list of pages. ${made}`;
    const amount = (value) => (typeof value === "number" && value >= 0 && value < Infinity ? value : NaN);
    const found = [];
    for (const row of rows) {
      const name = row && typeof row === "object" ? (row.url ?? row.host) : undefined;
      const [importance, cash, history, visits] = ["importance", "cash", "history", "visits"].map((key) =>
        amount(row?.[key] ?? (key === "visits" ? row?.visited : undefined)),
      );
      if (typeof name !== "string" || [importance, cash, history, visits].some(Number.isNaN) || importance > 1) {
        return `Row ${found.length + 1} of this file is no page. ${made}`;
      }
      const said = row.url === undefined ? [] : [row.outcome, row.state]; // hosts have states of another kind
      const state = said.find((each) => typeof each === "string" && each) ?? "";
      found.push({ name, importance, cash, history, visits, state });
    }
    return found.sort((one, other) => other.importance - one.importance);
  }

  return {
    TOTAL, SHARE, ENDOWMENT, SEED_SHIFT, ENDOWMENT_HALF_LIFE, SPENDING, POLICIES, MOST_DRAWN, MOST_ROWS,
    Window, Page, Ledger, Web, Crawl,
    rounded, frontQueue, gapAfter, chances, pagerank, randomLinks, distance, toFragment, fromFragment, fromText, toText, fromTop,
  };
})();

if (typeof module !== "undefined") module.exports = Opic;
