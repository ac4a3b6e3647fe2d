"""Arrows point inwards: the core decides, storage remembers, one folder knows Scrapy's private names."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scrapy.settings import Settings
from support import import_graph

import scrapy_aopic
from scrapy_aopic.core.frontier.host_state import HostState
from scrapy_aopic.core.records import Page
from scrapy_aopic.exceptions import SettingError
from scrapy_aopic.settings import SETTINGS, Values, read_values

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(scrapy_aopic.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
LAYERS = {"core": {"core", "exceptions"}, "storage": {"core", "exceptions", "storage"}}

# No clock, no randomness, no files, no threads: time is an argument, and bytes go through the port.
CORE_MAY_IMPORT = {
    "__future__", "array", "bisect", "collections", "contextlib", "dataclasses", "enum", "fnmatch", "functools", "hashlib", "heapq", "itertools",
    "math", "msgspec", "operator", "re", "struct", "typing", "unicodedata", "zlib",
}  # fmt: skip
ONLY_WHEN_CALLED = {"numpy": "graph.py"}
OF_ONE_BACKEND = {
    "rocksdict": "rocksdb.py",
    "sqlite3": "sqlite.py board.py known_bodies.py",
    "redis": "connection.py",
    "hiredis": "connection.py",
}

# Attributes of Scrapy's engine, downloader, slots and middleware managers that no documentation promises.
PRIVATE_IN_SCRAPY = {
    "_add_middleware", "_crawl", "_downloader", "_get_slot", "_get_slot_key", "_needs_backout", "_process_queue",
    "_schedule_request", "_slot", "_slot_gc", "_slot_gc_loop", "_spider_idle", "_start_scheduled_requests",
    "_start_slot_gc", "inprogress", "nextcall",
}  # fmt: skip

# The socket of a connection, for which redis-py has no public name; it is looked for at every connection.
PRIVATE_IN_OTHERS = {"storage/redis/connection.py": {"_sock"}}

OF_PRIVATE_MATTERS = PACKAGE / "_engine"

# Underscored by Python, but documented.
OF_NAMED_TUPLES = {"_asdict", "_exit", "_field_defaults", "_fields", "_make", "_replace"}


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All that the file at *path* is made of."""
    return [*ast.walk(import_graph.tree_of(path))]


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports(path: Path) -> Iterator[str]:
    """Absolute names of the modules that *path* imports."""
    parents = ("scrapy_aopic", *path.relative_to(PACKAGE).parts[:-1])
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = parents[: len(parents) - node.level + 1]
            tail = (node.module,) if node.module else (alias.name for alias in node.names)
            yield from (".".join((*base, each)) for each in tail)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names_used(tree: list[ast.AST]) -> set[str]:
    """Private attributes, plain or by ``getattr``, that are used in *tree* but not defined, and Scrapy's ones."""
    used: set[str] = set()
    defined = set(OF_NAMED_TUPLES)
    for node in tree:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                defined.add(name)
            case ast.Attribute(attr=name) if is_private(name) or name in PRIVATE_IN_SCRAPY:
                used.add(name)
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" | "setattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ):
                used.update({name} if is_private(name) or name in PRIVATE_IN_SCRAPY else ())
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "scrapy":
                used.update(alias.name for alias in names if is_private(alias.name))
                used.update(part for part in module.split(".") if is_private(part))
    of_itself = {
        node.attr
        for node in tree
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in {"self", "cls"}
    }
    # An object may use its own attribute whatever it is called; of others, Scrapy's names are out in any case.
    return (used - defined) | {name for name in used & PRIVATE_IN_SCRAPY if name not in of_itself}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_layers_further_in(layer):
    for path in (PACKAGE / layer).rglob("*.py"):
        for name in imports(path):
            top, _, rest = name.partition(".")
            if top == "scrapy_aopic":
                assert rest.partition(".")[0] in LAYERS[layer], f"{name_of(path)} imports {name}"


def test_the_core_imports_nothing_that_reads_the_world():
    for path in (PACKAGE / "core").rglob("*.py"):
        foreign = {name.partition(".")[0] for name in imports(path)} - CORE_MAY_IMPORT - {"scrapy_aopic"}
        foreign = {name for name in foreign if ONLY_WHEN_CALLED.get(name) != path.name}
        assert not foreign, f"{name_of(path)} imports {foreign}"


