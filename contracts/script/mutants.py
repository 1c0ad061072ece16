"""Does a test notice when one line of the money paths is wrong?

    python -m contracts.script.mutants [--only WORD] [--list]

Every fault of `faults.py` is built in at once, each behind a switch: `Mutant.on(k)` reads the
block's proposer, which forge sets. So the contracts compile once, and one fault at a time runs
against the unit tests. Prints a table; exit 1 when a fault survives or no longer fits its line.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from contracts.script.fault import Fault
from contracts.script.faults import FAULTS

PROJECT = Path(__file__).resolve().parents[1]
REPOSITORY = PROJECT.parent
WORKSHOP = REPOSITORY / ".tools" / "mutants"
TESTS = ("--no-match-path", "test/{gas,fuzz,invariant,symbolic}/**")
SWITCH = """// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @dev Which fault is on. Pure to the compiler, so that a fault can stand anywhere.
library Mutant {
    function on(uint256 k) internal pure returns (bool) {
        function(uint256) view returns (bool) reads = _on;
        function(uint256) pure returns (bool) told;
        assembly {
            told := reads
        }
        return told(k);
    }

    function _on(uint256 k) private view returns (bool) {
        return uint160(address(block.coinbase)) == k;
    }
}
"""


class Unfit(Exception):
    """A fault that does not fit the sources any more."""


def main() -> int:
    """Build once, run each fault; the exit status."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument("--only", default="", help="faults whose file or name has this word")
    options.add_argument("--list", action="store_true", help="say which there are")
    asked = options.parse_args()
    numbered = list(enumerate(FAULTS, start=1))
    chosen = [(k, f) for k, f in numbered if asked.only.lower() in f"{f.file} {f.what}".lower()]
    if asked.list:
        for k, fault in chosen:
            print(f"{k:>3}  {fault.file:<30}{fault.what}")
        return 0
    try:
        prepare()
    except Unfit as misfit:
        print(f"mutants: {misfit}", file=sys.stderr)
        return 1
    if broken := failing(0):
        print(f"left out, since they fail without a fault: {', '.join(sorted(broken))}")
    survivors = [k for k, fault in chosen if not caught(k, fault, broken)]
    print(f"\n{len(chosen) - len(survivors)} of {len(chosen)} faults caught")
    return 1 if survivors else 0


def prepare() -> None:
    """The project again, with every fault in it. Raises Unfit."""
    project = WORKSHOP / "contracts"
    project.mkdir(parents=True, exist_ok=True)
    for name in ("src", "test"):
        _mirror(PROJECT / name, project / name)
    for name in ("foundry.toml", "solcjs-native.mjs", "package.json"):
        shutil.copy2(PROJECT / name, project / name)
    for link, target in (
        (project / "node_modules", PROJECT / "node_modules"),
        (WORKSHOP / "tests", REPOSITORY / "tests"),
        (WORKSHOP / "cloud_gpu", REPOSITORY / "cloud_gpu"),
    ):
        if not link.exists():
            link.symlink_to(target)
    _write(project / "src" / "libraries" / "Mutant.sol", SWITCH)
    for file in sorted({fault.file for fault in FAULTS}):
        path = PROJECT / "src" / file
        text = path.read_text("utf-8")
        for k, fault in enumerate(FAULTS, start=1):
            if fault.file == file:
                text = infected(text, k, fault)
        _write(project / "src" / file, _with_import(text, file))


def infected(text: str, k: int, fault: Fault) -> str:
    """A source with one more switched fault. Raises Unfit."""
    if text.count(fault.where) != 1 or fault.where.count(fault.before) != 1:
        raise Unfit(
            f"fault {k} ({fault.file}: {fault.what}): found {text.count(fault.where)} times"
            f" {fault.where!r} and in it {fault.where.count(fault.before)} times"
            f" {fault.before!r}, needed one. Fit it to the source, or take another"
        )
    if fault.before.endswith(";"):
        switched = f"if (Mutant.on({k})) {{ {fault.after} }} else {{ {fault.before} }}"
    else:
        switched = f"(Mutant.on({k}) ? ({fault.after}) : ({fault.before}))"
    return text.replace(fault.where, fault.where.replace(fault.before, switched))


def caught(k: int, fault: Fault, left_out: frozenset[str]) -> bool:
    """Whether a test fails with the fault; prints its line."""
    began = time.monotonic()
    noticed = failing(k, left_out)
    spent = time.monotonic() - began
    word = "caught" if noticed else "SURVIVED"
    print(f"{k:>3}  {fault.file:<28}{fault.what:<50}{word:<9}{spent:>5.1f} s", flush=True)
    return bool(noticed)


def failing(k: int, left_out: frozenset[str] = frozenset()) -> frozenset[str]:
    """Tests that fail with fault `k` on (0: none); the first one ends the run, where k is not 0."""
    found = sorted(PROJECT.glob("node_modules/@foundry-rs/forge-*/bin/forge*"))
    if not found:
        raise SystemExit("mutants: forge is not installed. Run `npm ci` in contracts/ first.")
    command = [str(found[0]), "test", *TESTS, "--block-coinbase", f"0x{k:040x}"]
    command += ["--fail-fast"] if k else []
    command += ["--no-match-test", f"^({'|'.join(sorted(left_out))})$"] if left_out else []
    done = subprocess.run(
        command,
        cwd=WORKSHOP / "contracts",
        env={**os.environ, "FOUNDRY_PROFILE": "mutants"},
        capture_output=True,
        text=True,
        check=False,
    )
    names = frozenset(re.findall(r"^\[FAIL[^\n]*\] (\w+)\(", done.stdout, re.MULTILINE))
    if "Suite result" not in done.stdout or bool(names) is not bool(done.returncode):
        print(done.stdout[-3000:], done.stderr[-3000:], file=sys.stderr)
        raise SystemExit("mutants: forge did not run the tests; see above")
    return names


def _with_import(text: str, file: str) -> str:
    up = "../" * file.count("/")
    found = re.search(r"^pragma [^\n]*\n", text, re.MULTILINE)
    assert found is not None, f"{file} has no pragma"
    line = f'import {{Mutant}} from "./{up}libraries/Mutant.sol";\n'
    return text[: found.end()] + line + text[found.end() :]


def _mirror(source: Path, target: Path) -> None:
    """Equal files are not touched: forge compiles by their content and time."""
    wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    for old in [path for path in target.rglob("*") if path.is_file()]:
        if old.relative_to(target) not in wanted:
            old.unlink()
    for path in wanted:
        if (
            not (target / path).exists()
            or (target / path).read_bytes() != (source / path).read_bytes()
        ):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / path, target / path)


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text("utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
