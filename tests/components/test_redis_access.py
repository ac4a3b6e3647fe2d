"""Ways to a server: TLS, a Unix socket, another database, and a user that may do no more than the docs say."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support import redis_server
from support.certificate import tls_of
from support.commands import run_aopic, said
from support.proxy import Proxy
from support.small_web import Follow, crawl
from support.waiting import wait_until

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage import Address

if redis_server.find_server() is None:
    pytest.skip(redis_server.WHY_NOT, allow_module_level=True)
pytest.importorskip("hiredis")
redis = pytest.importorskip("redis")

from scrapy_aopic.storage.redis.store import RedisStore

pytestmark = pytest.mark.slow


DOCS = Path(__file__).parents[2] / "docs" / "many-machines.md"
PASSWORD = "geheim"
PAGES: dict[str, Any] = {
    "http://a.test/": ["/1", *(f"http://h{n}.test/" for n in range(6))],
    "http://a.test/1": ["/"],
    **{f"http://h{n}.test/": ["http://a.test/"] for n in range(6)},
}


def user_of_docs() -> list[str]:
    """The command that makes the user of the docs."""
    found = re.search(r"^ACL SETUSER crawler .*$", DOCS.read_text(), re.MULTILINE)
    return found[0].replace("PASSWORD", PASSWORD).split()


async def test_a_user_may_crawl_with_no_more_rights_than_the_docs_give_it_and_by_tls(
    serve, server, client, tmp_path
):
    web = serve(PAGES)
    client.execute_command(*user_of_docs())
    tls, certificate = tls_of(tmp_path)
    parameters = {"password": PASSWORD, "ssl_ca_certs": str(certificate)}
    with Proxy(server.port, tls) as between:
        url = f"rediss://crawler@127.0.0.1:{between.port}/3"
        settings = {
            "SCHEDULER": "scrapy_aopic.Scheduler",
            "AOPIC_STORE": "redis",
            "AOPIC_SHARDS": 3,
            "AOPIC_DURABILITY": 50,
            "REDIS_URL": url,
            "REDIS_PARAMS": parameters,
        }
        await crawl(Follow, settings)
        assert sorted(web.asked) == sorted(PAGES)
        seeds = tmp_path / "seeds.txt"
        seeds.write_text("http://a.test/1\n")
        to = ("-s", f"REDIS_PARAMS={json.dumps(parameters)}")
        assert f"{len(PAGES)} pages" in said(tmp_path, "status", url, *to)
        assert "every invariant holds" in said(tmp_path, "check", url, *to)
        assert "http://h3.test/" in said(tmp_path, "top", url, *to)
        said(tmp_path, "why", url, "http://h3.test/", *to)
        said(tmp_path, "seed", url, seeds, *to)
        said(tmp_path, "backup", url, "copy", *to)
        said(tmp_path, "backup", "copy", f"{url}#aopic:again", *to)
        said(tmp_path, "salvage", f"{url}#aopic:again", "new", *to)
        assert "every invariant holds" in said(tmp_path, "check", f"{url}#aopic:again", *to)
        # Nothing is known of who has signed it.
        refused = run_aopic(
            "status", url, "-s", f'REDIS_PARAMS={{"password": "{PASSWORD}"}}', folder=tmp_path
        )
        assert refused.returncode != 0
        (sentence,) = refused.stderr.splitlines()
        assert sentence.startswith("Cannot connect to the store in rediss://127.0.0.1:")
        assert "certificate" in sentence
        assert PASSWORD not in sentence


def test_what_is_read_ahead_comes_by_tls_too(server, tmp_path):
    tls, certificate = tls_of(tmp_path)
    with Proxy(server.port, tls) as between:
        address = Address(
            "ahead",
            f"rediss://127.0.0.1:{between.port}/0",
            {"ssl_ca_certs": str(certificate)},
            lock_timeout=60.0,
        )
        with closing(RedisStore(address)) as store:
            rows: dict[bytes, bytes | None] = {b"%05d" % n: b"%d" % n * 20 for n in range(5_000)}
            store.write({Family.PAGES: rows}, sync=True)
            keys = list(rows)
            for _ in range(3):
                between.stall()
                request = store.prefetch(Family.PAGES, keys)
                assert not store.has_come(request)
                between.heal()
                while not store.has_come(request):
                    pass
                between.stall()
                assert store.get_many(Family.PAGES, keys) == list(rows.values())
                between.heal()


def test_a_unix_socket(tmp_path):
    with redis_server.Server(tmp_path, unixsocket="socket"):
        for _ in range(2):
            with closing(RedisStore(Address("job", f"unix://{tmp_path}/socket?db=2"))) as store:
                store.write({Family.PAGES: {b"a": b"1"}}, sync=True)
                assert store.get_many(Family.PAGES, [b"a"]) == [b"1"]
    with pytest.raises(StorageError, match="Cannot connect to the store in unix://"):
        RedisStore(Address("job", f"unix://{tmp_path}/socket?db=2"))


def test_a_sentinel_names_the_server(tmp_path):
    """As the docs say, by a function that makes the client."""
    port, binary = redis_server.free_port(), redis_server.find_server()
    assert binary is not None

    def client(**parameters: Any) -> Any:
        return redis.sentinel.Sentinel([("127.0.0.1", port)]).master_for("jobs", **parameters)

    def is_known() -> bool:
        with suppress(redis.exceptions.RedisError):
            return bool(client().ping())
        return False

    with redis_server.Server(tmp_path / "primary") as primary:
        settings = (
            f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor jobs 127.0.0.1 {primary.port} 1\n"
        )
        (tmp_path / "conf").write_text(settings)
        sentinel = subprocess.Popen([binary, str(tmp_path / "conf"), "--sentinel"], stdout=subprocess.DEVNULL)
        try:
            wait_until(is_known, 60)
            with closing(RedisStore(Address("job", parameters={"redis_cls": client}))) as store:
                store.write({Family.PAGES: {b"a": b"1"}}, sync=True)
            with closing(RedisStore(Address("job", primary.url))) as store:
                assert store.get_many(Family.PAGES, [b"a"]) == [b"1"]
            url = f"redis://127.0.0.1:{port}/0"
            with pytest.raises(StorageError, match="but a sentinel, say: let REDIS_URL name one"):
                RedisStore(Address("job", url))
            assert "but a sentinel, say" in run_aopic("status", url, folder=tmp_path).stderr
        finally:
            sentinel.kill()
            sentinel.wait()