def test_storage_imports_nothing_but_python_and_in_its_own_file_each_backend():
    for path in (PACKAGE / "storage").rglob("*.py"):
        for top in {name.partition(".")[0] for name in imports(path)} - {"scrapy_aopic"}:
            assert path.name in OF_ONE_BACKEND.get(top, path.name).split(), f"{name_of(path)} imports {top}"
            assert top in sys.stdlib_module_names or top in OF_ONE_BACKEND, f"{name_of(path)} imports {top}"


def without_leaves(left: dict[str, set[str]]) -> dict[str, set[str]]:
    """*left*, what each imports, without what is in no circle and leads to none."""
    while leaves := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in leaves}
    return left


def test_nothing_is_imported_in_a_circle():
    for folder in {path.parent for path in FILES}:
        assert without_leaves(import_graph.arrows("" if folder == PACKAGE else name_of(folder))) == {}, folder


def test_no_files_import_each_other_not_even_for_types():
    of_each = {name: import_graph.imports(name, for_types=True) for name in import_graph.modules()}
    assert without_leaves(of_each) == {}
    assert without_leaves({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}).keys() == {"a", "b", "c"}


def test_private_names_of_scrapy_are_touched_in_one_folder_only():
    files = [path for path in FILES if path.parent != OF_PRIVATE_MATTERS]
    used = {path: private_names_used(nodes(path)) for path in files}
    assert {name_of(path): names for path, names in used.items() if names} == PRIVATE_IN_OTHERS


def test_private_names_are_noticed_however_they_are_reached():
    for source, found in {
        "engine._slot.nextcall.schedule()": {"_slot", "nextcall"},
        "getattr(engine, '_slot', None)": {"_slot"},
        "class Mine(Slot):\n def f(self):\n  self._hidden()": {"_hidden"},
        "from scrapy.core._x import f": {"_x"},
        "from scrapy.core.downloader import _get_concurrency_delay": {"_get_concurrency_delay"},
        "def f(_slot):\n x._slot = 1\n x._slot": {"_slot"},
        "class Mine:\n def f(self):\n  self._slot = 1\n  return self._slot": set(),
        "class Mine:\n def f(self, other):\n  self._mine = other._mine": set(),
    }.items():
        assert private_names_used([*ast.walk(ast.parse(source))]) == found, source


ASKS_FOR_THE_KIND_OF_A_PLACE = {
    "commands/common.py",
    "commands/crawl_command.py",
    "commands/move.py",
    "copies/moving.py",
    "view/auditing.py",
    "view/shard_states.py",
}
"""Files at the edge: what a user may not ask of one kind, or one kind cannot do. All others ask the place itself."""


