"""Past facts, as they come in to a party: messages, machines, wishes. Adapters make them.

Facts on the chain are in `chain_events`; here are the others, and which party hears what.
"""

from __future__ import annotations

from typing import TypeAlias

from cloud_gpu.protocol.audit import Compared
from cloud_gpu.protocol.audit_messages import AuditMessage, SignedVerifierNotice
from cloud_gpu.protocol.chain_events import ChainEvent
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.futures import FutureOrder
from cloud_gpu.protocol.group_buy import Pledge, SignedCampaign
from cloud_gpu.protocol.hardware import HardwareProfile
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobSpec, ResultContent
from cloud_gpu.protocol.lease import LeaseKey, LeaseTerms, MachineKey
from cloud_gpu.protocol.match import BidReport
from cloud_gpu.protocol.messages import Message, RuntimeReport
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.values import Address, Digest, Value


class _Event(Value, frozen=True, kw_only=True, tag=True):
    pass


class DeadlinePassed(_Event, frozen=True, kw_only=True):
    """The party's own deadline passed."""


class MessageReceived(_Event, frozen=True, kw_only=True):
    """A peer, authenticated by the overlay, sent a message."""

    peer: PeerId
    message: Message


class SendFailed(_Event, frozen=True, kw_only=True):
    """A message could not be handed to a peer; it may be sent again."""

    peer: PeerId
    message: Message
    detail: str


# The node's own machine room.


class NodeStarted(_Event, frozen=True, kw_only=True):
    """The daemon started, perhaps again: what it was told to do before may not have happened.

    Every chain event follows from the first one on; those before `at` are history.
    """

    at: int
    """The newest block's time, Unix seconds."""


class MachineProbed(_Event, frozen=True, kw_only=True):
    """The hardware behind a machine was probed; `healthy` is the gate before asks and starts."""

    machine: MachineKey
    profile: HardwareProfile
    healthy: bool
    detail: str = ""


class ContainerReady(_Event, frozen=True, kw_only=True):
    """A lease's container is prepared (or was adopted after a restart)."""

    lease: LeaseKey
    report: RuntimeReport


class ContainerFailed(_Event, frozen=True, kw_only=True):
    """The runtime could not prepare a lease's container, or lost it."""

    lease: LeaseKey
    detail: str


class JobStarted(_Event, frozen=True, kw_only=True):
    lease: LeaseKey
    job: Digest


class OutputRead(_Event, frozen=True, kw_only=True):
    """A running job printed something."""

    lease: LeaseKey
    job: Digest
    stream: str
    offset: int
    chunk: bytes


class JobExited(_Event, frozen=True, kw_only=True):
    """A run ended; its files are in the artefact store. Times in Unix milliseconds."""

    lease: LeaseKey
    job: Digest
    outcome: JobOutcome
    exit_code: int
    detail: str
    outputs: tuple[FileRef, ...]
    stdout: FileRef
    stderr: FileRef
    log_cut: bool
    started_at: int
    ended_at: int


class NoticeWanted(_Event, frozen=True, kw_only=True):
    """The operator wants an interruptible lease's machine back."""

    lease: LeaseKey


class DrainAsked(_Event, frozen=True, kw_only=True):
    """The operator wants no new leases here; running ones go on."""


# The market's intake.


class AskHeard(_Event, frozen=True, kw_only=True):
    """An advert came by gossip, unchecked."""

    advert: SignedAdvert


class BidSubmitted(_Event, frozen=True, kw_only=True):
    """A bid is durable in the inbox at this position."""

    order: SignedBid
    inbox: int


class BidWithdrawn(_Event, frozen=True, kw_only=True):
    """A signed cancellation asked the market to forget a bid, or an order of futures."""

    bid: Digest
    inbox: int = 0
    """Position of the cancellation in the inbox."""


class FutureSubmitted(_Event, frozen=True, kw_only=True):
    """An order of futures is durable in the inbox at this position."""

    order: Signed[FutureOrder]
    inbox: int


class CampaignSubmitted(_Event, frozen=True, kw_only=True):
    """A group buy's terms are durable in the inbox at this position."""

    offer: SignedCampaign
    inbox: int


