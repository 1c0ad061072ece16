"""House rules that no linter knows: sizes, dead modules, words, a light import, clean files."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: tuple[str, ...] = tuple(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
HEAD_LINES_MAX = 8

VAGUE_WORDS = {"manager", "helper", "util", "utils", "handler", "base", "info"}
"""They say that a class does something, and not what. Checked in the names of classes."""

OTHER_WORDS = {
    "seller": "provider",
    "tenant": "buyer",
    "renter": "buyer",
    "requestor": "buyer",
    "requester": "buyer",
    "deal": "match or fill",
    "rental": "lease",
    "agreement": "lease",
    "stake": "bond",
    "validator": "verifier, or the check by its name",
    "arbiter": "referee",
    "sku": "product",
}
"""The "not" column of GLOSSARY.md, where the word has no innocent second meaning in our code.

Checked in the names of classes, fields and parameters.
"""

BANNED_FILE_NAMES = {
    "common",
    "shared",
    "core",
    "util",
    "utils",
    "helper",
    "helpers",
    "misc",
    "info",
}

MACHINE_PATH = re.compile(r"(?<![\w./-])/(?:work|root|home/\w+|Users/\w+)/[\w.]")
REGISTRY_HOST = re.compile(
    r"(?:pypi\.org|pythonhosted\.org|registry\.npmjs\.org|registry\.yarnpkg\.com|deb\.debian\.org)"
)


@cache
def tracked() -> tuple[Path, ...]:
    """Files that git tracks, or would if they were added; those deleted since are left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return tuple(path for path in paths if path.is_file())


def python_files(*folders: str) -> list[Path]:
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders
    ]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def is_generated(path: Path) -> bool:
    return "Generated from" in (ast.get_docstring(tree(path)) or "")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


EVERYWHERE = (*PACKAGES, "tests", "benchmarks", "contracts")


def test_modules_hold_one_noun() -> None:
    long = {
        shown(path): lines
        for path in python_files(*EVERYWHERE)
        if not is_generated(path)
        and (lines := len(path.read_text().splitlines())) > MODULE_LINES_MAX
    }
    assert not long, f"over {MODULE_LINES_MAX} lines; split by noun: {long}"


