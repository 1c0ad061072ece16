"""Verification's calls and views. Generated from its ABI by `make contracts`; do not edit."""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.adapters.evm_bound import Call, Row
from cloud_gpu.protocol.values import Address

_CONTRACT: Final = "Verification"


class AuditWindows(Row, frozen=True):
    challenge: int
    hard_cap: int
    late_slash: int
    answer: int


class Batch(Row, frozen=True):
    state: int
    n: int
    root: bytes
    seed: bytes
    value: int
    left: int
    audit: int
    locked: int
    number: int
    block_number: int
    committed_at: int
    accused: int
    settled: int
    challenged: int
    silent: int
    answer_by: int


class BatchId(Row, frozen=True):
    provider: Address
    index: int
    seq: int
    batch_no: int


class Commit(Row, frozen=True):
    provider: Address
    index: int
    seq: int
    batch_no: int
    root: bytes
    n: int


class Eip712DomainAnswer(Row, frozen=True):
    fields: bytes
    name: str
    version: str
    chain_id: int
    verifying_contract: Address
    salt: bytes
    extensions: tuple[int, ...]


class Ending(Row, frozen=True):
    results: Results
    openings: tuple[Opening, ...]
    signature: bytes


class HeadOfAnswer(Row, frozen=True):
    preimage: bytes
    position: int


class Leaf(Row, frozen=True):
    provider: Address
    index: int
    seq: int
    batch_no: int
    i: int
    weight: int
    job: bytes
    result: bytes
    salt: bytes


class Opening(Row, frozen=True):
    i: int
    leaf: bytes
    weight: int
    proof: tuple[Sibling, ...]


class Results(Row, frozen=True):
    provider: Address
    index: int
    seq: int
    batch_no: int
    incomparable: int


class Sibling(Row, frozen=True):
    hash: bytes
    weight: int


class Verdict(Row, frozen=True):
    provider: Address
    index: int
    seq: int
    batch_no: int
    i: int
    leaf: bytes
    digest: bytes
    result: int


class Verifier(Row, frozen=True):
    signer: Address
    anchor: bytes
    audits: Address


def domain_separator() -> Call[bytes]:
    return Call(_CONTRACT, "DOMAIN_SEPARATOR", (), Call.alone)


def accuse(
    leaf: Leaf, proof: tuple[Sibling, ...], verdict: Verdict, first: bytes, second: bytes
) -> Call[None]:
    return Call(
        _CONTRACT,
        "accuse",
        (
            leaf,
            proof,
            verdict,
            first,
            second,
        ),
        Call.nothing,
    )


def audit_windows() -> Call[AuditWindows]:
    return Call(_CONTRACT, "auditWindows", (), AuditWindows.of)


def batch_count() -> Call[int]:
    return Call(_CONTRACT, "batchCount", (), Call.alone)


def batch_of(provider: Address, index: int, seq: int, batch_no: int) -> Call[Batch]:
    return Call(
        _CONTRACT,
        "batchOf",
        (
            provider,
            index,
            seq,
            batch_no,
        ),
        Batch.of,
    )


def challenge(provider: Address, index: int, seq: int, batch_no: int, j: int, m: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "challenge",
        (
            provider,
            index,
            seq,
            batch_no,
            j,
            m,
        ),
        Call.nothing,
    )


def commit_batch(commit: Commit, signature: bytes) -> Call[None]:
    return Call(
        _CONTRACT,
        "commitBatch",
        (
            commit,
            signature,
        ),
        Call.nothing,
    )


def contest(verdict: Verdict, signature: bytes, opening: Opening) -> Call[None]:
    return Call(
        _CONTRACT,
        "contest",
        (
            verdict,
            signature,
            opening,
        ),
        Call.nothing,
    )


def convict(provider: Address, index: int, seq: int, batch_no: int, opening: Opening) -> Call[None]:
    return Call(
        _CONTRACT,
        "convict",
        (
            provider,
            index,
            seq,
            batch_no,
            opening,
        ),
        Call.nothing,
    )


def convict_silent(provider: Address, index: int, seq: int, batch_no: int, j: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "convictSilent",
        (
            provider,
            index,
            seq,
            batch_no,
            j,
        ),
        Call.nothing,
    )


def eip712_domain() -> Call[Eip712DomainAnswer]:
    return Call(_CONTRACT, "eip712Domain", (), Eip712DomainAnswer)


def fallback_seed(provider: Address, index: int, seq: int, batch_no: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "fallbackSeed",
        (
            provider,
            index,
            seq,
            batch_no,
        ),
        Call.nothing,
    )


def finalize(endings: tuple[Ending, ...]) -> Call[None]:
    return Call(_CONTRACT, "finalize", (endings,), Call.nothing)


def head_of(verifier: int) -> Call[HeadOfAnswer]:
    return Call(_CONTRACT, "headOf", (verifier,), HeadOfAnswer)


def lease_book() -> Call[Address]:
    return Call(_CONTRACT, "leaseBook", (), Call.alone)


def open_leaf(j: int, leaf: Leaf, proof: tuple[Sibling, ...]) -> Call[None]:
    return Call(
        _CONTRACT,
        "openLeaf",
        (
            j,
            leaf,
            proof,
        ),
        Call.nothing,
    )


def reveal(batches: tuple[BatchId, ...], preimages: tuple[bytes, ...]) -> Call[None]:
    return Call(
        _CONTRACT,
        "reveal",
        (
            batches,
            preimages,
        ),
        Call.nothing,
    )


def verifiers() -> Call[tuple[Verifier, ...]]:
    return Call(
        _CONTRACT, "verifiers", (), lambda found: tuple(Verifier.of(each) for each in found)
    )
