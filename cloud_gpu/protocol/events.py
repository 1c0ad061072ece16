"""Past facts, as they come in to a party. Adapters make them; parties never do.

Chain events carry the block's time in Unix seconds; the follower delivers each once, in order,
after the confirmations it was told to wait for.
"""

from __future__ import annotations

from typing import TypeAlias

from cloud_gpu.protocol.effects import ChainCall
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.hardware import GpuClass, HardwareProfile
from cloud_gpu.protocol.identity import Delegation, PeerId
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobSpec
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, LeaseTerms, MachineKey
from cloud_gpu.protocol.match import BidReport, SignedReceipt
from cloud_gpu.protocol.messages import Message, RuntimeReport
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
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


# The chain.


class ChainAdvanced(_Event, frozen=True, kw_only=True):
    """A new confirmed block; its events came before this."""

    block: int
    at: int


class ChainReorganised(_Event, frozen=True, kw_only=True):
    """Blocks after `block` were replaced; their events did not happen. New ones follow."""

    block: int


class AccountRegistered(_Event, frozen=True, kw_only=True):
    account: Address
    id: int


class CashChanged(_Event, frozen=True, kw_only=True):
    """A deposit (`increase`) or a withdrawal."""

    account: Address
    amount: TokenAmount
    increase: bool


class DelegationChanged(_Event, frozen=True, kw_only=True):
    """A key was delegated or revoked."""

    signer: Address
    delegation: Delegation


class ProductRegistered(_Event, frozen=True, kw_only=True):
    """What can be sold: append-only."""

    product: int
    gpu_class: GpuClass
    slice_gpus: int
    region_group: str
    """Empty: anywhere."""
    min_bond: BasisPoints
    notice: int
    penalty: BasisPoints
    flags: int
    """See `ProductFlags`."""


class MarketRegistered(_Event, frozen=True, kw_only=True):
    market_id: int
    account: Address
    fee: BasisPoints


class MachineAdded(_Event, frozen=True, kw_only=True):
    machine: MachineKey
    product: int
    bond: TokenAmount
    """Lease numbers go on where they were if the machine was here before; the first is 1."""


class BondAdded(_Event, frozen=True, kw_only=True):
    machine: MachineKey
    added: TokenAmount


class PenaltyPaid(_Event, frozen=True, kw_only=True):
    """A no-show or an early release cost the provider this much, to the buyer.

    The bond falls by whole bond units, rounded up; the change became the provider's cash.
    """

    lease: LeaseKey
    amount: TokenAmount
    at: int


class MachinePaused(_Event, frozen=True, kw_only=True):
    machine: MachineKey
    paused: bool


class MachineRetiring(_Event, frozen=True, kw_only=True):
    machine: MachineKey


class MachineRetired(_Event, frozen=True, kw_only=True):
    machine: MachineKey


class AsksCancelled(_Event, frozen=True, kw_only=True):
    """Asks for a lower seq of this machine are dead."""

    machine: MachineKey
    seq: int


class BidsCancelled(_Event, frozen=True, kw_only=True):
    """A nonce (`below` false) or all nonces below it are dead."""

    account: Address
    nonce: int
    below: bool


class LeaseOpened(_Event, frozen=True, kw_only=True):
    """Escrow is funded."""

    terms: LeaseTerms
    bid: Digest
    """Struct hash of the bid it came from."""
    at: int
    transaction: Digest


class LeaseReady(_Event, frozen=True, kw_only=True):
    """The node's Ready is on chain."""

    lease: LeaseKey
    at: int


class LeaseStarted(_Event, frozen=True, kw_only=True):
    lease: LeaseKey
    started_at: int
    at: int


class LeaseSettled(_Event, frozen=True, kw_only=True):
    """`paid` is cumulative, fee included."""

    lease: LeaseKey
    paid: TokenAmount
    at: int


class LeaseStopped(_Event, frozen=True, kw_only=True):
    """The buyer stopped it: pay is frozen at `ceiling`, the cap's rest went back to the buyer."""

    lease: LeaseKey
    ceiling: TokenAmount
    at: int


class NoticeGiven(_Event, frozen=True, kw_only=True):
    lease: LeaseKey
    at: int


class LeaseClosed(_Event, frozen=True, kw_only=True):
    """The end: `paid` in all to the provider's side, fee included; the cap's rest to the buyer."""

    lease: LeaseKey
    reason: LeaseEndReason
    paid: TokenAmount
    at: int


class EntrySkipped(_Event, frozen=True, kw_only=True):
    """One entry of a batch that this party sent was refused by the contract."""

    call: ChainCall
    position: int
    rejection: Rejection


class TransactionFailed(_Event, frozen=True, kw_only=True):
    """A transaction reverted or could not be sent for good."""

    call: ChainCall
    error: str


ChainEvent: TypeAlias = (
    ChainAdvanced
    | ChainReorganised
    | AccountRegistered
    | CashChanged
    | DelegationChanged
    | ProductRegistered
    | MarketRegistered
    | MachineAdded
    | BondAdded
    | PenaltyPaid
    | MachinePaused
    | MachineRetiring
    | MachineRetired
    | AsksCancelled
    | BidsCancelled
    | LeaseOpened
    | LeaseReady
    | LeaseStarted
    | LeaseSettled
    | LeaseStopped
    | NoticeGiven
    | LeaseClosed
    | EntrySkipped
    | TransactionFailed
)


# The node's own machine room.


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
    """The buyer asked the market, by a signed cancellation, to forget a bid."""

    bid: Digest


# The buyer's own wishes, and what its market answers.


class LeaseWanted(_Event, frozen=True, kw_only=True):
    """Open one lease: the signed alternatives share one nonce."""

    bids: tuple[SignedBid, ...]
    adverts: tuple[SignedAdvert, ...] = ()
    """What the market lists now: the node's addresses, should the market fall silent."""


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
    | MachineProbed
    | ContainerReady
    | ContainerFailed
    | JobStarted
    | OutputRead
    | JobExited
    | DrainAsked
)
MarketEvent: TypeAlias = DeadlinePassed | ChainEvent | AskHeard | BidSubmitted | BidWithdrawn
BuyerEvent: TypeAlias = (
    DeadlinePassed
    | MessageReceived
    | SendFailed
    | ChainEvent
    | LeaseWanted
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