def test_functions_fit_on_a_screen() -> None:
    long = {
        f"{shown(path)}:{node.name}": lines
        for path in python_files(*EVERYWHERE)
        for node in functions(path)
        if node.end_lineno is not None
        and (lines := node.end_lineno - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert not long, f"over {FUNCTION_LINES_MAX} lines: {long}"


def test_every_module_says_in_its_head_what_it_is_for() -> None:
    wrong = []
    for path in python_files(*PACKAGES):
        head = ast.get_docstring(tree(path))
        if head is None and path.read_text().strip():
            wrong.append(f"{shown(path)} has none")
        elif head is not None and len(head.splitlines()) > HEAD_LINES_MAX:
            wrong.append(f"{shown(path)} has more than {HEAD_LINES_MAX} lines")
    assert not wrong, wrong


def test_protocol_package_head_is_empty() -> None:
    """Whoever imports one noun of the protocol must not load the others."""
    assert (ROOT / "cloud_gpu/protocol/__init__.py").read_text() == ""


def imported_modules(path: Path) -> set[str]:
    """Absolute names that a file imports; `from a import b` counts as both a and a.b."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                package = module_name(path).split(".")
                keep = len(package) - node.level + (path.name == "__init__.py")
                origin = ".".join([*package[:keep], *([origin] if origin else [])])
            found.add(origin)
            found.update(f"{origin}.{alias.name}" for alias in node.names)
    return found


def entry_points() -> set[str]:
    return {target.partition(":")[0] for target in PROJECT["project"]["scripts"].values()}


def module_strings(path: Path) -> set[str]:
    """Modules named in strings: started with `python -m`, or fetched lazily."""
    return {
        node.value
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+", node.value)
    }


def test_no_module_is_dead() -> None:
    """A module is reached from our packages or is an entry point; tests alone keep none alive."""
    used = entry_points()
    for path in python_files(*PACKAGES):
        used |= imported_modules(path) | module_strings(path)
    dead = [
        shown(path)
        for path in python_files(*PACKAGES)
        if path.name not in ("__init__.py", "__main__.py")
        and "testing" not in path.parts  # made for users' tests
        and "migrations" not in path.parts  # found by alembic
        and module_name(path) not in used
    ]
    assert not dead, f"imported by nothing: {dead}"


def words(identifier: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", identifier)
    return [word.lower() for word in re.split(r"[\s_]+", spaced) if word]


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [("OrderManager", "manager"), ("_BaseStore", "base"), ("RenterID", "renter")],
)
def test_words_of_an_identifier_are_found(identifier: str, expected: str) -> None:
    assert expected in words(identifier)


def test_names_come_from_the_glossary() -> None:
    wrong = []
    for path in python_files(*PACKAGES):
        if path.stem in BANNED_FILE_NAMES:
            wrong.append(f"{shown(path)}: names a convenience, not a meaning")
        for node in ast.walk(tree(path)):
            name, checked = name_and_banned_words(node)
            wrong += [
                f"{shown(path)}: {name} ({word}: {OTHER_WORDS.get(word, 'say what it does')})"
                for word in words(name)
                if word in checked
            ]
    assert not wrong, wrong


def name_and_banned_words(node: ast.AST) -> tuple[str, set[str]]:
    match node:
        case ast.ClassDef(name=name):
            return name, VAGUE_WORDS | OTHER_WORDS.keys()
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.arg(arg=name):
            return name, set(OTHER_WORDS)
        case _:
            return "", set()


def test_the_package_imports_nothing_when_loaded() -> None:
    program = (
        "import sys; before = set(sys.modules); import cloud_gpu\n"
        "print(*sorted(set(sys.modules) - before - {'cloud_gpu'}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"web3", "libp2p", "trio", "anyio", "eth_account", "httpx", "typer", "msgspec"}
    assert not heavy & {name.partition(".")[0] for name in loaded}
    assert not [name for name in loaded if name.startswith("cloud_gpu.")]


@pytest.mark.parametrize("party", ["node", "verifier"])
def test_a_command_that_runs_no_daemon_waits_for_no_library_of_one(party: str) -> None:
    program = f"import sys, {party}.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"libp2p", "docker", "eth_abi", "httpx"} & set(loaded)


def test_every_public_name_can_be_fetched() -> None:
    program = (
        "import cloud_gpu\n"
        "for name in cloud_gpu.__all__: getattr(cloud_gpu, name)\n"
        "assert set(cloud_gpu.__all__) <= set(dir(cloud_gpu))\n"
        "try: cloud_gpu.nonsense\n"
        "except AttributeError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert said.stdout == "module 'cloud_gpu' has no attribute 'nonsense'\n"


def test_an_sdk_user_may_have_files_named_like_our_packages(tmp_path: Path) -> None:
    for name in ("protocol", "node", "market", "verifier"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong file was imported')\n")
    subprocess.run(
        [sys.executable, "-c", "from cloud_gpu import Session"], cwd=tmp_path, check=True
    )


def tracked_text() -> Iterator[tuple[Path, str]]:
    for path in tracked():
        try:
            yield path, path.read_text()
        except UnicodeDecodeError:
            continue  # pictures and archives


def test_files_name_no_path_of_one_machine_and_no_registry_host() -> None:
    wrong = [
        f"{shown(path)}:{number}: {found[0]}"
        for path, text in tracked_text()
        if path != Path(__file__).resolve()
        for number, line in enumerate(text.splitlines(), 1)
        if (found := MACHINE_PATH.search(line) or REGISTRY_HOST.search(line))
    ]
    assert not wrong, wrong


@pytest.mark.parametrize("lock", ["requirements.lock", "chain.lock"])
def test_python_locks_pin_by_hash_and_name_no_host(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=[a-z])", text.strip())
    assert entries
    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)


def test_npm_locks_pin_by_hash_and_name_no_host() -> None:
    locks = [path for path in tracked() if path.name == "package-lock.json"]
    assert locks
    for path in locks:
        text = path.read_text()
        assert '"resolved"' not in text, shown(path)
        assert '"integrity": "sha512-' in text, shown(path)
