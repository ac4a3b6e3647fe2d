"""What the documents say is what the code has: settings, stats, commands, modules, links, names."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path

import generate
import old_figures
import pytest
import size
from scrapy import Spider
from scrapy.http import Response
from support.import_graph import tree_of
from support.small_web import crawl

import scrapy_aopic
from scrapy_aopic import stats_table
from scrapy_aopic.commands import SUBCOMMANDS
from scrapy_aopic.core.layout import FORMAT
from scrapy_aopic.dashboard.site import EXPLAINER
from scrapy_aopic.settings import SETTINGS
from scrapy_aopic.spiders import AREAS, CHECKS, FIELDS
from scrapy_aopic.view.queries import LinkRow, PageRow
from scrapy_aopic.web.url_rules import BROAD_RULES, CHANGES, PLAIN_RULES, REFUSALS, RULES, TRACKING

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "scrapy_aopic"
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS.append(ROOT / "example_project" / "README.md")
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in DOCUMENTS}
SOURCES = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}


def in_documents(wrong: Callable[[str], Iterable[object]]) -> dict[str, list[object]]:
    """What is *wrong* with each document, by its name, if anything is."""
    return {name: found for name, text in TEXTS.items() if (found := [*wrong(text)])}


def fenced(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


# Settings


def test_every_setting_has_a_heading_with_its_default_and_unit():
    found = re.findall(
        r"^#### (AOPIC_\w+)\nDefault: `(.+?)`(?: ([^.]+))?\. It must be ",
        TEXTS["docs/settings.md"],
        re.MULTILINE,
    )
    assert [(name, ast.literal_eval(default), unit) for name, default, unit in found] == [
        (setting.name, setting.default, setting.unit) for setting in SETTINGS.values()
    ]


def test_no_setting_says_that_it_is_somewhere_else():
    """A link in the text of a setting is one of docs/settings.md, where links are tested."""
    assert [name for name, setting in SETTINGS.items() if "docs/" in setting.meaning] == []


def test_no_other_setting_is_mentioned():
    assert in_documents(lambda text: set(re.findall(r"\bAOPIC_\w+", text)) - set(SETTINGS)) == {}


# Stats


def values_of(node: ast.expr) -> set[str]:
    """Texts that *node* can mean; ``<`` stands for what only running it can tell."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp(body=one, orelse=other):
            return values_of(one) | values_of(other)
        case ast.JoinedStr(values=parts):
            return {"".join(texts) for texts in product(*map(values_of, parts))}
        case ast.FormattedValue(value=value):
            return values_of(value) or {"<"}
    return set()


OF_STATS = re.compile(r"(aopic|dupefilter|robotstxt|scheduler)/[\w/<>. ]*[\w<>]")


def stats_in_the_code() -> Iterator[str]:
    """Every text in the package that is the name of a stat, wherever it is used."""
    for name, path in SOURCES.items():
        if name != "stats_table.py" and OF_STATS.search(path.read_text(encoding="utf-8")):
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.expr):
                    yield from filter(OF_STATS.fullmatch, values_of(node))


async def test_every_stat_is_in_the_table_and_every_one_in_the_table_is_set():
    class OnePage(Spider):
        name = "one"
        start_urls = ["data:text/html,page"]

        def parse(self, response: Response) -> None:
            pass

    crawler = await crawl(OnePage, {"SCHEDULER": "scrapy_aopic.Scheduler"})
    assert crawler.stats is not None
    in_a_crawl = {name for name in crawler.stats.get_stats() if name.startswith("aopic/")}
    set_at_the_end = {"aopic/<", "aopic/job/<", "aopic/recrawl/<"}
    in_the_code = set(stats_in_the_code()) - set_at_the_end
    what_visits_find = ("new", "changed", "unchanged", "moved", "gone", "back", "failed")
    in_the_code |= {f"aopic/recrawl/{what}" for what in what_visits_find}
    assert {
        name for name in in_the_code | in_a_crawl if stats_table.find(name.replace("<", "<any>")) is None
    } == set()
    is_set = {
        stat.name
        for name in in_the_code | in_a_crawl
        if (stat := stats_table.find(name.replace("<", "<any>")))
    }
    is_set |= {name for name, stat in stats_table.STATS.items() if stat.figure}
    assert set(stats_table.STATS) - is_set == set()


