"""What a command says of a path that it cannot use: one sentence of ours, whatever is there, and no exit code 0."""

from __future__ import annotations

import ast
import errno
import gzip
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.commands import run_here
from support.import_graph import tree_of
from support.stored_jobs import make_job

import scrapy_aopic
from scrapy_aopic.exceptions import plainly

pytestmark = pytest.mark.slow

FOREIGN = re.compile(
    r"Errno|allow_pickle|pickle|Traceback|\b\w+(Error|Exception|File)\(|\w+Error:|codec|cannot load|magic|zipfile|BadZip|"
    r"Parquet magic|footer|gzipped|\bb'|<_io|<class|line \d+ column|Expecting|traceback"
)
"""What libraries and the system say in their own words."""


ARRAY = b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (9,), }"

MAKERS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "folder": lambda path: path.mkdir(),
    "text": lambda path: path.write_text("no such thing\n"),
    "empty": lambda path: path.write_bytes(b""),
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 50),
    "packed and cut": lambda path: path.write_bytes(gzip.compress(Random(0).randbytes(2_000))[:1_000]),
    "cut zip": lambda path: path.write_bytes(b"PK\x03\x04" + bytes(2_000)),
    "cut parquet": lambda path: path.write_bytes(b"PAR1" + b"\xff" * 500 + b"PAR1"),
    "array": lambda path: path.write_bytes(ARRAY.ljust(128) + b"\n"),
    "long line": lambda path: path.write_bytes(b'"' + b"http://a.test/" + b"x" * 3_000_000),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "broken link": lambda path: path.symlink_to("gone"),
    "circle": lambda path: path.symlink_to(path.name),
    "pipe": os.mkfifo,
}
"""What may be in the place of a file, by what it is called."""

INPUTS = [name for name in MAKERS if name != "deep"]
"""What may be where a file is wanted."""

JOBS = ["nothing", "folder", "text", "empty", "binary", "broken link", "circle", "pipe"]
"""What may be where a job folder is wanted."""

NO_TEXTS = ["nothing", "folder", "empty", "broken link", "circle", "pipe"]
"""What may be where pages are wanted."""

OUTPUTS = ["folder", "pipe"]
"""What may be where a file is to be written; others are replaced."""

CONTACT = ("--contact", "bot@example.org")
SIMULATE = ("--seed-pages", "0", "--order", "aopic")

READ = [
    ("seed", "new", "X"),
    ("seed", "new", "X.csv"),
    ("seed", "new", "X.gz"),
    ("seed", "new", "X.parquet"),
    ("crawl", "X.txt", *CONTACT),
    ("crawl", "X.csv", *CONTACT),
    ("crawl", "X.parquet", *CONTACT),
    ("crawl", "http://127.0.0.1:9/", "--domains", "X.txt", *CONTACT),
    ("crawl", "http://127.0.0.1:9/", "--fields", "X.txt", *CONTACT),
    ("control", "job", "block", "X.txt"),
    ("simulate", "X.npz"),
    ("simulate", "X.csv"),
    ("simulate", "graph.npz", "--hosts", "X.npy", *SIMULATE),
    ("simulate", "graph.npz", "--urls", "X.txt", *SIMULATE),
    ("simulate", "graph.npz", "--urls", "X.gz", *SIMULATE),
    ("simulate", "graph.npz", "--seed-pages", "X.txt"),
    ("topic", "evaluate", "X", "pages", "others"),
    ("topic", "evaluate", "model", "X", "pages"),
    ("identity", "directory", "X"),
    ("why", "--grade", "X", "pages/1.html"),
]

EXAMPLES = [
    ("topic", "train", "X", "pages"),
    ("topic", "train", "pages", "X"),
]
"""Commands that take a page of whatever text, too."""

IN_JOB = [
    *((name, "X") for name in ("top", "status", "check")),
    ("topic", "label", "X"),
    ("hosts", "X", "--slow"),
    ("why", "X", "http://a.test/"),
    ("report", "X", "report.html"),
    ("backup", "X", "copy"),
    ("salvage", "X", "new"),
    ("backup", "X", "redis://127.0.0.1:1/0#x"),
    ("move", "X", "to"),
    ("export", "X", "--pages", "pages.csv"),
    ("dashboard", "X"),
]

