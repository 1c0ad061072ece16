"""What a buyer's side and a node say to each other directly, once a lease is funded.

Each message stands alone and may be lost, repeated or overtaken: the receiver's answer to a
repeat is the same as to the first, and whoever waits asks again.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.hardware import HardwareProfile, Isolation
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import JobState, SignedJobResult, SignedJobSpec
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.signing import Signed, Statement
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest, Value, keccak256
from cloud_gpu.protocol.voucher import Accept, Final, Ready, Voucher


class Access(Value, frozen=True, kw_only=True):
    """The buyer says: this peer of mine may use this lease at that node. Signed as a statement."""

    KIND: ClassVar[str] = "cloud-gpu/access"
    lease: LeaseKey
    node: PeerId
    buyer_peer: PeerId


class RuntimeReport(Value, frozen=True, kw_only=True):
    """What the node prepared; bound by `Ready.runtime_hash`, so it cannot change afterwards."""

    KIND: ClassVar[str] = "cloud-gpu/runtime-report"
    lease: LeaseKey
    profile: HardwareProfile
    runtime: str
    """"runc", "runsc", or "process": no isolation from the provider's machine."""
    isolation: Isolation
    image: str
    python: str = ""
    fingerprint: str = ""

    @property
    def digest(self) -> Digest:
        """keccak256 of the canonical JSON."""
        return keccak256(to_json(self))


class _Message(Value, frozen=True, kw_only=True, tag=True):
    pass


# Buyer's side to node, in the order of a lease.


class OpenSession(_Message, frozen=True, kw_only=True):
    """May I use this lease, and is it ready? Repeated until `ReadyOffered` or `Declined`."""

    access: Statement[Access]


class AcceptGiven(_Message, frozen=True, kw_only=True):
    """The buyer's side checked the Ready; the meter starts."""

    accept: Signed[Accept]


class VoucherGiven(_Message, frozen=True, kw_only=True):
    """The newest voucher."""

    voucher: Signed[Voucher]


class JobSubmitted(_Message, frozen=True, kw_only=True):
    """Run this; its inputs are in the node's artefact store already."""

    spec: SignedJobSpec


class JobAsked(_Message, frozen=True, kw_only=True):
    """How far is it, and what did it print from these byte offsets on?"""

    lease: LeaseKey
    job: Digest
    stdout_from: int = 0
    stderr_from: int = 0


class JobKilled(_Message, frozen=True, kw_only=True):
    """End this job now; the lease goes on."""

    lease: LeaseKey
    job: Digest


class CloseAsked(_Message, frozen=True, kw_only=True):
    """The buyer's side is done: close at the newest voucher."""

    lease: LeaseKey


# Node to buyer's side.


class Preparing(_Message, frozen=True, kw_only=True):
    """Not ready yet; progress in words."""

    lease: LeaseKey
    detail: str


class ReadyOffered(_Message, frozen=True, kw_only=True):
    """The container is prepared."""

    ready: Signed[Ready]
    report: RuntimeReport


class VoucherAcknowledged(_Message, frozen=True, kw_only=True):
    """The best voucher the node holds for a lease, and whether work is paused for want of one."""

    lease: LeaseKey
    amount: TokenAmount
    paused: bool


class JobReported(_Message, frozen=True, kw_only=True):
    """Where a job is."""

    lease: LeaseKey
    job: Digest
    state: JobState


class JobPrinted(_Message, frozen=True, kw_only=True):
    """A piece of a job's output at an absolute byte offset of its stream."""

    lease: LeaseKey
    job: Digest
    stream: str
    """"stdout" or "stderr"."""
    offset: int
    chunk: bytes

    def __post_init__(self) -> None:
        if len(self.chunk) > limits.LOG_CHUNK_BYTES_MAX:
            raise ValueError(f"chunk holds at most {limits.LOG_CHUNK_BYTES_MAX} bytes")


class JobFinished(_Message, frozen=True, kw_only=True):
    """The node's signed result; files are in its artefact store until the lease's claims end."""

    result: SignedJobResult


class FinalOffered(_Message, frozen=True, kw_only=True):
    """The node closes at this amount; with the voucher of the same amount anyone may post it."""

    final: Signed[Final]


class LeaseEndedHere(_Message, frozen=True, kw_only=True):
    """The node ended its work for a lease, and why."""

    lease: LeaseKey
    reason: LeaseEndReason
    detail: str


class Declined(_Message, frozen=True, kw_only=True):
    """The node refuses something the buyer's side sent about a lease."""

    lease: LeaseKey
    rejection: Rejection
    job: Digest | None = None
    """The job concerned, if it is about one."""


Message: TypeAlias = (
    OpenSession
    | AcceptGiven
    | VoucherGiven
    | JobSubmitted
    | JobAsked
    | JobKilled
    | CloseAsked
    | Preparing
    | ReadyOffered
    | VoucherAcknowledged
    | JobReported
    | JobPrinted
    | JobFinished
    | FinalOffered
    | LeaseEndedHere
    | Declined
)


def lease_of(message: Message) -> LeaseKey:
    """The lease that a message is about."""
    match message:
        case OpenSession(access=access):
            return access.body.lease
        case AcceptGiven(accept=accept):
            return accept.payload.lease
        case VoucherGiven(voucher=voucher):
            return voucher.payload.lease
        case JobSubmitted(spec=spec):
            return spec.body.lease
        case ReadyOffered(ready=ready):
            return ready.payload.lease
        case FinalOffered(final=final):
            return final.payload.lease
        case JobFinished(result=result):
            return result.body.lease
        case _:
            return message.lease
