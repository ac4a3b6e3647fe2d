"""What was asked for and is not done is said: seeds that are dropped, crawls that fetch nothing, names that mean nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scrapy.cmdline import execute
from scrapy.settings import Settings
from support.small_web import Web
from support.stored_jobs import make_job

from scrapy_aopic.exceptions import SettingError
from scrapy_aopic.spiders import check_option

Serve = Callable[[dict[str, Any]], Web]

CONTACT = ("--contact", "https://example.org/crawler")
FAST = ("-s", "AOPIC_POLITENESS_FACTOR=0", "-s", "AOPIC_BACKOFF=0")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        execute(["scrapy", "aopic", *arguments], Settings())
    out, err = capsys.readouterr()
    return ended.value.code, out, err


# Lists


def test_an_option_that_takes_names_takes_a_file_of_them(tmp_path: Path) -> None:
    listed = tmp_path / "domains.txt"
    listed.write_text("\ufeff# ours\nexample.org\n\n B\u00fccher.example\n", encoding="utf-8")
    assert check_option("domains", f"example.com,{listed}") == (
        "example.com",
        "example.org",
        "xn--bcher-kva.example",
    )
    (tmp_path / "patterns.list").write_text("/news/[0-9]{1,4}\n#no\n/blog/\n")
    found = check_option("deny", ["a,b", str(tmp_path / "patterns.list")])
    assert [each.pattern for each in found] == ["a,b", "/news/[0-9]{1,4}", "/blog/"]


def test_a_name_is_a_file_only_if_no_domain_can_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("example.org", "places"):
        (tmp_path / name).write_text("example.com\n")
    assert check_option("domains", "example.org") == ("example.org",)
    assert check_option("domains", "places") == ("example.com",)  # no suffix of the list, and it is there
    assert check_option("domains", "intranet") == ("intranet",)
    assert [each.pattern for each in check_option("deny", "robots.txt")] == ["robots.txt"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "domains.txt cannot be read: there is no such file or folder"),
        ("", "domains.txt lists nothing"),
        ("example.org\nno domain\n", "domains.txt, line 2: 'no domain'"),
        (
            "example.org\nhttps://example.com/\n",
            "line 2: 'https://example.com/': did you mean \"example.com\"?",
        ),
    ],
)
def test_a_list_of_domains_that_cannot_be_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "domains.txt").write_text(text)
    with pytest.raises(SettingError) as caught:
        check_option("domains", "domains.txt")
    assert said in str(caught.value)


def test_hosts_to_leave_alone_may_be_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_job(tmp_path / "job", "sqlite", 1)
    (tmp_path / "blocked.txt").write_text("h0\nexample.org\n")
    code, out, _ = run(capsys, "control", "job", "block", "blocked.txt", "[::1]", "--json")
    assert code == 0
    assert json.loads(out)["blocked"].keys() == {"h0", "example.org", "[::1]"}
