"""What a person asks for, in one line: `gpu in [A100,H100] vram>=40GB region!=CN`, `A100:80GB:2`.

Clauses are joined by "and": words of a class with `:memory` and `:count`, or a name, an operator
and a value. It is read into limits that a machine can be held to; what is wrong is named with the
column where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeVar

from cloud_gpu.protocol.hardware import Isolation
from cloud_gpu.protocol.orders import Scope
from cloud_gpu.protocol.units import parse_price
from cloud_gpu.protocol.values import Address
from cloud_gpu.query import Query, Span

KindT = TypeVar("KindT", bound=StrEnum)

_TOKEN = re.compile(
    r"\s*(?:,\s*|\band\b\s*)?(?:"
    r"(?P<name>[a-z_]+)\s*(?P<op>!=|>=|<=|==|=|>|<|\bnot\s+in\b|\bin\b)\s*"
    r"(?P<value>\[[^\]]*\]?|(?:[^\s\[\],]|,(?=\d))*)"
    r"|(?P<word>[^\s,]+))",
    re.IGNORECASE,
)
_SIZE = re.compile(r"(?P<number>\d+)\s*(?P<unit>|[MGT]i?B)", re.IGNORECASE)
_VERSION = re.compile(r"\d+(\.\d+){0,3}")
_MEMORY = re.compile(r"\d+(?:[MGT]i?B)?(?:\.\.(?:\d+(?:[MGT]i?B)?)?)?", re.IGNORECASE)
_COUNT_MOST: Final = 16
"""A bare number after a class is a count up to here (`A100:8`), a memory above (`A100:80`)."""
_MIB: Final = {"": 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
_HELD_BACK: Final = 95
"""Percent: cards hold some of their memory back, so one of 80 GB passes with this much of it."""


class QueryUnclear(ValueError):
    """A part of a query cannot be meant: where it stands, and what is wrong with it."""

    def __init__(self, text: str, column: int, problem: str) -> None:
        super().__init__(f"{problem} (column {column + 1})\n  {text}\n  {' ' * column}^")
        self.column, self.problem = column, problem


@dataclass(frozen=True, slots=True)
class _Clause:
    """One comparison, as it was written."""

    text: str
    column: int
    name: str
    op: str
    op_column: int
    value: str
    value_column: int

    def unclear(self, problem: str) -> QueryUnclear:
        """Points at the value."""
        return QueryUnclear(self.text, self.value_column, f"{self.name}: {problem}")

    def needs(self, *ops: str) -> None:
        """Raises QueryUnclear for an operator that says nothing about this name."""
        if self.op not in ops:
            shown = ", ".join(ops)
            raise QueryUnclear(
                self.text, self.op_column, f"{self.name}: found {self.op!r}, needed one of {shown}"
            )

    def words(self) -> tuple[str, ...]:
        """A list in brackets, or one word."""
        if not self.value.startswith("["):
            found = [self.value]
        elif not self.value.endswith("]"):
            raise self.unclear("the list is not closed, needed ]")
        else:
            found = self.value[1:-1].split(",")
        words = tuple(word.strip() for word in found)
        if not all(words):
            raise self.unclear("found nothing, needed a word or a list like [A100,H100]")
        return words


@lru_cache(maxsize=64)
def parse_query(text: str) -> Query:
    """Read a query. Raises QueryUnclear."""
    query = Query()
    seen: set[tuple[str, str]] = set()
    for part in _parts(text):
        if isinstance(part, _Clause):
            side = part.op if part.op in (">=", "<=", "!=", "not in") else "="
            if (part.name, side) in seen:
                raise QueryUnclear(text, part.column, f"{part.name} {part.op}: named twice")
            seen.add((part.name, side))
            query = _READERS[part.name](query, part)
        else:
            if query.classes:
                raise QueryUnclear(
                    text, part[1], "a class was named before; write gpu in [A100,H100]"
                )
            query = _short(query, text, *part)
    return query


def _parts(text: str) -> Iterator[_Clause | tuple[str, int]]:
    """Comparisons, and runs of bare words ("RTX 4090") with their column."""
    run: list[str] = []
    at, start = 0, 0
    end = len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise QueryUnclear(text, at, f"found {text[at]!r}, needed a class or a comparison")
        at = found.end()
        if found["word"] is not None:
            if found["word"].lower() in _READERS:
                raise QueryUnclear(
                    text,
                    found.end(),
                    f"{found['word']}: found no operator, needed one like = or >=",
                )
            start = start if run else found.start("word")
            run.append(found["word"])
            continue
        if run:
            yield " ".join(run), start
            run = []
        yield _clause(text, found)
    if run:
        yield " ".join(run), start


def _clause(text: str, found: re.Match[str]) -> _Clause:
    name, column = found["name"].lower(), found.start("name")
    if name not in _READERS:
        near = get_close_matches(name, _READERS, n=1)
        hint = f", did you mean {near[0]}" if near else f"; known are {', '.join(_READERS)}"
        raise QueryUnclear(text, column, f"no such name: {name}{hint}")
    op = " ".join(found["op"].lower().split())
    if not found["value"]:
        raise QueryUnclear(text, found.end(), f"{name} {op}: found nothing, needed a value")
    op = "=" if op == "==" else op
    return _Clause(text, column, name, op, found.start("op"), found["value"], found.start("value"))


def _short(query: Query, text: str, word: str, column: int) -> Query:
    """`A100`, `A100|H100:80GB..`, `A100:80GB:2`, `RTX 4090`."""
    classes: list[tuple[str, Span]] = []
    counts: set[int] = set()
    at = column
    for alternative in word.split("|"):
        names, memory, count = _short_parts(alternative)
        if any(sign in names for sign in "=<>[]!") or names.lower() in ("", *_READERS):
            raise QueryUnclear(
                text, at, f"found {alternative!r}, needed a class like A100:80GB:2, or a comparison"
            )
        if not (_MEMORY.fullmatch(memory or "1") and (count or "1").isdigit()):
            raise QueryUnclear(
                text,
                at,
                f"found {alternative!r}, needed a class like A100, A100:80GB or A100:80GB:2",
            )
        span = Span()
        if memory:
            least, _dots, most = memory.partition("..")
            span = Span(_size(least) * _HELD_BACK // 100, _size(most) if most else None)
        classes.append((names, span))
        counts |= {int(count)} if count else set()
        at += len(alternative) + 1
    if len(counts) > 1:
        raise QueryUnclear(text, column, "found several counts, needed one for all classes")
    count_found = counts.pop() if counts else None
    if count_found is not None and query.count is not None:
        raise QueryUnclear(text, column, "count: named twice")
    return replace(query, classes=tuple(classes), count=count_found or query.count)


def _short_parts(alternative: str) -> tuple[str, str, str]:
    """Class, memory and count as they are written; "": not there."""
    names, _, rest = alternative.strip().partition(":")
    memory, _, count = rest.partition(":")
    if not count and memory.isdigit() and int(memory) <= _COUNT_MOST:
        return names, "", memory
    return names, memory, count


def _gpu(query: Query, clause: _Clause) -> Query:
    clause.needs("=", "in", "!=", "not in")
    if clause.op in ("!=", "not in"):
        return replace(query, excluded_classes=clause.words())
    if query.classes:
        raise clause.unclear("a class was named before")
    words = clause.words()
    if any(":" in word for word in words):
        raise clause.unclear("write the memory as its own limit: vram>=40GB")
    return replace(query, classes=tuple((word, Span()) for word in words))


def _count(query: Query, clause: _Clause) -> Query:
    clause.needs("=", "in")
    if query.count is not None:
        raise clause.unclear("named twice")
    least, dots, most = clause.value.partition("..")
    if not dots:
        return replace(query, count=_gpus(clause, clause.value))
    found = replace(query, count=_gpus(clause, most), min_count=_gpus(clause, least))
    if _gpus(clause, least) > _gpus(clause, most):
        raise clause.unclear(f"found {clause.value!r}, needed the fewest first, like 8..16")
    return found


def _scope(query: Query, clause: _Clause) -> Query:
    clause.needs("=")
    return replace(query, scope=_one_of(Scope, clause))


def _chunk(query: Query, clause: _Clause) -> Query:
    clause.needs("=")
    return replace(query, chunk=_gpus(clause, clause.value))


def _gpus(clause: _Clause, word: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word) >= 1):
        raise clause.unclear(f"found {word!r}, needed a number of GPUs")
    return int(word)


def _vram(query: Query, clause: _Clause) -> Query:
    clause.needs("=", "in", ">=", "<=")
    found = _span(clause, lambda word: _whole_size(clause, word), query.gpu_memory)
    if isinstance(found.least, int) and found.least != query.gpu_memory.least:
        found = replace(found, least=found.least * _HELD_BACK // 100)
    return replace(query, gpu_memory=found)


def _need(query: Query, clause: _Clause) -> Query:
    clause.needs("=")
    return replace(query, gpu_memory_need_mib=_whole_size(clause, clause.value))


def _ram(query: Query, clause: _Clause) -> Query:
    clause.needs(">=")
    return replace(query, memory_mib_min=_whole_size(clause, clause.value))


def _disk(query: Query, clause: _Clause) -> Query:
    clause.needs(">=")
    return replace(query, disk_mib_min=_whole_size(clause, clause.value))


def _cuda(query: Query, clause: _Clause) -> Query:
    clause.needs("=", "in", ">=", "<=")
    return replace(query, cuda=_span(clause, lambda word: _version(clause, word), query.cuda))


def _driver(query: Query, clause: _Clause) -> Query:
    clause.needs("=", "in", ">=", "<=")
    return replace(query, driver=_span(clause, lambda word: _version(clause, word), query.driver))


def _region(query: Query, clause: _Clause) -> Query:
    clause.needs("=", "in", "!=", "not in")
    if clause.op in ("!=", "not in"):
        return replace(query, excluded_regions=clause.words())
    return replace(query, regions=clause.words())


def _network(query: Query, clause: _Clause) -> Query:
    clause.needs("=", "in")
    return replace(query, networks=clause.words())


def _isolation(query: Query, clause: _Clause) -> Query:
    clause.needs(">=", "=")
    return replace(query, isolation=_one_of(Isolation, clause))


def _one_of(kind: type[KindT], clause: _Clause) -> KindT:
    try:
        return kind(clause.value.lower())
    except ValueError as error:
        known = ", ".join(kind)
        raise clause.unclear(f"found {clause.value!r}, needed one of {known}") from error


def _price(query: Query, clause: _Clause) -> Query:
    clause.needs("<=")
    try:
        return replace(query, max_price=parse_price(clause.value))
    except ValueError as error:
        raise clause.unclear(str(error)) from error


def _provider(query: Query, clause: _Clause) -> Query:
    clause.needs("=", "!=", "not in")
    try:
        found = tuple(Address.parse(word) for word in clause.words())
    except ValueError as error:
        shown = f"found {clause.value!r}, needed 0x and 40 hex digits"
        raise clause.unclear(shown) from error
    if clause.op == "=":
        return replace(query, provider=found[0])
    return replace(query, excluded_providers=found)


def _verified(query: Query, clause: _Clause) -> Query:
    return replace(query, verified=_yes(clause))


def _interruptible(query: Query, clause: _Clause) -> Query:
    return replace(query, interruptible=_yes(clause))


def _simulated(query: Query, clause: _Clause) -> Query:
    return replace(query, simulated_allowed=_yes(clause))


_READERS: Final[dict[str, Callable[[Query, _Clause], Query]]] = {
    "gpu": _gpu,
    "count": _count,
    "scope": _scope,
    "chunk": _chunk,
    "vram": _vram,
    "need": _need,
    "ram": _ram,
    "disk": _disk,
    "cuda": _cuda,
    "driver": _driver,
    "region": _region,
    "network": _network,
    "isolation": _isolation,
    "price": _price,
    "provider": _provider,
    "verified": _verified,
    "interruptible": _interruptible,
    "simulated": _simulated,
}


def _span(clause: _Clause, read: Callable[[str], int | str], before: Span) -> Span:
    """`>=40GB`, `<=80GB`, `=80GB`, `=40GB..80GB`; a lower and an upper limit may come apart."""
    if clause.op == ">=":
        return replace(before, least=read(clause.value))
    if clause.op == "<=":
        return replace(before, most=read(clause.value))
    if before != Span():
        raise clause.unclear("named twice")
    least, dots, most = clause.value.partition("..")
    if not dots:
        return Span(read(least), read(least))
    if not least and not most:
        raise clause.unclear("found a range without ends, needed one like 40GB..80GB")
    return Span(read(least) if least else None, read(most) if most else None)


def _size(word: str) -> int:
    """MiB; a number alone counts GB, which here are 1,024 MiB, as cards are named."""
    found = _SIZE.fullmatch(word)
    if found is None:
        raise ValueError(word)
    return int(found["number"]) * _MIB[found["unit"][:1].upper()]


def _whole_size(clause: _Clause, word: str) -> int:
    try:
        return _size(word)
    except ValueError as error:
        raise clause.unclear(f"found {word!r}, needed a size like 40GB") from error


def _version(clause: _Clause, word: str) -> str:
    if _VERSION.fullmatch(word) is None:
        raise clause.unclear(f"found {word!r}, needed a version like 12.4")
    return word


def _yes(clause: _Clause) -> bool:
    clause.needs("=")
    known = {"yes": True, "true": True, "no": False, "false": False}
    if clause.value.lower() not in known:
        raise clause.unclear(f"found {clause.value!r}, needed yes or no")
    return known[clause.value.lower()]
