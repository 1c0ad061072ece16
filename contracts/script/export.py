"""Write the contracts' ABI and bytecode where Python finds them, or say that they are stale.

    python -m contracts.script.export [--check]

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

from contracts.script.bindings import calls_module, snake

PROJECT = Path(__file__).resolve().parents[1]
REPOSITORY = PROJECT.parent
PACKAGE = REPOSITORY / "cloud_gpu" / "protocol" / "contracts"
BINDINGS = REPOSITORY / "cloud_gpu" / "protocol" / "adapters" / "bindings"
LAYOUT = PROJECT / "snapshots" / "storage_layout.json"
CONTRACTS = {
    "LeaseBook": ("FrontOffice", "BackOffice"),
    "FrontOffice": (),
    "BackOffice": (),
    "PaymentToken": (),
    "Verification": (),
    "Futures": (),
    "GroupBuy": (),
}
"""What is exported, with the contracts whose functions its fallback answers."""
CODE_BYTES_MAX = 24_576  # EIP-170
INIT_BYTES_MAX = 49_152  # EIP-3860; arguments come on top


def main() -> int:
    """Build, then write or compare; the exit status."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument("--check", action="store_true", help="compare with the committed files")
    check = options.parse_args().check
    try:
        build()
        wanted = {PACKAGE / f"{name}.json": render(name, *CONTRACTS[name]) for name in CONTRACTS}
        wanted |= bound(wanted)
        wanted[LAYOUT] = storage_layout("LeaseBook", *CONTRACTS["LeaseBook"])
    except ExportFailed as failure:
        print(f"contracts: {failure}", file=sys.stderr)
        return 1
    stale = [path for path, text in wanted.items() if not holds(path, text)]
    names = ", ".join(str(path.relative_to(REPOSITORY)) for path in stale)
    if check and stale:
        print(
            f"contracts: {names} differ from a fresh build."
            " Run `make contracts` and commit the result.",
            file=sys.stderr,
        )
        return 1
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    print(f"contracts: {len(wanted)} files current" + (f", rewritten: {names}" if stale else ""))
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


def render(name: str, *parts: str) -> str:
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
    init_size = len(bytecode["object"][2:]) // 2
    if init_size > INIT_BYTES_MAX:
        raise ExportFailed(
            f"{name} has {init_size} bytes of creation code, the limit is {INIT_BYTES_MAX}"
            " (EIP-3860)"
        )
    return (
        json.dumps(
            {
                "contract": name,
                "solc": metadata["compiler"]["version"],
                "source_hash": source_hash(metadata["sources"]),
                "deployed_bytes": size,
                "abi": abi_of(artifact, *map(artifact_of, parts)),
                "code": code_of(bytecode["object"], name),
                "bytecode": bytecode["object"],
            },
            indent=1,
        )
        + "\n"
    )


def code_of(creation: str, name: str) -> dict[str, Any]:
    """Where a contract's code lies in the creation code, and where in it immutables are written."""
    runtime = artifact_of(name)["deployedBytecode"]
    at = creation.find(runtime["object"][2:])
    if at < 0 or at % 2:
        raise ExportFailed(f"{name}'s code is no part of the creation code that makes it")
    places = [
        [place["start"], place["length"]]
        for written in runtime.get("immutableReferences", {}).values()
        for place in written
    ]
    return {
        "start": at // 2 - 1,
        "size": len(runtime["object"][2:]) // 2,
        "immutables": sorted(places),
    }


def bound(exported: dict[Path, str]) -> dict[Path, str]:
    """The typed Python of every exported ABI."""
    found = {}
    parts = {part for parts in CONTRACTS.values() for part in parts}
    for text in exported.values():
        contract = json.loads(text)
        if contract["contract"] in parts:
            continue  # its functions are those of the contract that runs it
        path = BINDINGS / f"{snake(contract['contract'])}.py"
        found[path] = calls_module(contract["contract"], contract["abi"])
    return found


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


def storage_layout(name: str, *parts: str) -> str:
    """Where a contract keeps what, as JSON text; those that run on its storage must agree."""
    layouts = {each: layout_of(artifact_of(each)) for each in (name, *parts)}
    for part in parts:
        if layouts[part] != layouts[name]:
            raise ExportFailed(f"{part} runs on {name}'s storage and lays it out differently")
    return json.dumps({name: layouts[name]}, indent=1) + "\n"


def layout_of(artifact: dict[str, Any]) -> list[str]:
    """One line a variable: slot, byte in the slot, type, name."""
    layout = artifact["storageLayout"]
    labels = {kind: entry["label"] for kind, entry in layout["types"].items()}
    return [
        f"{entry['slot']}+{entry['offset']} {labels[entry['type']]} {entry['label']}"
        for entry in layout["storage"]
    ]


def source_hash(sources: dict[str, dict[str, str]]) -> str:
    """sha256 over every source's path and keccak, sorted: it moves when any source does."""
    lines = sorted(f"{path} {entry['keccak256']}" for path, entry in sources.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def holds(path: Path, text: str) -> bool:
    """Whether a file is there with exactly this content."""
    return path.exists() and path.read_text("utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
