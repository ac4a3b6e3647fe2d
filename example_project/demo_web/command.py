"""``python -m demo_web``, and a process of it for a test or a crawl."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from .grammar import N_HOSTS, N_PAGES, SEED
from .responses import DemoWeb
from .server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


async def _serve(web: DemoWeb, log: Path | None, port: int, *, watches_stdin: bool) -> None:
    """Serve until a signal asks for the end, or, if it is watched, standard input is closed: the parent has ended."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: there Ctrl-C raises KeyboardInterrupt, see main()
            loop.add_signal_handler(number, stopping.set)

    def watch_stdin() -> None:
        # Not sys.stdin.read(): a thread that still holds that lock at the end brings the interpreter down.
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(stopping.set)

    server = Server(web.answer, log=log, port=port)
    await server.start()
    sys.stdout.write(f"serving {web.n_urls} pages of {web.n_hosts} hosts, proxy {server.url}\n")
    sys.stdout.flush()
    if watches_stdin:
        Thread(target=watch_stdin, name="watch-stdin", daemon=True).start()
    try:
        await stopping.wait()
    finally:
        await server.stop()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the demo web on a loopback port, which is printed in one line."""
    parser = argparse.ArgumentParser(prog="demo_web", description=main.__doc__)
    parser.add_argument("--port", type=int, default=0, help="port to listen at (default: a free one)")
    parser.add_argument("--seed", type=int, default=SEED, help="another seed makes another web (%(default)s)")
    parser.add_argument("--log", type=Path, help="file to which a line is added for every request")
    parser.add_argument("--hosts", type=int, default=N_HOSTS, help="number of hosts (%(default)s)")
    parser.add_argument("--pages", type=int, default=N_PAGES, help="number of pages (%(default)s)")
    parser.add_argument(
        "--watch-stdin",
        action="store_true",
        help="end when standard input is closed, as it is with the parent",
    )
    parser.add_argument("--topics", action="store_true", help="let some hosts have a topic")
    options = parser.parse_args(arguments)
    try:
        web = DemoWeb(options.seed, options.hosts, options.pages, has_topics=options.topics)
    except ValueError as error:
        parser.error(str(error))
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(web, options.log, options.port, watches_stdin=options.watch_stdin))


@contextmanager
def served(
    seed: int = SEED,
    n_hosts: int = N_HOSTS,
    n_pages: int = N_PAGES,
    *,
    log: Path | None = None,
    has_topics: bool = False,
) -> Iterator[str]:
    """Serve the demo web from a process of its own while the block runs; gives the URL of the proxy.

    The process also ends when this one is killed. Ctrl-C does not reach it, so that a crawler which is
    asked to stop can finish what is under way.

    Raises:
        RuntimeError: If it does not start; its own message is on standard error.
    """
    command = [sys.executable, "-m", "demo_web", "--watch-stdin"]
    command += ["--seed", str(seed), "--hosts", str(n_hosts), "--pages", str(n_pages)]
    if log is not None:
        command += ["--log", str(log)]
    if has_topics:
        command.append("--topics")
    # So that it works from any working directory.
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(  # noqa: S603 - our own module, with numbers and a path as arguments
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.startswith("serving "):
                raise RuntimeError("The demo web did not start; see standard error for the reason.")
            yield line.split()[-1]
        finally:
            process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