class PledgeSubmitted(_Event, frozen=True, kw_only=True):
    """A pledge to a group buy is durable in the inbox at this position."""

    pledge: Signed[Pledge]
    inbox: int


# Audits.


class AuditMessageReceived(_Event, frozen=True, kw_only=True):
    """A peer, authenticated by the overlay, spoke about a batch."""

    peer: PeerId
    message: AuditMessage


class VerifierHeard(_Event, frozen=True, kw_only=True):
    """A verifier's notice came by gossip, unchecked."""

    notice: SignedVerifierNotice


class ReplayDone(_Event, frozen=True, kw_only=True):
    """A verifier's own re-execution ended; `result` is the digest it gave, None if it failed."""

    lease: LeaseKey
    batch_no: int
    i: int
    auditor: Address | None
    """The provider that re-executed it."""
    result: Digest | None
    detail: str = ""
    content: ResultContent | None = None
    """What `result` is the digest of."""
    compared: tuple[Compared, ...] = ()
    """With the committed result, and with those that the `Replay` named."""


# The buyer's own wishes, and what its market answers.


class LeaseWanted(_Event, frozen=True, kw_only=True):
    """Open one lease: the signed alternatives share one nonce."""

    bids: tuple[SignedBid, ...]
    slice_gpus: tuple[int, ...] = ()
    """Of each bid: GPUs of one machine, where it wants several; empty: each wants one."""
    member: int = 0
    """Which of a gang's leases this one is, in the order in which they open."""
    adverts: tuple[SignedAdvert, ...] = ()
    """What the market lists now: the node's addresses, should the market fall silent."""


class LeaseGiven(_Event, frozen=True, kw_only=True):
    """Take up a funded lease that opened without a bid: a future's, or a group buy's."""

    terms: LeaseTerms
    order: SignedBid
    """What it must be, as a bid; nobody signed it."""
    gpus: int
    """Of its machine."""
    advert: SignedAdvert
    """Of the same provider and product: where its node is."""


class JobWanted(_Event, frozen=True, kw_only=True):
    """Run this in the lease; its inputs are pushed by the adapter before the spec is sent."""

    spec: JobSpec


class KillWanted(_Event, frozen=True, kw_only=True):
    job: Digest


class CloseWanted(_Event, frozen=True, kw_only=True):
    """End the lease now and settle."""


class BidAcknowledged(_Event, frozen=True, kw_only=True):
    receipt: SignedReceipt


class BidRefused(_Event, frozen=True, kw_only=True):
    bid: Digest
    rejection: Rejection


class BidReported(_Event, frozen=True, kw_only=True):
    report: BidReport


class MarketSilent(_Event, frozen=True, kw_only=True):
    """The market did not answer."""

    detail: str


class InputsPushed(_Event, frozen=True, kw_only=True):
    """The node holds all inputs of a job."""

    job: Digest


class InputsNotPushed(_Event, frozen=True, kw_only=True):
    job: Digest
    detail: str


ProviderEvent: TypeAlias = (
    DeadlinePassed
    | MessageReceived
    | SendFailed
    | ChainEvent
    | NodeStarted
    | MachineProbed
    | ContainerReady
    | ContainerFailed
    | JobStarted
    | OutputRead
    | JobExited
    | NoticeWanted
    | DrainAsked
    | AuditMessageReceived
)
MarketEvent: TypeAlias = (
    DeadlinePassed
    | ChainEvent
    | AskHeard
    | BidSubmitted
    | BidWithdrawn
    | FutureSubmitted
    | CampaignSubmitted
    | PledgeSubmitted
    | VerifierHeard
)
VerifierEvent: TypeAlias = (
    DeadlinePassed | ChainEvent | AskHeard | AuditMessageReceived | VerifierHeard | ReplayDone
)
BuyerEvent: TypeAlias = (
    DeadlinePassed
    | MessageReceived
    | SendFailed
    | ChainEvent
    | LeaseWanted
    | LeaseGiven
    | JobWanted
    | KillWanted
    | CloseWanted
    | BidAcknowledged
    | BidRefused
    | BidReported
    | MarketSilent
    | InputsPushed
    | InputsNotPushed
)
