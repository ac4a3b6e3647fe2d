"""The page of the dashboard as one file, for a report that is kept or sent: the page, and in it what it would ask a server.

Rule 1: strings from the Web are in one block of data, which the page reads as JSON. They have no ``<`` there, so none of them
ends the block or begins a comment, and no character that a browser obeys instead of showing it.

Rule 2: the page's policy allows its own script and style, by their digests, and no request.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from scrapy_aopic.core.printable import printable
from scrapy_aopic.view.history import FILE_NAME, drawn, read_history
from scrapy_aopic.view.job_view import open_view
from scrapy_aopic.view.queries import hosts_by, top_pages
from scrapy_aopic.view.questions import top_domains
from scrapy_aopic.view.stored import read_snapshot
from scrapy_aopic.view.traps import find_traps

from .feed import to_json
from .site import N_DOMAINS, N_HOSTS, N_TOP, static_file

if TYPE_CHECKING:
    from scrapy_aopic.place.place import Place


def report_page(job: Place, other: Place | None = None) -> bytes:
    """The page for *job* as of its last commit, beside figures of the *other* one; takes a look at all its pages.

    Raises:
        StorageError: If there is no job, or it cannot be read.
        OSError: If its history cannot be read.
    """
    history = read_history(job.folder / FILE_NAME) if job.folder is not None else []
    with open_view(job) as view:
        answers = {
            "/api/v1/snapshot": read_snapshot(job, view=view, history=history),
            "/api/v1/history": drawn(history),
            "/api/v1/top": {"pages": [row._asdict() for row in top_pages(view, N_TOP)]},
            "/api/v1/domains": top_domains(view, N_DOMAINS, has_importance=True),
            "/api/v1/traps": {"traps": find_traps(view, str(job))},
            **{
                f"/api/v1/hosts?by={kind}&find=": {"hosts": hosts_by(view, kind, N_HOSTS)}
                for kind in ("queued", "fetched")
            },
        }
    if other is not None:
        history = read_history(other.folder / FILE_NAME) if other.folder is not None else []
        with open_view(other) as view:
            now = read_snapshot(other, view=view, history=history)
        answers["/api/v1/compared"] = {"snapshot": now, "history": drawn(history)}
    return _page(answers)


def _page(answers: dict[str, Any]) -> bytes:
    data = printable(to_json(answers).decode(), "\N{REPLACEMENT CHARACTER}").replace("<", "\\u003c")
    page, style, script = (static_file(f"/{name}") for name in ("", "dashboard.css", "dashboard.js"))
    policy = f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<meta name="referrer" content="no-referrer">'
    parts = {
        b'<link rel="icon" href="/icon.svg" type="image/svg+xml">': head.encode(),
        b'<link rel="stylesheet" href="/dashboard.css">': b"<style>%b</style>" % style,
        b'<script type="module" src="/dashboard.js"></script>': b'<script type="module">%b</script>' % script,
        b"</body>": b'<script type="application/json" id="answers">%b</script>\n</body>' % data.encode(),
    }
    for part, instead in parts.items():
        page = page.replace(part, instead)
    return page


def _digest(text: bytes) -> str:
    return f"'sha256-{b64encode(sha256(text).digest()).decode()}'"
