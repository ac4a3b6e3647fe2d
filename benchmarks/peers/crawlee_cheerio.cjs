// Crawlee for Node: node crawlee_cheerio.cjs PAGES SEEDS CONCURRENCY [--keep], in a folder where it may store things.
const { readFileSync } = require("node:fs");
const { CheerioCrawler, Configuration, LogLevel, log } = require("@crawlee/cheerio");

async function main() {
  const [pages, seeds, concurrency, keep] = process.argv.slice(2);
  log.setLevel(LogLevel.ERROR);
  const crawler = new CheerioCrawler(
    {
      minConcurrency: Number(concurrency),
      maxConcurrency: Number(concurrency),
      maxRequestsPerCrawl: Number(pages),
      async requestHandler({ enqueueLinks }) {
        await enqueueLinks({ strategy: "all" });
      },
    },
    new Configuration({ persistStorage: keep !== undefined }),
  );
  const found = await crawler.run(readFileSync(seeds, "utf8").split(/\s+/).filter(Boolean));
  console.log(JSON.stringify({ pages: found.requestsFinished }));
}

main();