def test_only_the_edge_asks_whether_a_job_is_in_a_folder_or_on_a_server():
    kinds = {"FolderPlace", "ServerPlace", "Address"}
    asking = {
        name_of(path)
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and kinds & {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
    }
    assert asking - ASKS_FOR_THE_KIND_OF_A_PLACE == set()


def loaded(imports: str, of: str = "{name.partition('.')[0] for name in sys.modules}") -> set[str]:
    """What a new process has loaded once it has imported *imports*: packages, or what the expression *of* says."""
    program = f"import sys, {imports}\nprint(*{of})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {*done.stdout.split()}


def test_the_core_can_be_imported_without_scrapy_numpy_and_a_backend():
    paths = [path for path in (PACKAGE / "core").rglob("*.py") if path.stem != "__init__"]
    modules = [f"scrapy_aopic.{name_of(path.with_suffix('')).replace('/', '.')}" for path in paths]
    assert "scrapy_aopic.core.crawl" in modules
    foreign = {"scrapy", "twisted", "numpy", "rocksdict", "sqlite3", "tqdm", "asyncio"}
    assert loaded(", ".join(modules)) & foreign == set()


def test_a_crawl_loads_no_library_that_it_may_not_need():
    parts = "scrapy_aopic.extensions, scrapy_aopic.scheduler, scrapy_aopic.downloadermiddlewares"
    of_some = {"tqdm", "numpy", "sqlite3", "rocksdict", "redis", "pyarrow", "matplotlib"}
    assert loaded(parts) & of_some == set()


def test_commands_of_scrapy_do_not_load_the_package():
    """Scrapy loads the files of ``commands`` at every call, ``scrapy version`` included."""
    first = {name for name in loaded("scrapy_aopic", "sys.modules") if name.startswith("scrapy")}
    assert first == {"scrapy_aopic", "scrapy_aopic.version"}
    then = loaded("scrapy.commands, scrapy_aopic.commands", "sys.modules")
    own = {name.removeprefix("scrapy_aopic.") for name in then if name.startswith("scrapy_aopic.")}
    own = {name for name in own if not name.startswith("commands")}
    assert own == {"exceptions", "version", "view", "view.output"}


INSIDE_A_CRAWL = {"live", "questions", "url_settings"}
"""Files of ``view`` that look at a crawl of this process, or read what it would be set to."""


def test_a_job_folder_can_be_read_written_and_salvaged_without_scrapy():
    """A dashboard, or a tool that looks at jobs, needs neither Scrapy nor a reactor."""
    modules = [
        f"scrapy_aopic.{folder}.{path.stem}"
        for folder in ("job", "place", "seeds", "copies", "view")
        for path in (PACKAGE / folder).glob("*.py")
        if path.stem not in {"__init__", *INSIDE_A_CRAWL}
    ]
    assert loaded(", ".join(modules)) & {"scrapy", "twisted"} == set()


ROOT = PACKAGE.parent
OUT_OF = re.compile(
    r"^ *from ((?:scrapy_aopic|support|test_)[\w.]*) import (?:\(([^()]*)\)|([\w, ]+))", re.MULTILINE
)


def taken(path: Path) -> Iterator[tuple[str, str]]:
    """What *path* imports out of modules: their names and its own; as text, for there are many files."""
    for module, several, one in OUT_OF.findall(path.read_text(encoding="utf-8")):
        names = re.sub("#.*", "", several or one).split(",")
        yield from ((module, name.split()[0]) for name in names if name.strip())


@cache
def is_there(module: str, name: str) -> bool:
    return hasattr(importlib.import_module(module), name) or bool(
        importlib.util.find_spec(f"{module}.{name}")
    )


def test_what_is_imported_of_the_package_is_there():
    for path in [each for top in ("benchmarks", "example_project") for each in (ROOT / top).rglob("*.py")]:
        for module, name in taken(path):
            if module.partition(".")[0] == "scrapy_aopic":
                assert is_there(module, name), f"{path.name}: {module}.{name}"


def readings(path: Path) -> list[str]:
    """Settings of the package that the file at *path* reads by their names."""
    named = [
        *(
            node.args
            for node in nodes(path)
            if isinstance(node, ast.Call) and READ.search(ast.unparse(node.func))
        ),
        *(
            [node.slice]
            for node in nodes(path)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
        ),
    ]
    constants = [each.value for some in named for each in some if isinstance(each, ast.Constant)]
    return [each for each in constants if each in SETTINGS]


READ = re.compile(r"\b(read|get(int|bool|float|list|dict|withbase)?)$")


def test_each_setting_is_read_in_one_place():
    assert [f"AOPIC_{name.upper()}" for name in Values.__annotations__ if name != "given"] == list(SETTINGS)
    found = {name_of(path): readings(path) for path in FILES if path.parent.name != "settings"}
    assert {name: read for name, read in found.items() if read} == {
        "addon.py": [
            "AOPIC_WORKERS",  # whether this process is to crawl at all
            "AOPIC_URL_LIMITS",  # the default, which it completes
        ],
        "commands/dashboard.py": ["AOPIC_DASHBOARD"],  # an option of a command
        "commands/main.py": ["AOPIC_STORE"],  # whether it is set at all
        "dashboard/serving.py": ["AOPIC_DASHBOARD"],  # as it was written, for a message
    }


def test_a_setting_is_checked_when_it_is_asked_for_and_then_stays():
    values = read_values({"AOPIC_STORE": "mysql", "AOPIC_MIN_GAP": 5})
    assert values.min_gap == 5
    with pytest.raises(SettingError, match="AOPIC_STORE"):
        _ = values.store
    with pytest.raises(AttributeError):
        values.min_gap = 6
    with pytest.raises(AttributeError):
        _ = values.no_setting
    settings = Settings()
    settings.freeze()
    values = read_values(settings)
    assert read_values(settings) is values


def test_no_two_modules_of_tests_have_one_name():
    # pytest takes the second one for the first, and collects neither, but only if both are collected in one run.
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, n in names.items() if n > 1] == []


