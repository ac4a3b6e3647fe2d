/* Drives docs/opic/ledger.js by lists of actions, for tests/docs/test_opic.py. Units travel as texts. */
"use strict";

const units = (text) => (text === null ? null : BigInt(text));

function stateOf(ledger, pages) {
  return {
    totals: [ledger.virtual, ledger.distributed, ledger.virtualDistributed, ledger.history, ...ledger.handed].map(String),
    members: [...ledger.members],
    turn: ledger.turn,
    pages: pages.map((page) => [
      String(page.cash),
      String(ledger.cash(page)),
      String(page.history),
      page.visits,
      page.visitedTurn,
      String(ledger.weight(page, true)),
      String(ledger.weight(page)),
      Opic.frontQueue(ledger.cash(page)),
    ]),
  };
}

const ACTIONS = {
  admit({ ledger, pages }, { isChosen }) {
    pages.push(new Opic.Page(isChosen));
    ledger.admit(pages[pages.length - 1]);
  },
  grant: ({ ledger, pages }, { page, worth }) => String(ledger.grant(pages[page], worth)),
  spend: ({ ledger }, { rival }) => ledger.spendVirtual(units(rival)) > 0n,
  fail: ({ ledger, pages }, { page }) => String(ledger.fail(pages[page])),
  merge({ ledger, pages }, { page, other }) {
    ledger.merge(pages[page], pages[other]);
  },
  visit({ ledger, pages }, { page, spent, targets, weights, nLinks, now, whole, domainVisited, isPlain }) {
    const how = { weight: BigInt(whole), domainVisited, isPlain };
    const paid = ledger.visit(pages[page], units(spent), weights.map(BigInt), nLinks, now, how);
    targets.forEach((target, index) => {
      ledger.catchUp(pages[target]);
      pages[target].cash += paid[index];
    });
    return paid.map(String);
  },
};

/** What each action of each case gives, and the state of the ledger after it. */
const driveLedgers = (cases) =>
  cases.map(({ how, window: [size, kind, clock], actions }) => {
    const window = new Opic.Window(size, kind, clock);
    const ledger = new Opic.Ledger({ ...how, window });
    const pages = [];
    return actions.map(([name, given]) => {
      const result = ACTIONS[name]({ ledger, pages }, given) ?? null;
      return [result, stateOf(ledger, pages)];
    });
  });

/** What each step of a web moves, the state after it, and at the end its importances. */
const driveWebs = (cases) =>
  cases.map(({ links, policy, steps, seed, spending }) => {
    const web = new Opic.Web(links, { seed, spending });
    const states = [];
    for (let step = 0; step < steps; step += 1) {
      const { page, spent, targets, paid, toVirtual, handed } = web.step(policy, step);
      const moved = [page, String(spent), targets, paid.map(String), String(toVirtual), String(handed)];
      states.push([moved, stateOf(web.ledger, web.pages)]);
    }
    return { states, importance: web.importance(), turns: web.turns, pagerank: Opic.pagerank(links) };
  });

/** The visits of polite crawls, and the cash at their ends. */
const driveCrawls = (cases) =>
  cases.map(({ links, hosts, transfers, seeds, how, fetches }) => {
    const crawl = new Opic.Crawl(links, hosts, transfers, seeds, how);
    while (crawl.visits.length < fetches && crawl.step()) continue;
    return {
      visits: crawl.visits.map(({ page, begin, end, until }) => [page, begin, end, until]),
      pages: [...crawl.pages].map(([number, page]) => [number, String(crawl.ledger.cash(page)), String(page.history)]),
      virtual: String(crawl.ledger.virtual),
    };
  });

/** Texts that readers bring, read. */
const read = (cases) => cases.map(([what, text]) => Opic[what](text));

/** Drawn webs as fragments of addresses, and read from them again. */
const writeAndRead = (cases) => cases.map((web) => [Opic.toFragment(web), Opic.fromFragment(Opic.toFragment(web))]);
