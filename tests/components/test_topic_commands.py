"""``scrapy aopic topic train`` and ``evaluate``, and ``why --grade``: what they write, and models that are refused."""

from __future__ import annotations

import json
import struct
import tracemalloc
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands import run_here

from scrapy_aopic.core.focus.words import BITS
from scrapy_aopic.exceptions import TopicError
from scrapy_aopic.focus import read_folder, train
from scrapy_aopic.focus.model import load_model
from scrapy_aopic.focus.tokenizers import Words

ABOUT = ["a query of the database {}", "sql keeps a table {}", "each table of a database has rows {}"]
OTHER = ["bread from the oven {}", "the baker sells rolls {}", "a street in the morning {}"]


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    for folder, texts in (("yes", ABOUT), ("no", OTHER)):
        (tmp_path / folder).mkdir()
        for number in range(12):
            text = texts[number % 3].format(f"number{number}")
            (tmp_path / folder / f"{number}.html").write_text(f"<title>page</title><p>{text}</p>")
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code, out, err = run_here(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_a_trained_model_grades_pages_and_says_why(pages, capsys):
    model = pages / "topic.aopic"
    trained = shown(capsys, "topic", "train", pages / "yes", pages / "no", "-o", model)
    assert trained["quality"]["average_precision"] > 0.9
    assert "database" in trained["for"]
    assert "bread" in trained["against"]

    evaluated = shown(capsys, "topic", "evaluate", model, pages / "yes", pages / "no")
    assert evaluated["version"] == trained["version"]
    assert (evaluated["relevant"], evaluated["others"]) == (12, 12)
    assert evaluated["recall"] == 1.0

    page = pages / "new.html"
    page.write_text("<p>the baker has a database</p>")
    explained = shown(capsys, "why", "--grade", model, page)
    assert explained["words"]["database"] > 0 > explained["words"]["baker"]
    assert explained["version"] == trained["version"]

    # The same pages make the same model, and people read the same of it.
    before = model.read_bytes()
    code, out, _ = run_here(capsys, "topic", "train", pages / "yes", pages / "no", "-o", model)
    assert (code, model.read_bytes()) == (0, before)
    assert f"{trained['version']}: 12 relevant pages, 12 others" in out
    assert "database" in out
    code, out, _ = run_here(capsys, "why", "--grade", model, page)
    assert code == 0
    assert "database" in out


def test_relevant_pages_alone_are_enough(pages, capsys):
    model = pages / "topic.aopic"
    trained = shown(capsys, "topic", "train", pages / "yes", "-o", model)
    assert (trained["quality"]["others"], trained["quality"]["recall"]) == (0, 1.0)
    grades = shown(capsys, "topic", "evaluate", model, pages / "yes", pages / "no")
    assert grades["average_precision"] == 1.0

    # One page, too; a tokeniser of the user's has no pages of the open web.
    assert run_here(capsys, "topic", "train", pages / "yes" / "0.html", "-o", model)[0] == 0
    with pytest.raises(TopicError, match="AOPIC_TOKENIZER"):
        train(read_folder(pages / "yes"), cut=Words(str.split))


def test_pages_that_neither_folder_is_like_are_no_more_relevant_for_it(pages):
    examples = read_folder(pages / "yes"), read_folder(pages / "no")
    elsewhere = "read the latest news about our products and services, and contact us"
    own, with_others = (train(*examples, cut).grade(elsewhere) for cut in (Words(str.split), Words()))
    assert with_others < own / 2
    assert train(*examples).grade("the database") > 0.5 > train(*examples).grade("the baker")


def test_a_few_examples_say_how_unsure_they_are(pages, capsys):
    for folder in ("yes", "no"):
        for number in range(3, 12):
            (pages / folder / f"{number}.html").unlink()
    few = shown(capsys, "topic", "train", pages / "yes", pages / "no", "-o", pages / "topic.aopic")["quality"]
    assert few["relevant"] == 3
    assert few["recall_high"] - few["recall_low"] > 0.5


def test_what_cannot_be_used_is_one_sentence(pages, capsys):
    (pages / "empty").mkdir()
    (pages / "both").mkdir()
    (pages / "both" / "copy.html").write_bytes((pages / "yes" / "0.html").read_bytes())
    for words, names in [
        (("topic", "train"), ("yes", "empty")),
        (("topic", "train"), ("yes", "nowhere")),
        (("topic", "train"), ("yes", "both")),
        (("why", "--grade"), ("yes/0.html", "yes/0.html")),
    ]:
        code, out, err = run_here(capsys, *words, *(pages / each for each in names))
        assert (code, out, err.count("\n")) == (2, "", 1), (words, names, err)
        assert any(each in err for each in names), err


def forged(rest: bytes) -> bytes:
    return b"scrapy-aopic topic 1\n" + sha256(rest).hexdigest().encode() + b"\n" + rest


HUGE = struct.pack("<4sBdddI", b"AOFC", BITS, 0.0, 5.0, 5.0, 2**32 - 1)


def test_a_hostile_model_is_refused_without_much_memory(tmp_path):
    path = tmp_path / "topic.aopic"
    for data in [
        b"",
        b"\x80\x04cos\nsystem\n",
        b"scrapy-aopic topic 1\n",
        forged(b""),
        forged(HUGE),
        forged(HUGE + bytes(1000)),
        forged(struct.pack("<4sBdddI", b"AOFC", BITS, float("nan"), 5.0, 5.0, 0)),
        forged(struct.pack("<4sBdddIIff", b"AOFC", BITS, 0.0, 5.0, 5.0, 1, 2**32 - 1, 1.0, 1.0)),
        forged(struct.pack("<4sBdddI", b"AOFC", BITS, 0.0, 0.0, 5.0, 0)),
    ]:
        path.write_bytes(data)
        tracemalloc.start()
        try:
            with pytest.raises(TopicError, match=r"topic\.aopic"):
                load_model(path)
            assert tracemalloc.get_traced_memory()[1] < 8_000_000, data
        finally:
            tracemalloc.stop()


ENTRIES = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.floats(width=32), st.floats(width=32)).map(
        lambda entry: struct.pack("<Iff", *entry)
    ),
    max_size=5,
)
HEADS = st.builds(
    struct.pack,
    st.just("<4sBdddI"),
    st.sampled_from([b"AOFC", b"AOFD"]),
    st.sampled_from([BITS, BITS + 1, 0, 255]),
    st.floats(),
    st.floats(),
    st.floats(),
    st.integers(0, 5) | st.integers(0, 2**32 - 1),
)


