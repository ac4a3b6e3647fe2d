"""The examples of a deployment: every name in them is one, the server's options suit a job, and a worker starts by its command."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import processes, redis_server
from support.redis_server import Server, free_port

yaml = pytest.importorskip("yaml")

import itertools

from scrapy.settings import default_settings

from scrapy_aopic.commands import crawl_command
from scrapy_aopic.settings import SETTINGS, read
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.storage.redis.server_checks import check_server

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "example_project" / "deploy"
FILES = sorted(DEPLOY.rglob("*.yaml"))
MB = {"M": 10**6, "Mi": 2**20, "G": 10**9, "Gi": 2**30, "gb": 2**30}


def size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([A-Za-z]+)", text)
    assert found is not None, text
    return int(found[1]) * MB[found[2]]


def containers(path: Path) -> Iterator[tuple[str, list[str], dict[str, Any]]]:
    """Name, arguments and resources of each container that *path* is about, with what surrounds it."""
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        for name, service in document.get("services", {}).items():
            limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
            yield name, service["command"], {"memory": limits.get("memory"), "around": document}
        if document.get("kind") in ("Deployment", "StatefulSet"):
            for container in document["spec"]["template"]["spec"]["containers"]:
                memory = container["resources"]["limits"]["memory"]
                yield (
                    container["name"],
                    container["args"],
                    {"memory": memory, "around": document, **container},
                )


def settings_of(arguments: list[str]) -> dict[str, str]:
    pairs = [value for flag, value in itertools.pairwise(arguments) if flag == "-s"]
    return dict(re.sub(r"\$\(\w+\)", "x" * 20, pair).split("=", 1) for pair in pairs)


ALL = [(path, *each) for path in FILES for each in containers(path)]
WORKERS = [each for each in ALL if each[2][0] == "crawl"]
SERVERS = [each for each in ALL if each[2][0] == "valkey-server"]


def test_there_are_examples_for_both_places_of_shards():
    assert {path.name for path, *_ in WORKERS} == {"compose.yaml", "workers.yaml", "workers-on-disks.yaml"}
    assert {path.name for path, *_ in SERVERS} == {"compose.yaml", "server.yaml"}


@pytest.mark.parametrize("worker", WORKERS, ids=lambda each: each[0].name)
def test_every_setting_is_one_and_is_valid(worker):
    _, _, arguments, around = worker
    settings = settings_of(arguments)
    known = {*SETTINGS, *vars(default_settings), "REDIS_URL", "JOBDIR"}
    assert {*settings} - known == set()
    for name in {*settings} & {*SETTINGS}:
        read(settings, name)
    memory = int(settings["AOPIC_MEMORY_MB"])
    assert size(around["memory"]) > (memory + 256) * 10**6, "the process itself takes some 200 MB"
    if folders := read(settings, "AOPIC_SHARDS").folders:
        assert around["around"]["spec"]["replicas"] == folders
        assert settings["JOBDIR"].startswith(around["volumeMounts"][0]["mountPath"])
    else:
        assert settings["AOPIC_STORE"] == "redis"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_referred_to_is_there(path):
    text = path.read_text(encoding="utf-8")
    documents = [*yaml.safe_load_all(text)]
    for document in documents:
        spec = document.get("spec", {})
        if "template" in spec:
            labels = spec["template"]["metadata"]["labels"]
            assert spec["selector"]["matchLabels"].items() <= labels.items()
            for container in spec["template"]["spec"]["containers"]:
                claims = {each["metadata"]["name"] for each in spec.get("volumeClaimTemplates", ())}
                assert {each["name"] for each in container.get("volumeMounts", ())} <= claims
                named = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))
                assert named == {each["name"] for each in container.get("env", ())}
    hosts = set(re.findall(r"redis://[^\s\"/]*?@?([\w-]+):6379", text))
    server = yaml.safe_load_all((DEPLOY / "kubernetes" / "server.yaml").read_text(encoding="utf-8"))
    assert hosts <= {"server", *(each["metadata"]["name"] for each in server)}
    for name in re.findall(r"(?:deploy/|-f )([\w-]+\.yaml|Dockerfile)", text):
        assert [*DEPLOY.rglob(name)], name


def test_the_image_has_what_the_workers_name():
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = " ".join(re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE)).split()
    assert len(copied) > 3
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {each.removeprefix("!") for each in ignored if each.startswith("!")}
    assert sent == {*copied}
    assert all((ROOT / each).exists() for each in sent)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    in_wheel = re.findall(r'^"(\S+)" = "scrapy_aopic/', project, re.MULTILINE)
    assert [each for each in in_wheel if not any(f"{each}/".startswith(f"{name}/") for name in sent)] == []
    user = re.findall(r"^RUN useradd --uid (\d+) ", text, re.MULTILINE)
    assert user == re.findall(r"^USER (.+)$", text, re.MULTILINE), "a number: Kubernetes cannot look names up"
    disks = (DEPLOY / "kubernetes" / "workers-on-disks.yaml").read_text(encoding="utf-8")
    assert user == re.findall(r"fsGroup: (\d+)", disks)
    (folder,) = re.findall(r"mountPath: (\S+)", disks)
    assert f"mkdir {folder} && chown crawler {folder}" in text
    assert f"WORKDIR {folder}" in text.splitlines()
    assert set(re.findall(r"seeds=(\S+)", "".join(each.read_text(encoding="utf-8") for each in FILES))) == {
        "/crawl/seeds.txt"
    }


def test_the_unit_of_systemd_has_a_command_that_is_one():
    text = (DEPLOY / "systemd" / "broad-crawl.service").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ExecStart=\S+/scrapy aopic crawl (.+)$", text, re.MULTILINE)
    parser = argparse.ArgumentParser()
    parser.add_argument("-s", action="append")
    crawl_command.add_options(parser)
    options = parser.parse_args(shlex.split(command))
    assert options.seeds == ["https://example.org/"]
    for each in options.s:
        name, _, value = each.partition("=")
        read({name: value}, name)
    home = re.findall(r"^WorkingDirectory=(.+)$", text, re.MULTILINE)
    assert home == [f"/var/lib/{name}" for name in re.findall(r"^StateDirectory=(.+)$", text, re.MULTILINE)]
    assert re.findall(r"aopic status (\S+)", text) == [f"{home[0]}/{options.job}"]


def test_kubernetes_would_accept_each_resource():
    validator = pytest.importorskip("kubernetes_validate")
    kinds = []
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            validator.validate(document, validator.latest_version(), strict=True)
            kinds.append(document["kind"])
    assert sorted(kinds) == ["Deployment", "Service", "Service", "StatefulSet", "StatefulSet"]


def test_compose_would_accept_its_file():
    compose = pytest.importorskip("compose_spec").PyCompose
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    read = compose.from_yaml(text)
    read.validate()
    assert set(read.service_names()) == {"server", "worker", "aopic"}
    with pytest.raises(ValueError, match="restart"):
        compose.from_yaml(text.replace("restart: unless-stopped", "restart: perhaps"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_accepts_the_unit(tmp_path):
    text = (DEPLOY / "systemd" / "broad-crawl.service").read_text(encoding="utf-8")
    unit = tmp_path / "broad-crawl.service"
    unit.write_text(text.replace("/opt/crawl/bin/scrapy", sys.executable), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


needs_server = pytest.mark.skipif(redis_server.find_server() is None, reason=redis_server.WHY_NOT)


@needs_server
@pytest.mark.parametrize("server", SERVERS, ids=lambda each: each[0].name)
def test_a_server_with_these_options_suits_a_job(server, tmp_path, caplog):
    pytest.importorskip("redis")
    _, _, arguments, around = server
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    if around["memory"]:
        assert size(options["--maxmemory"]) * 1.5 <= size(around["memory"]), (
            "its log is rewritten by a copy of it"
        )
    password = "x" * (options.pop("--requirepass", "") != "")
    named = {name.removeprefix("--").replace("-", "_"): value for name, value in options.items()}
    with Server(tmp_path, **named, **({"requirepass": password} if password else {})) as running:
        address = Address("aopic:broad", running.url, {"password": password} if password else {})
        link = connect(address)
        check_server(link, address)
        link.close()
    assert caplog.text == "", "nothing to warn of"


@needs_server
@pytest.mark.slow
@pytest.mark.parametrize("worker", WORKERS, ids=lambda each: each[0].name)
def test_a_worker_starts_by_its_command_and_is_healthy(worker, tmp_path):
    pytest.importorskip("hiredis")
    port = free_port()
    with Server(tmp_path / "server", requirepass="x") as server:
        changes = {
            "$(REDIS_PASSWORD)": "x",
            "$(DASHBOARD_TOKEN)": "t" * 20,
            "redis://server:": "redis://:x@server:",
            "@broad-server:6379": f"@127.0.0.1:{server.port}",
            "@server:6379": f"@127.0.0.1:{server.port}",
            "0.0.0.0:6810": f"0.0.0.0:{port}",
            "/data/job": str(tmp_path / "job"),
            "seeds=/crawl/seeds.txt": f"seeds={DEPLOY / 'seeds.txt'}",
        }
        line = list(worker[2])
        for old, new in changes.items():
            line = [part.replace(old, new) for part in line]
        if "AOPIC_DASHBOARD=" not in " ".join(line):
            line += ["-s", f"AOPIC_DASHBOARD=127.0.0.1:{port}", "-s", "AOPIC_DASHBOARD_TOKEN=" + "t" * 20]
        # Nothing is listening there: no crawl leaves this machine.
        environment = {**os.environ, "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
        log = tmp_path / "log"
        with log.open("wb") as file:
            process = processes.start(
                [sys.executable, "-m", "scrapy", *line],
                cwd=ROOT / "example_project",
                env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
                stderr=file,
            )
        try:
            assert healthy(process, port, log) == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()
        assert "This worker holds" in log.read_text()
        assert "Traceback" not in log.read_text()


def healthy(process: processes.Process, port: int, log: Path) -> int:
    """Status of the worker's health, asked for as a kubelet does: by an address."""
    question = urllib.request.Request(
        f"http://127.0.0.1:{port}/healthz", headers={"Host": f"10.1.2.3:{port}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with opener.open(question, timeout=5) as response:
                if "This worker holds" in log.read_text():
                    return int(response.status)
        except urllib.error.URLError as error:
            if isinstance(error, urllib.error.HTTPError) and error.code != 503:
                return int(error.code)
        time.sleep(0.1)
    raise AssertionError(log.read_text())
