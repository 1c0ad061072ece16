"""Typed Python of a contract's ABI: a function a call or view, a class a struct.

Used by `export.py`; the result is formatted by ruff and committed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from keyword import iskeyword
from pathlib import Path
from typing import Any

Entry = Mapping[str, Any]

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def snake(name: str) -> str:
    """`nonceBase` as Python writes it."""
    found = name.lower() if name.isupper() else _CAMEL.sub("_", name).lower()
    return f"{found}_" if iskeyword(found) else found


def calls_module(contract: str, abi: Iterable[Entry]) -> str:
    """Structs, calls and views of one contract."""
    functions = sorted((e for e in abi if e["type"] == "function"), key=lambda e: e["name"])
    structs: dict[str, Entry] = {}
    for entry in functions:
        for field in (*entry["inputs"], *entry["outputs"]):
            structs.update(_structs(field))
    answers = {
        name: {"components": entry["outputs"]}
        for entry in functions
        if len(entry["outputs"]) > 1
        for name in [entry["name"][0].upper() + entry["name"][1:] + "Answer"]
    }
    head = _head(contract, "calls and views", "Call, Row")
    lines = [head, f'_CONTRACT: Final = "{contract}"\n']
    lines += [_row(name, fields) for name, fields in sorted((structs | answers).items())]
    lines += [_function(entry) for entry in functions]
    return formatted("\n\n".join(lines))


def formatted(text: str) -> str:
    """As ruff writes it: sorted and used imports, short lines."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    for command in ("check --select I,F401 --fix --quiet -", "format --quiet -"):
        words = [ruff, *command.split()]
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=True)
        text = done.stdout
    return text


def _head(contract: str, what: str, imported: str) -> str:
    return f'''"""{contract}'s {what}. Generated from its ABI by `make contracts`; do not edit."""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.adapters.evm_bound import {imported}
from cloud_gpu.protocol.values import Address
'''


def _structs(field: Entry) -> Iterator[tuple[str, Entry]]:
    if field["type"].startswith("tuple"):
        yield _struct_name(field), field
        for part in field["components"]:
            yield from _structs(part)


def _struct_name(field: Entry) -> str:
    name: str = field["internalType"].removeprefix("struct ").partition("[")[0]
    return name.rpartition(".")[2]


def _row(name: str, fields: Entry) -> str:
    lines = [f"class {name}(Row, frozen=True):"]
    lines += [f"    {snake(f['name'])}: {_kind(f)}" for f in fields["components"]]
    return "\n".join(lines if fields["components"] else [*lines, "    pass"])


def _kind(field: Entry) -> str:
    base, bracket, _ = field["type"].partition("[")
    if base == "tuple":
        kind = _struct_name(field)
    elif base.startswith(("uint", "int")):
        kind = "int"
    elif base.startswith("bytes"):
        kind = "bytes"
    else:
        kind = {"address": "Address", "bool": "bool", "string": "str"}[base]
    return f"tuple[{kind}, ...]" if bracket else kind


def _function(entry: Entry) -> str:
    inputs = [(snake(field["name"]), _kind(field)) for field in entry["inputs"]]
    given = ", ".join(f"{name}: {kind}" for name, kind in inputs)
    outputs = entry["outputs"]
    if not outputs:
        kind, read = "None", "Call.nothing"
    elif len(outputs) == 1:
        kind, read = _kind(outputs[0]), _reading(outputs[0])
    else:
        kind = entry["name"][0].upper() + entry["name"][1:] + "Answer"
        read = kind
    arguments = "".join(f"{name}," for name, _ in inputs)
    return (
        f"def {snake(entry['name'])}({given}) -> Call[{kind}]:\n"
        f'    return Call(_CONTRACT, "{entry["name"]}", ({arguments}), {read})'
    )


def _reading(field: Entry) -> str:
    if not field["type"].startswith("tuple"):
        return "tuple" if "[" in field["type"] else "Call.alone"
    name = _struct_name(field)
    if "[" in field["type"]:
        return f"lambda found: tuple({name}.of(each) for each in found)"
    return f"{name}.of"