@given(st.binary(max_size=200) | st.builds(lambda head, entries: head + b"".join(entries), HEADS, ENTRIES))
def test_whatever_a_file_says_it_is_a_model_with_sound_numbers_or_refused(tmp_path_factory, rest):
    path = tmp_path_factory.getbasetemp() / "hostile.aopic"
    path.write_bytes(forged(rest))
    try:
        model = load_model(path)
    except TopicError as error:
        refusal = str(error)
    else:
        refusal = "hostile.aopic"
        assert 0.0 <= model.topic.grade("a query of the database") <= 1.0
    assert "hostile.aopic" in refusal


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="of Unix")
def test_a_file_without_end_is_not_read_to_its_end():
    with pytest.raises(TopicError):
        load_model(Path("/dev/zero"))


def test_a_damaged_model_is_refused(pages, capsys):
    model = pages / "topic.aopic"
    run_here(capsys, "topic", "train", pages / "yes", pages / "no", "-o", model)
    data = bytearray(model.read_bytes())
    data[-5] ^= 1
    model.write_bytes(bytes(data))
    with pytest.raises(TopicError, match="damaged"):
        load_model(model)


def letters(text: str) -> list[str]:
    """A tokeniser: pairs of letters."""
    return [text[at : at + 2] for at in range(len(text) - 1)]


def broken(text: str) -> list[str]:
    raise RuntimeError("no dictionary")


NAMED = f"AOPIC_TOKENIZER={__name__}.letters"


def test_a_model_names_its_tokenizer_and_is_refused_with_another(pages, capsys):
    model, plain, page = pages / "topic.aopic", pages / "plain.aopic", pages / "yes" / "0.html"
    trained = shown(capsys, "topic", "train", pages / "yes", pages / "no", "-o", model, "-s", NAMED)
    assert max(map(len, trained["for"])) == 2
    explained = shown(capsys, "why", "--grade", model, page, "-s", NAMED)
    assert max(map(len, explained["words"])) == 2
    shown(capsys, "topic", "train", pages / "yes", pages / "no", "-o", plain)
    for arguments in [("why", "--grade", model, page), ("why", "--grade", plain, page, "-s", NAMED)]:
        code, out, err = run_here(capsys, *arguments)
        assert (code, out) == (2, "")
        assert f"{__name__}.letters" in err
        assert "AOPIC_TOKENIZER" in err
        assert err.count("\n") == 1


def test_a_tokenizer_that_fails_ends_the_training_and_not_a_crawl(pages, capsys, caplog):
    folders, setting = (pages / "yes", pages / "no"), f"AOPIC_TOKENIZER={__name__}.broken"
    code, _, err = run_here(capsys, "topic", "train", *folders, "-o", pages / "m", "-s", setting)
    assert code == 2
    assert "no dictionary" in err
    assert not (pages / "m").exists()
    lenient = Words(broken, is_lenient=True)
    assert lenient("the Baker") == lenient("the baker") == ["the", "baker"]
    assert caplog.text.count("no dictionary") == 1
    assert Words(lambda _: ["x" * 1000, "", "y"])("text") == ["x" * 40, "y"]
    with pytest.raises(TopicError, match="no text"):
        Words(lambda _: [b"x"])("text")  # type: ignore[list-item,return-value]
