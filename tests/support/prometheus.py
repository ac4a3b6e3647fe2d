"""A Prometheus server on loopback that scrapes one target with the rules of ``docs/monitoring/``, where there is one."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from .redis_server import free_port

PROMETHEUS = shutil.which("prometheus")
RULES = Path(__file__).parents[2] / "docs" / "monitoring" / "alerts.yml"

_PATIENCE = 60.0
"""Seconds for the server to start on a busy machine."""

_CONFIGURATION = """\
global: {{scrape_interval: {every}, evaluation_interval: {every}}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: crawl
    authorization: {{credentials: "{token}"}}
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""


class Prometheus:
    """A server that keeps what it has in *folder*.

    Args:
        port: Of the dashboard that it scrapes.
        token: Of that.
        every: Time between scrapes, and between evaluations of the rules.
    """

    def __init__(self, folder: Path, port: int, token: str, *, every: str = "1s") -> None:
        assert PROMETHEUS is not None
        file = folder / "prometheus.yml"
        file.write_text(
            _CONFIGURATION.format(every=every, rules=RULES, token=token, port=port), encoding="utf-8"
        )
        self._url = f"http://127.0.0.1:{free_port()}"
        arguments = {
            "config.file": file,
            "storage.tsdb.path": folder / "data",
            "web.listen-address": self._url.removeprefix("http://"),
            "log.level": "error",
        }
        self._process = subprocess.Popen(
            [PROMETHEUS, *(f"--{name}={value}" for name, value in arguments.items())],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + _PATIENCE
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > until:
                self.close()
                raise OSError(f"Prometheus has not started (exit code {self._process.returncode})")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=10) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its API."""
        encoded = urllib.parse.urlencode(query)
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{encoded}", timeout=30) as response:
            return json.load(response)["data"]

    def value(self, expression: str) -> float | None:
        """What *expression* is now; ``None`` if it is of no series."""
        found = self.ask("query", query=expression)["result"]
        return float(found[0]["value"][1]) if found else None

    @property
    def target(self) -> dict[str, Any]:
        """What it says of its target: ``health``, ``lastError`` and so on."""
        found: dict[str, Any] = self.ask("targets")["activeTargets"][0]
        return found

    @property
    def rules(self) -> list[dict[str, Any]]:
        """What it says of its rules: ``name``, ``health``, ``state`` and so on."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
