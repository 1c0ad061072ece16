"""Write the contracts' ABI and bytecode where Python finds them, or say that they are stale.

    python contracts/script/export.py [--check]

Builds with forge (npm's solc; `node` must be on PATH) unless the build is current. With --check
nothing is written: exit 1 when the committed files differ from a fresh build.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

PROJECT = Path(__file__).resolve().parents[1]
PACKAGE = PROJECT.parent / "cloud_gpu" / "protocol" / "contracts"
CONTRACTS = {"LeaseBook": ("BackOffice",), "PaymentToken": ()}
"""What is exported, with the contracts whose functions its fallback answers."""
CODE_BYTES_MAX = 24_576  # EIP-170


def main() -> int:
    """Build, then write or compare; the exit status."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument(
        "--check", action="store_true", help="compare with the committed files only"
    )
    check = options.parse_args().check
    try:
        build()
        built = {name: render(name, parts) for name, parts in CONTRACTS.items()}
    except ExportFailed as failure:
        print(f"contracts: {failure}", file=sys.stderr)
        return 1
    stale = [name for name, text in built.items() if committed(name) != text]
    if check and stale:
        print(
            f"contracts: {', '.join(stale)} in {PACKAGE.relative_to(PROJECT.parent)} differ from a"
            " fresh build. Run `make contracts` and commit the result.",
            file=sys.stderr,
        )
        return 1
    PACKAGE.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (PACKAGE / f"{name}.json").write_text(built[name], encoding="utf-8")
    print(
        f"contracts: {len(built)} current" + (f", rewritten: {', '.join(stale)}" if stale else "")
    )
    return 0


class ExportFailed(Exception):
    """The build is missing or unusable; the text says what to do."""


def build() -> None:
    """Compile the sources."""
    # The platform's own binary: npm's shim for it exits 0 whatever happened.
    found = sorted(PROJECT.glob("node_modules/@foundry-rs/forge-*/bin/forge*"))
    if not found:
        raise ExportFailed("forge is not installed. Run `npm ci` in contracts/ first.")
    command = [str(found[0]), "build", "--skip", "test", "script"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExportFailed(f"forge build failed:\n{done.stdout}{done.stderr}")


def render(name: str, parts: tuple[str, ...]) -> str:
    """One contract's package data as JSON text; equal sources and compiler give equal text."""
    artifact = artifact_of(name)
    metadata = artifact["metadata"]
    bytecode = artifact["bytecode"]
    runtime = artifact["deployedBytecode"]
    if bytecode["linkReferences"]:
        raise ExportFailed(f"{name} needs linking to {', '.join(bytecode['linkReferences'])}")
    size = len(runtime["object"][2:]) // 2
    if size > CODE_BYTES_MAX:
        raise ExportFailed(
            f"{name} has {size} bytes of code, the limit is {CODE_BYTES_MAX} (EIP-170)"
        )
    return (
        json.dumps(
            {
                "contract": name,
                "solc": metadata["compiler"]["version"],
                "source_hash": source_hash(metadata["sources"]),
                "deployed_bytes": size,
                "abi": abi_of(artifact, *map(artifact_of, parts)),
                "bytecode": bytecode["object"],
            },
            indent=1,
        )
        + "\n"
    )


def artifact_of(name: str) -> dict[str, Any]:
    """What forge built of a contract."""
    path = PROJECT / "out" / f"{name}.sol" / f"{name}.json"
    return cast("dict[str, Any]", json.loads(path.read_text("utf-8")))


def abi_of(artifact: dict[str, Any], *parts: dict[str, Any]) -> list[dict[str, Any]]:
    """The ABI of a contract and of what its fallback answers, each entry once."""
    entries = [entry for entry in artifact["abi"] if entry["type"] != "fallback"]
    for part in parts:
        entries += [e for e in part["abi"] if e["type"] != "constructor" and e not in entries]
    return entries


def source_hash(sources: dict[str, dict[str, str]]) -> str:
    """sha256 over every source's path and keccak, sorted: it moves when any source does."""
    lines = sorted(f"{path} {entry['keccak256']}" for path, entry in sources.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def committed(name: str) -> str | None:
    """The file in the package, or None."""
    path = PACKAGE / f"{name}.json"
    return path.read_text("utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
