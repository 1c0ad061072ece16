"""What verifiers, nodes and verifiers among themselves say about a committed batch.

As between buyer and node: each message stands alone, may be lost or repeated, and is asked for
again by whoever waits.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from cloud_gpu.protocol.audit import BatchOutline, Evidence, Results, Verdict
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import ResultContent
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import Signed, Statement
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Value


class VerifierNotice(Value, frozen=True, kw_only=True):
    """A verifier is alive, and here. Gossiped as a statement; its age is its heartbeat."""

    KIND: ClassVar[str] = "cloud-gpu/verifier-notice"
    verifier: Address
    peer: PeerId
    addresses: tuple[str, ...]
    at: int
    """Unix seconds."""


SignedVerifierNotice = Statement[VerifierNotice]


class EvidenceRequest(Value, frozen=True, kw_only=True):
    """A verifier wants to see a drawn segment; signed as a statement, so only verifiers may."""

    KIND: ClassVar[str] = "cloud-gpu/evidence-request"
    verifier: Address
    lease: LeaseKey
    batch_no: int
    i: int


class OutlineRequest(Value, frozen=True, kw_only=True):
    """A verifier wants to know all leaves of a drawn batch; signed as a statement."""

    KIND: ClassVar[str] = "cloud-gpu/outline-request"
    verifier: Address
    lease: LeaseKey
    batch_no: int


class _AuditMessage(Value, frozen=True, kw_only=True, tag=True):
    pass


class OutlineAsked(_AuditMessage, frozen=True, kw_only=True):
    """Verifier to node."""

    request: Statement[OutlineRequest]


class OutlineGiven(_AuditMessage, frozen=True, kw_only=True):
    """Node to verifier."""

    outline: BatchOutline


class EvidenceAsked(_AuditMessage, frozen=True, kw_only=True):
    """Verifier to node."""

    request: Statement[EvidenceRequest]


class EvidenceGiven(_AuditMessage, frozen=True, kw_only=True):
    """Node to verifier; the files it names are in the node's artefact store."""

    evidence: Evidence


class EvidenceRefused(_AuditMessage, frozen=True, kw_only=True):
    """Node to verifier; `i` is -1 when it refuses the outline."""

    lease: LeaseKey
    batch_no: int
    i: int
    rejection: Rejection


class OpinionAsked(_AuditMessage, frozen=True, kw_only=True):
    """Verifier to verifier: I see a difference; re-execute it by your own means."""

    verdict: Signed[Verdict]
    evidence: Evidence
    replayed: ResultContent
    """What my two re-executions gave; its files, and the evidence's, are in my artefact store."""
    auditors: tuple[Address, ...] = ()
    """Who re-executed it for me."""


class OpinionGiven(_AuditMessage, frozen=True, kw_only=True):
    """Verifier to verifier: what the second, independent re-execution said."""

    verdict: Signed[Verdict]


AuditMessage: TypeAlias = (
    OutlineAsked
    | OutlineGiven
    | EvidenceAsked
    | EvidenceGiven
    | EvidenceRefused
    | OpinionAsked
    | OpinionGiven
)


class AuditRecord(Value, frozen=True, kw_only=True):
    """All that was said about a batch: with the chain's events anybody can check an audit again."""

    KIND: ClassVar[str] = "cloud-gpu/audit-record"
    lease: LeaseKey
    batch_no: int
    root: Digest
    seed: Digest
    passed: TokenAmount
    """The provider's audited value before this batch: how much it is trusted."""
    known_images: tuple[str, ...]
    """Images with which the provider had passed before."""
    outline: BatchOutline | None
    drawn: tuple[int, ...]
    evidence: tuple[Evidence, ...] = ()
    verdicts: tuple[Signed[Verdict], ...] = ()
    results: Signed[Results] | None = None