BELOW_A_FILE = [
    *IN_JOB,
    ("control", "X", "pause"),
    ("seed", "X", "http://a.test/"),
    ("crawl", "http://127.0.0.1:9/", "--job", "X", *CONTACT),
]
"""Commands for which there may be no job yet, too."""

WRITTEN = [
    ("export", "job", "--pages", "X.csv"),
    ("export", "job", "--pages", "X.csv.gz"),
    ("export", "job", "--pages", "X.parquet"),
    ("report", "job", "X"),
    ("topic", "train", "pages", "others", "-o", "X"),
    ("simulate", "graph.npz", "--json", "X", *SIMULATE),
    ("simulate", "graph.npz", "--plot", "X.png", *SIMULATE),
    ("backup", "job", "X"),
]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of each that is right, but for a model."""
    np = pytest.importorskip("numpy")
    folder = tmp_path_factory.mktemp("right")
    make_job(folder / "job", "sqlite", 3)
    np.savez(folder / "graph.npz", indptr=np.array([0, 1, 2]), indices=np.array([1, 0]))
    (folder / "pages").mkdir()
    (folder / "pages" / "1.html").write_text("<p>some words about nothing</p>")
    (folder / "others").mkdir()
    (folder / "others" / "2.html").write_text("<p>others on something else</p>")
    (folder / "model").write_text("none")
    return folder


@pytest.fixture
def anew(right: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Path]]:
    """Gives a new folder to work in, with what is right, and sets an alarm for whatever waits."""

    def folder() -> Path:
        path = tmp_path / str(next(numbers))
        path.mkdir()
        monkeypatch.chdir(path)
        for each in right.iterdir():
            (path / each.name).symlink_to(each)
        signal.alarm(60)
        return path

    def waits(*_: object) -> None:
        raise AssertionError("it waits for what may never come")

    numbers = count()
    before = signal.signal(signal.SIGALRM, waits)
    yield folder
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def here(anew: Callable[[], Path]) -> Path:
    """One such folder."""
    return anew()


@pytest.fixture
def aopic(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str]]:
    def run(*arguments: str) -> tuple[Any, str]:
        code, _, err = run_here(capsys, *arguments)
        return code, err

    return run


def check_said(code: object, err: str, name: str, case: str) -> None:
    """The last line of *err* is a sentence that names *name*, and foreign to nobody; *code* is no success."""
    said = err.strip().splitlines()[-1]
    assert code not in (0, None), (case, err)
    assert name in said, (case, err)
    assert not FOREIGN.search(said), (case, said)
    assert len(said) < 700, case


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("arguments", "makes"),
    [
        (each, makes)
        for table, makes in ((READ, INPUTS), (EXAMPLES, NO_TEXTS), (IN_JOB, JOBS), (WRITTEN, OUTPUTS))
        for each in table
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_what_cannot_be_read_or_written(here, aopic, arguments, makes):
    path = here / next(each for each in arguments if each.split(".")[0] == "X")
    said = "model" if "model" in arguments else path.name  # which is looked at first
    for make in makes:
        signal.alarm(60)
        MAKERS[make](path)
        check_said(*aopic(*arguments), said, make)
        _remove(path)


def test_what_is_below_a_file(here, aopic):
    (here / "X").write_text("no folder")
    for arguments in BELOW_A_FILE:
        for place in ("X", "X/job", "X/job/deep"):
            signal.alarm(60)
            given = [place if each == "X" else each for each in arguments]
            check_said(*aopic(*given), "X", " ".join(given))
    for arguments in WRITTEN:
        signal.alarm(60)
        given = [f"X/{each}" if each.split(".")[0] == "X" else each for each in arguments]
        check_said(*aopic(*given), "X", " ".join(given))


BESIDE = [
    "aopic-history.csv",
    "aopic-dropped.json",
    "aopic-control.json",
    "aopic-labels.jsonl",
    "aopic-former",
    "aopic-shards/cut.json",
    "aopic-shards/part.json",
    "aopic/format",
    "aopic/sizes.json",
    "aopic/landed",
    "aopic/backend",
]
"""Files of a job folder, which may come from a stranger."""

LOOKING = [
    ("status",),
    ("why", "http://h0/0"),
    ("report", "page.html"),
    ("topic label",),
    ("export", "--pages", "pages.csv"),
]


@pytest.mark.parametrize("name", BESIDE)
def test_a_file_of_a_job_that_is_none_is_said_or_does_not_matter(here, right, aopic, name):
    for make in ("folder", "binary", "empty", "deep", "long line", "pipe"):
        job = here / make
        shutil.copytree(right / "job", job)
        file = job / name
        if file.is_dir():
            shutil.rmtree(file)
        file.unlink(missing_ok=True)
        file.parent.mkdir(exist_ok=True)
        MAKERS[make](file)
        for command, *arguments in LOOKING:
            code, err = aopic(*command.split(), str(job), *arguments)
            assert not FOREIGN.search(err), err
            assert err.count("\n") == (code != 0), err


def test_what_is_no_file_is_written_and_not_replaced(here, aopic):
    (here / "null").symlink_to("/dev/null")
    assert aopic("report", "job", "null")[0] == 0
    assert (here / "null").is_symlink()


def test_every_error_of_the_system_has_words():
    for number in errno.errorcode:
        said = plainly(OSError(number, os.strerror(number), "file.txt"))
        assert said, number
        assert "Errno" not in said
        assert "file.txt" not in said  # it may be one that the user never named


PACKAGE = Path(scrapy_aopic.__file__).parent

OURS = {
    "AopicError", "CallError", "ExchangeError", "IgnoreRequest", "InUseError", "LeftAloneError", "LostError", "NotPlainError",
    "OutputError", "Reason", "SettingError", "StopIteration", "StorageError", "TopicError", "UnreachableError",
    "UnreadableError", "UnserialisableError", "UsageError", "_DroppedError",
}  # fmt: skip
"""Exceptions whose sentences are ours."""

OF_THE_USER = {
    "commands/topic_command.py": "the user's judge raised it",
    "focus/tokenizers.py": "the user's function raised it",
    "session/responses.py": "the user's function, which says what of a page has changed, raised it",
    "session/links/known_pages.py": "the user's dupefilter raised it",
    "session/topic/given_topic.py": "the user's class raised it",
    "session/topic/user_functions.py": "the user's function raised it",
    "session/spider_state.py": "the state is the user's object",
    "settings/build.py": "an import path of the user's",
    "settings/parse.py": "import paths, functions and regular expressions of the user's",
    "spiders.py": "a regular expression of the user's",
    "storage/registry.py": "the user's backend raised it",
    "web/page_keys.py": "the user's fingerprinter raised it",
    "web/stored_requests.py": "a callback, or an object in the meta of a request, of the user's",
    "web/request_codec.py": "a callback, or an object in the meta of a request, of the user's",
}
"""Files that show the text of another exception, and why the user can do something about it."""


def shown_errors(path: Path) -> Iterator[int]:
    """Lines of *path* where the text of an exception that is none of ours becomes a part of a sentence."""
    for handler in ast.walk(tree_of(path)):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None or handler.type is None:
            continue
        kinds = {each.id for each in ast.walk(handler.type) if isinstance(each, ast.Name)}
        kinds |= {each.attr for each in ast.walk(handler.type) if isinstance(each, ast.Attribute)}
        if kinds <= OURS:
            continue
        for node in ast.walk(handler):
            values: list[ast.expr | None] = []
            if isinstance(node, ast.FormattedValue):
                values = [node.value]
            elif isinstance(node, ast.Dict):
                values = [*node.values]
            elif isinstance(node, ast.Call):
                values = [word.value for word in node.keywords]
                called = ast.unparse(node.func).rpartition(".")[2]
                values += node.args if called == "Reason" or called.endswith("Error") else []
            if any(_is_text_of(handler.name, value) for value in values):
                yield node.lineno  # type: ignore[attr-defined]


def _is_text_of(name: str, node: ast.expr | None) -> bool:
    """Whether *node* is the exception *name*, its text, or a part of that."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("strerror", "args") and _is_text_of(name, node.value)
    if isinstance(node, ast.BoolOp):
        return any(_is_text_of(name, value) for value in node.values)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("str", "repr") and any(_is_text_of(name, arg) for arg in node.args)
    return isinstance(node, ast.Name) and node.id == name


def test_no_sentence_of_a_library_is_shown_unless_the_user_can_do_something_about_it():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        if lines := [*shown_errors(path)]:
            found[path.relative_to(PACKAGE).as_posix()] = lines
    assert {name: lines for name, lines in found.items() if name not in OF_THE_USER} == {}
    assert OF_THE_USER.keys() - found.keys() == set()  # none is allowed that need not be
