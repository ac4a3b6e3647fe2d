"""A trained topic in a file: plain numbers behind a checksum, never a pickle, so that a stranger's file runs no code.

The first line says what the file is; the second is the SHA-256 of the rest in hexadecimal digits; the rest are the bytes of
a :class:`~scrapy_aopic.core.focus.classifier.Classifier`. If the topic was trained with a user's tokeniser, its name is on a
line before those bytes, and the first line says 2. The checksum detects damage; it does not tell who wrote the file.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from scrapy_aopic.core.focus.classifier import MOST_BYTES, Classifier
from scrapy_aopic.core.focus.topic import Topic
from scrapy_aopic.exceptions import StorageError, TopicError, plainly
from scrapy_aopic.storage.named_files import open_given
from scrapy_aopic.storage.store_folder import writing

from .tokenizers import Words

_MAGIC, _MAGIC_NAMED = b"scrapy-aopic topic 1\n", b"scrapy-aopic topic 2\n"

_LONGEST_NAME = 500
"""Bytes of the name of a tokeniser, an import path."""

_DIGEST_BYTES = 65
"""Bytes of the line with the checksum."""

_VERSION_DIGITS = 12
"""Hexadecimal digits of the checksum that name a model."""


class Model(NamedTuple):
    """A trained topic.

    Attributes:
        version: What distinguishes it from others.
    """

    topic: Topic
    version: str


def save_model(topic: Topic, path: Path, tokenizer: str = "") -> str:
    """Write what *topic* has learned, by the *tokenizer* of this name, to *path*, at once or not at all; returns its version.

    Raises:
        OSError: If it cannot be written.
    """
    data = topic.pages.pack()
    if tokenizer:
        data = tokenizer.encode() + b"\n" + data
    digest = sha256(data).hexdigest()
    with writing(path) as file:
        file.write((_MAGIC_NAMED if tokenizer else _MAGIC) + digest.encode() + b"\n" + data)
    return digest[:_VERSION_DIGITS]


def load_model(path: Path, cut: Words | None = None) -> Model:
    """The model in the file at *path*, which may come from a stranger.

    Args:
        cut: Cuts text into words; by default as the package does.

    Raises:
        TopicError: If it is not a model, or was trained with another tokeniser. No more is read than a model can have, and
            memory is allocated by the length of the file, never by a number in it.
    """
    most = len(_MAGIC) + _DIGEST_BYTES + _LONGEST_NAME + MOST_BYTES
    try:
        with open_given(path) as file:
            data = file.read(most + 1)
    except OSError as error:
        raise TopicError(f"The model {path} cannot be read: {plainly(error)}.") from error
    if not data.startswith((_MAGIC, _MAGIC_NAMED)) or len(data) > most:
        raise TopicError(f"{path} is no model of this version: 'scrapy aopic topic train' makes one.")
    at = len(_MAGIC) + _DIGEST_BYTES
    digest, rest = data[len(_MAGIC) : at].rstrip(b"\n"), data[at:]
    if sha256(rest).hexdigest().encode() != digest:
        raise TopicError(
            f"The model {path} is damaged: its checksum is wrong. Make it again by 'scrapy aopic topic train'."
        )
    cut = cut if cut is not None else Words()
    named = b""
    if data.startswith(_MAGIC_NAMED):
        named, _, rest = rest.partition(b"\n")
    name = named[:_LONGEST_NAME].decode("utf-8", "replace")
    if name != cut.name:
        raise TopicError(
            f"The model {path} was trained with {_said(name)}, and this is {_said(cut.name)}: set AOPIC_TOKENIZER to what it was "
            "trained with, or train it again."
        )
    try:
        topic = Topic(pages=Classifier.unpack(rest), cut=cut, cut_url=cut.of_url)
    except StorageError as error:
        raise TopicError(f"The model {path} cannot be used: {plainly(error)}.") from error
    if not topic.has_examples:
        raise TopicError(f"The model {path} has learned from no relevant pages, or from no others.")
    return Model(topic, digest[:_VERSION_DIGITS].decode())


def _said(name: str) -> str:
    return f"the tokeniser {name}" if name else "the package's own tokeniser"
