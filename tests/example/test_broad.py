"""The example project, run as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from demo_web.server_log import audit, read_log
from support import processes

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2] / "example_project"


def crawl(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "scrapy", "crawl", "broad", *arguments]
    return processes.run_and_read(line, cwd=PROJECT, env={**os.environ, **environment}, timeout=400)


def test_without_seeds_it_crawls_the_demo_web_and_shows_what_matters(tmp_path):
    done = crawl("-s", f"JOBDIR={tmp_path}", "-s", "CLOSESPIDER_PAGECOUNT=150")
    assert done.returncode == 0, done.stderr
    assert "The most important pages" in done.stdout
    assert "every invariant holds" in done.stdout
    assert "pages a second" in done.stdout
    assert done.stdout.count("http://") == 21  # pages, and one of them as an example of why
    assert "Traceback" not in done.stderr


def test_with_seeds_it_crawls_every_host_it_meets_or_stays_in_domains(tmp_path):
    import demo_web

    web = demo_web.DemoWeb(n_hosts=20, n_pages=200)
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("\n".join(web.seeds), encoding="utf-8")
    domain = web.seeds[0].split("/")[2]
    for arguments, name in (([], "all"), (["-a", f"domains={domain}"], "one")):
        log = tmp_path / f"{name}.tsv"
        with demo_web.served(n_hosts=20, n_pages=200, log=log) as proxy:
            settings = ["-s", f"JOBDIR={tmp_path / name}", "-s", "CLOSESPIDER_PAGECOUNT=60"]
            settings += ["-s", f"CLOSESPIDER_TIMEOUT={300 if name == 'all' else 15}"]
            done = crawl("-a", f"seeds={seeds}", *arguments, *settings, http_proxy=proxy)
        assert done.returncode == 0, done.stderr
        entries = read_log(log)
        hosts = {entry.host for entry in entries}
        assert len(hosts) > 5 if name == "all" else hosts <= {url.split("/")[2] for url in web.seeds}
        polite = audit(entries, 10, cap=60)
        assert (polite.n_overlaps, polite.n_short_gaps) == (0, 0), polite


@pytest.mark.parametrize("seeds", ["nowhere.txt", "ftp"])
def test_seeds_that_are_none_are_refused_with_one_sentence(tmp_path, seeds):
    done = crawl("-a", f"seeds={seeds}", "-s", f"JOBDIR={tmp_path}")
    assert done.returncode != 0
    assert f"seeds ('{seeds}') must be URLs" in done.stderr + done.stdout
