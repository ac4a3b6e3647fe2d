// spider-rs for Node: node spider_rs.cjs PAGES SEEDS. It crawls one site at a time, so each seed gets its part of the pages.
const { readFileSync } = require("node:fs");
const { Website } = require("@spider-rs/spider-rs");

async function main() {
  const [pages, seeds] = process.argv.slice(2);
  const urls = readFileSync(seeds, "utf8").split(/\s+/).filter(Boolean);
  let bytes = 0;
  const crawls = urls.map(async (url) => {
    const site = new Website(url).withBudget({ "*": Math.ceil(Number(pages) / urls.length) }).build();
    await site.crawl((_, page) => {
      bytes += page.content.length;
    });
    return site.size;
  });
  const sizes = await Promise.all(crawls);
  console.log(JSON.stringify({ pages: sizes.reduce((sum, size) => sum + size, 0), bytes }));
  process.exit(0); // its threads wait for more pages
}

main();