def test_the_names_of_stats_are_names_of_metrics():
    names = [stat.metric for stat in stats_table.STATS.values()]
    assert [name for name in names if not re.fullmatch(r"(aopic|scrapy)_[a-z0-9_]+", name)] == []
    assert len(set(names)) == len(names)
    assert stats_table.STATS["aopic/outcomes/<outcome>"].metric == "aopic_outcomes_total"
    assert stats_table.STATS["aopic/outcomes/<outcome>"].label == "outcome"
    assert stats_table.STATS["aopic/job/queued"].metric == "aopic_job_queued"
    assert stats_table.find("aopic/outcomes/http 404") is stats_table.STATS["aopic/outcomes/<outcome>"]
    assert stats_table.find("aopic/outcomes/") is stats_table.find("aopic/job") is None


def test_no_other_stat_is_mentioned():
    files = {"aopic/format", "aopic/landed"}  # of the store in a job folder

    def unknown(text: str) -> list[str]:
        said = set(re.findall(r"`(aopic/[\w/]+<?\w*>?)`", text)) - files
        return [stat for stat in said if stats_table.find(stat) is None]

    assert in_documents(unknown) == {}


# Commands


def test_every_option_of_the_broad_spider_is_documented_and_no_other():
    section = TEXTS["docs/first-crawl.md"].partition("\n## Write a spider\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(CHECKS)
    (fields,) = re.findall(r"^\| `fields` \| (.+) \|$", section, re.MULTILINE)
    assert re.findall(r"`(\w+)`", fields) == list(FIELDS)
    assert set(re.findall(r'`"(\w+)"`', section)) == set(AREAS)


def sections_of(text: str) -> dict[str, str]:
    """The sections of a document, by their titles."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_subcommand_has_a_section_with_each_of_its_options_and_no_other():
    sections = sections_of(TEXTS["docs/commands.md"])
    sections["simulate"] = sections_of(TEXTS["docs/simulate.md"])["Options"]
    for name, command in SUBCOMMANDS.items():
        parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
        for word in getattr(command, "ACTIONS", {"": command}).values():
            word.add_options(parser)
        options = {each for act in parser._actions for each in act.option_strings or [str(act.metavar)]}
        rows = re.findall(r"^\| (`(?:-|[A-Z]{2}).*?) \|", sections[name], re.MULTILINE)
        assert {each for row in rows for each in re.findall(r"`([\w-]+)", row)} <= options, name
        named = {*re.findall(r"`([\w-]+)", sections[name])}
        assert options - {"--number"} <= named, name  # the other word for -n stands under "Common options"


def shown_commands(text: str) -> Iterator[str]:
    """The calls of ``scrapy aopic`` in the examples of a document, without what a shell makes of their output."""
    lines = "\n".join(fenced(text, "sh")).replace("\\\n", " ").splitlines()
    for line in [*lines, *re.findall(r"`(scrapy aopic [^`\n]* crawls/[^`\n]*)`", text)]:
        if found := re.search(r"(?:^|[ /;])scrapy aopic ([a-z].*)", line):
            yield re.split(r" +(?:#|[|>&]|2>)", found[1])[0]


def test_every_command_that_is_shown_has_only_options_that_there_are():
    for name, text in TEXTS.items():
        for command in shown_commands(text):
            subcommand, *arguments = shlex.split(command)
            parser = argparse.ArgumentParser(exit_on_error=False)
            parser.add_argument("-s", "--set", action="append")
            parser.add_argument("-L", "--loglevel")
            actions = getattr(SUBCOMMANDS[subcommand], "ACTIONS", {})
            (actions[arguments.pop(0)] if actions else SUBCOMMANDS[subcommand]).add_options(parser)
            try:
                parser.parse_args(arguments)
            except (SystemExit, argparse.ArgumentError) as error:
                raise AssertionError(f"{name}: scrapy aopic {command}: {error}") from error


def test_commands_are_shown_where_a_newcomer_looks():
    assert len([*shown_commands(TEXTS["README.md"]), *shown_commands(TEXTS["docs/first-crawl.md"])]) > 10


def test_every_column_of_an_export_is_documented_and_no_other():
    section = TEXTS["docs/commands.md"].partition("\n## export\n")[2].partition("\n## ")[0]
    table = section.partition("| column | |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == list(PageRow._fields)
    assert f"A link has {' and '.join(f'`{name}`' for name in LinkRow._fields)}" in section


# Rules on URLs


def test_every_rule_reason_and_tracking_parameter_is_in_the_document():
    section = sections_of(TEXTS["docs/urls.md"])
    rules = re.findall(
        r"^\| `([\w-]+)` \| (on|off|add-on) \|", section["Rules that change a URL"], re.MULTILINE
    )
    assert [name for name, _ in rules] == list(CHANGES)
    assert {name for name, default in rules if default == "on"} == {*CHANGES} & {*PLAIN_RULES}
    assert {name for name, default in rules if default != "off"} == {*CHANGES} & {*BROAD_RULES}
    reasons = re.findall(r"^\| `(\w+)` \| (?:rule `(\w+)`)?", section["Why a URL is refused"], re.MULTILINE)
    assert {rule for _, rule in reasons if rule} == {*REFUSALS}
    refusing = [rule.name for rule in RULES if rule.faults and rule.name != "scheme"]
    assert [reason for reason, _ in reasons] == ["invalid", "scheme", *refusing, "user", "denied"]
    removed = TEXTS["docs/internals.md"].partition("\n### Tracking\n")[2].partition("\n### ")[0]
    tracking = re.findall(r"^\| ([^|`]+) \| (`.+`) \|", removed, re.MULTILINE)
    assert {who: " ".join(re.findall(r"`(\w+)`", names)) for who, names in tracking} == TRACKING


# Links, names, code


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    named = re.findall(r'<a id="(\w+)">', text)
    return {*named, *(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)}


def test_links_lead_somewhere():
    for path in [*DOCUMENTS, *(ROOT / "tests").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            if link.startswith("https://"):
                continue
            target, _, anchor = link.partition("#")
            document = path.parent / target if target else path
            assert document.exists(), (path.name, link)
            if anchor:
                assert anchor in anchors(document.read_text(encoding="utf-8")), (path.name, link)


def test_python_in_the_documents_compiles():
    for name, text in TEXTS.items():
        for source in fenced(text, "python"):
            compile(source, name, "exec")


@pytest.mark.parametrize("number", [0, 1], ids=["crawler", "directories"])
def test_the_crawlers_without_scrapy_run_as_they_are_shown(number, tmp_path):
    text = TEXTS["docs/library.md"]
    code = fenced(text, "python")[number]
    (tmp_path / "crawler.py").write_text(
        f"import sys\n{code}assert 'scrapy' not in sys.modules", encoding="utf-8"
    )
    command = [sys.executable, str(tmp_path / "crawler.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == fenced(text, "text")[number]


def test_every_document_can_be_reached_from_the_readme():
    assert "(docs/index.md)" in TEXTS["README.md"]
    listed = TEXTS["docs/index.md"] + TEXTS["docs/inside.md"]
    linked = {f"docs/{name}" for name in re.findall(r"\]\(([\w-]+\.md)", listed)}
    assert {*linked, "docs/index.md"} == {name for name in TEXTS if name.startswith("docs/")}


def test_the_readme_can_be_read_in_a_minute():
    assert len(TEXTS["README.md"].splitlines()) <= 120


def test_every_public_name_is_documented():
    text = "".join(TEXTS.values())
    assert [name for name in scrapy_aopic.__all__ if f"`scrapy_aopic.{name}`" not in text] == []


def test_the_requirements_are_told_once_and_are_those_of_the_package():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    python, scrapy = re.findall(r'(?:requires-python = "|"scrapy)>=([\d.]+)"', project)
    assert f"Requirements: Python {python} or later, Scrapy {scrapy} or later." in TEXTS["README.md"]
    assert re.findall(r"Scrapy (\d+\.\d+)", "".join(TEXTS.values())) == [scrapy]


def test_every_test_that_is_named_exists():
    tests = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    defined = set(re.findall(r"def (test_\w+)", "".join(tests)))
    assert set(re.findall(r"`(test_\w+)", "".join(TEXTS.values()))) <= defined


def test_contributors_are_sent_to_files_and_names_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"[`(]((?:scrapy_aopic|tests|docs|benchmarks)/[\w/.-]+)", text)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []
    bare = set(re.findall(r"`(\w+\.py)`", text))
    assert (
        bare - {path.name for folder in ("scrapy_aopic", "tests") for path in (ROOT / folder).rglob("*.py")}
        == set()
    )
    places = re.findall(r"`(?:\w+\.)?(\w+)(?:\(\w+\))?` in `(scrapy_aopic/[\w/]+\.py)`", text)
    assert len(places) > 5
    for name, path in places:
        defines = re.compile(rf"(def|class) {name}\b|^{name}\b.* =", re.MULTILINE)
        assert defines.search((ROOT / path).read_text("utf-8")), (name, path)


def test_maintainers_are_sent_to_files_that_exist():
    for name in ("docs/architecture.md", "docs/decisions.md"):
        paths = re.findall(r"`([\w/]+(?:/|\.py))`", TEXTS[name])
        assert len(paths) >= 3, name
        assert [path for path in paths if not (PACKAGE / path).exists() and not (ROOT / path).exists()] == []


# Language

REPLACED = {
    r"ask(s|ing)? (a|the|each|every) (host|server)s?": "makes a request to",
    r"hosts? (may|might|could|can|must) be asked": "is ready",
    r"pages? (that|which) comes? back": "is revisited",
    r"(tells?|told) (apart|(pages|hosts|requests) from)": "distinguishes",
    r"pages are united|twins?": "pages are merged, duplicates",
    r"as ever|in vain|nobody|whoever|come to rest": "plainer words",
}
"""Phrases that are wrong wherever they stand, and what replaced them; see docs/glossary.md."""


def sentences(text: str) -> Iterator[str]:
    """What a document says, without code, addresses, headings and what a setting must be."""
    prose = re.sub(
        r"^```.*?^```$|<!--.*?-->|`[^`]*`|\]\([^)]*\)|^#[^\n]*$|It must be .*?\. ",
        "",
        text,
        flags=re.DOTALL | re.MULTILINE,
    )
    for block in re.split(r"\n(?=\s*(?:[-*|]|\d+\.|\n))|(?<!\\)\|", prose):
        yield from re.split(r"[.!?:][\"')*]*\s+", block)


INSIDE = {
    "docs/inside.md",
    *(f"docs/{name}" for name in re.findall(r"\]\(([\w-]+\.md)", TEXTS["docs/inside.md"])),
}
"""The second book, for those who change the package or judge it; all other pages are for users."""


def test_neither_book_becomes_longer_than_it_may_be():
    """What lands later replaces words; what only judges need goes into the second book, and a laboratory's history nowhere."""
    lines = {
        name: len(text.splitlines()) for name, text in TEXTS.items() if name.startswith(("README", "docs/"))
    }
    assert sum(n for name, n in lines.items() if name not in INSIDE) <= 3_500
    assert sum(lines[name] for name in INSIDE) <= 4_000


def test_sentences_for_users_are_short():
    """For people whose second language is English."""
    pages = {name: text for name, text in TEXTS.items() if name not in INSIDE | {"CHANGELOG.md"}}
    assert len(pages) > 25
    assert sum(1 for text in pages.values() for _ in sentences(text)) > 1500
    long = {
        name: found
        for name, text in pages.items()
        if (found := [each for each in sentences(text) if len(re.findall(r"\w[\w'/.,-]*", each)) > 30])
    }
    assert long == {}


def test_phrases_that_the_glossary_replaced_are_not_used():
    def wrong(text: str) -> Iterator[tuple[str, str]]:
        for phrase, instead in REPLACED.items():
            for found in re.finditer(rf"\b(?:{phrase})\b", text, re.IGNORECASE):
                yield found[0], instead

    assert in_documents(wrong) == {}


# Generated parts


def test_generated_parts_are_up_to_date():
    for name, text in TEXTS.items():
        assert generate.generate(text) == text, f"{name}: run python docs/generate.py"


def test_one_switch_says_how_the_package_is_installed(monkeypatch):
    pages = {name: text for name, text in TEXTS.items() if "<!-- generated: install" in text}
    assert {"README.md", "docs/first-crawl.md", "docs/deploy.md"} <= {*pages}
    assert all("pip install ." in text for text in pages.values())
    assert not any("pip install scrapy-aopic" in text for text in TEXTS.values())
    monkeypatch.setattr(generate, "IS_RELEASED", True)
    for text in map(generate.generate, pages.values()):
        assert "pip install scrapy-aopic" in text
        assert "pip install ." not in text


def test_the_size_of_the_package_is_counted(tmp_path):
    (tmp_path / "scrapy_aopic").mkdir()
    (tmp_path / "scrapy_aopic" / "records.py").write_text(
        '"""One."""\n\nclass Page:\n    """Two."""\n\n    cash: int = 0  # three\n\n\nclass Visit:\n    links: int\n'
    )
    (tmp_path / "scrapy_aopic" / "other.py").write_text(
        "def pay(page, where):\n    page.cash += isinstance(where, Path)\n"
    )
    found = size.measured(tmp_path)
    assert [found[name] for name in ("code lines", "files", "classes", "public names")] == [*"6223"]
    assert found["isinstance of Path or Address"] == "1"
    assert [found[f"files that assign a {what}'s fields"] for what in ("page", "visit")] == ["1", "0"]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no history")
def test_figures_older_than_what_they_measure_are_listed(monkeypatch, tmp_path):
    """Each stamp of a figure names a commit that a clone has, so none of a branch that was rebased."""
    stamps = {
        commit
        for page in (ROOT / "docs").glob("*.md")
        for _, commit in old_figures.STAMP.findall(page.read_text())
    }
    commits = subprocess.run(
        ["git", "rev-list", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert [stamp for stamp in stamps if not any(commit.startswith(stamp) for commit in commits)] == []
    page = tmp_path / "speed.md"
    page.write_text(
        "fast (2026-11-20, commit 1234567)\n<!-- python benchmarks crawl · 2026-11-21 · commit 89abcde -->\nnow\n"
    )
    changes = {"1234567": "core/x.py has changed", "89abcde": ""}
    monkeypatch.setattr(old_figures, "change_since", lambda commit, _: changes[commit])
    assert old_figures.old_figures([page]) == [("speed.md", 1, "2026-11-20", "1234567", changes["1234567"])]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no history")
def test_figures_grow_old_by_code_and_not_by_comments(tmp_path, monkeypatch):
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(text: str) -> str:
        file.write_text(text)
        git("add", "-A")
        git("-c", "user.name=x", "-c", "user.email=x@x.test", "commit", "-qm", "x")
        return git("rev-parse", "HEAD")

    file = tmp_path / "scrapy_aopic" / "core" / "x.py"
    file.parent.mkdir(parents=True)
    git("init", "-q")
    monkeypatch.setattr(old_figures, "ROOT", tmp_path)
    first = commit('"""Words."""\nx = 1\n')
    commit('"""Other words."""\n\nx = 1  # one\n')
    assert not old_figures.change_since(first, ("core",))
    old_figures.change_since.cache_clear()
    commit("x = 2\n")
    assert old_figures.change_since(first, ("core",)) == "scrapy_aopic/core/x.py has changed"
    assert not old_figures.change_since(first, ("web",))
    assert old_figures.change_since("0" * 40, ("core",)) == "there is no such commit"


def test_pages_of_users_have_no_figures_that_grow_old():
    """They say what follows from a figure, and the second book, which docs/inside.md lists, has the figure with its day."""
    dated = {
        name for name, text in TEXTS.items() if name.startswith("docs/") and old_figures.STAMP.search(text)
    }
    assert dated <= INSIDE


def test_the_package_keeps_within_its_budget_of_code_lines():
    lines = size.code_lines(size.files_in(ROOT))
    assert lines <= size.BUDGET, (
        f"{lines - size.BUDGET:,} code lines too many: remove what the change makes unneeded, or raise BUDGET in docs/size.py in a "
        "commit of its own that says why"
    )


def test_the_benchmarks_keep_within_their_budget_of_lines():
    lines = size.lines_of(ROOT / "benchmarks")
    assert lines <= size.BENCHMARKS, (
        f"{lines - size.BENCHMARKS:,} lines too many: what decided something goes (docs/decisions.md)"
    )


def test_the_version_is_that_of_the_project():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{scrapy_aopic.__version__}"\n' in project


def test_the_format_in_the_documents_is_the_one_that_is_written():
    assert re.findall(r"in \*format\* (\d+)", TEXTS["docs/internals.md"]) == [str(FORMAT)]


# The explainer


def test_a_wheel_has_what_the_dashboard_shows_of_the_explainer():
    """The files are in docs/, and a wheel is made of the package."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    included = dict(
        re.findall(r'^"(docs/opic/\S+)" = "scrapy_aopic/dashboard/static/opic/(\S+)"', project, re.MULTILINE)
    )
    page = (ROOT / "docs" / "opic" / "index.html").read_text(encoding="utf-8")
    needed = {"index.html", *re.findall(r'<(?:script|link)[^>]* (?:src|href)="([\w.]+)"', page)}
    assert included == {f"docs/opic/{name}": name for name in needed}
    assert {name for name, _ in EXPLAINER.values()} == needed


# Items


def test_what_comes_twice_is_dropped_as_the_docs_say(tmp_path):
    section = TEXTS["docs/after-a-crash.md"].partition("\n## Items\n")[2].partition("\n## ")[0]
    (script,) = fenced(section, "python")
    lines = [
        '{"url": "http://a.test/", "visits": 0, "title": "first"}\n',
        '{"url": "http://b.test/", "visits": 0}\n',
        '{"url": "http://a.test/", "visits": 0, "title": "again"}\n',
        '{"url": "http://a.test/", "visits": 1}\n',
    ]
    done = subprocess.run(
        [sys.executable, "-c", script], input="".join(lines), capture_output=True, text=True, check=True
    )
    assert done.stdout == "".join(lines[:2] + lines[3:])