def test_no_two_files_and_no_two_classes_of_the_package_share_a_name():
    files = Counter(path.name for path in FILES if path.name != "__init__.py")
    classes = Counter(node.name for path in FILES for node in nodes(path) if isinstance(node, ast.ClassDef))
    assert [name for name, n in [*files.items(), *classes.items()] if n > 1] == []


def test_modules_of_tests_share_nothing_but_what_is_in_support():
    # What one takes from another is gone as soon as that is tidied up, and is noticed only if both are collected.
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        for module, name in taken(path):
            assert not module.startswith("test_"), path.name
            if module.partition(".")[0] in {"scrapy_aopic", "support"}:
                assert is_there(module, name), f"{path.name}: {module}.{name}"


@cache
def assigned(path: Path) -> list[ast.Attribute]:
    """Attributes that the file at *path* assigns or deletes, but not those of ``self``."""
    return [
        node
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and not isinstance(node.ctx, ast.Load)
        and getattr(node.value, "id", "") != "self"
    ]


def test_what_happens_to_a_visit_is_told_to_it_by_methods():
    for path in FILES:
        if path.stem != "visit":
            for node in assigned(path):
                assert not ast.unparse(node.value).endswith("visit"), f"{name_of(path)}:{node.lineno}"


NOT_PAGES = {"account", "found", "ledger", "post", "result", "self.budgets", "spider", "totals", "whole"}
"""What has attributes with names of a page's."""


def test_a_record_of_a_page_is_changed_by_its_owners():
    owners = {"pages", "ledger", "window", "records"}  # window: for the ledger
    fields = set(Page.__struct_fields__)
    assert [
        f"{name_of(path)}:{node.lineno}"
        for path in FILES
        for node in assigned(path)
        if node.attr in fields and ast.unparse(node.value) not in NOT_PAGES and path.stem not in owners
    ] == []


OWNERS_OF_HOSTS = {
    "back_queue": "back_queue best heard_at is_whole looked_up_to passed_over",
    "budgets": "visited",
    "domains": "domain",
    "frontier": "allowed at_once queued rests_until transfer",
    "gates": "address entered gates is_located",
    "host_places": "heap held_until leased_at rank row",
    "host_state": "not_before phase",
    "politeness": "broken crawl_delay down errors silent",
}
"""Fields of a host, by the file of the core that assigns them."""


def test_each_field_of_a_host_has_one_owner():
    fields = set(HostState.__struct_fields__)
    owners: dict[str, set[str]] = {}
    for path in FILES:
        for node in assigned(path):
            if node.attr in fields and ast.unparse(node.value) in {"host", "pace"}:
                owners.setdefault(node.attr, set()).add(path.stem)
    assert owners == {field: {owner} for owner, of in OWNERS_OF_HOSTS.items() for field in of.split()}


WITHOUT_EXTRAS = """
import importlib, pkgutil, sys

class NotInstalled:
    def find_spec(name, *_):
        if name.partition(".")[0] in EXTRAS:
            raise ImportError(name)

EXTRAS = set(sys.argv[1:])
sys.meta_path.insert(0, NotInstalled)
import scrapy_aopic
for module in pkgutil.walk_packages(scrapy_aopic.__path__, "scrapy_aopic."):
    try:
        importlib.import_module(module.name)
    except ImportError:
        print(module.name)
"""


def test_a_crawl_needs_no_extra():
    """Only these modules are about an extra alone, and imported where that is asked for."""
    extras = ("hiredis", "hypothesis", "matplotlib", "numpy", "pyarrow", "pybloom_live", "pytest")
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *extras, "redis", "rocksdict", "uvloop", "warcio"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert {name.removeprefix("scrapy_aopic.") for name in done.stdout.split()} == {
        "lab.comparison", "lab.graphs", "lab.planted", "lab.results", "storage.redis.store",
        "storage.redis.read_ahead", "storage.redis.transaction", "storage.redis.connection",
        "storage.rocksdb",
    }  # fmt: skip
