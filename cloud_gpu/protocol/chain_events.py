"""Past facts on the chain. The follower makes them, each once, in the order of the logs.

Times are the block's, Unix seconds. A fact is told after the confirmations the deployment asks
for; if a longer chain replaces it nevertheless, `ChainReorganised` takes it back.
"""

from __future__ import annotations

from typing import TypeAlias

from cloud_gpu.protocol.audit import BatchState, Opening
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.future_events import FutureEvent, FutureOrderClosed
from cloud_gpu.protocol.group_events import GroupEvent
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.identity import Delegation
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, LeaseTerms, MachineKey
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Value


class _Event(Value, frozen=True, kw_only=True, tag=True):
    pass


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
    """A deposit (`increase`) or a withdrawal; or a module gave cash, or took some."""

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

    @property
    def row(self) -> Product:
        """The product, as it was registered."""
        return Product(
            id=self.product,
            gpu_class=self.gpu_class,
            slice_gpus=self.slice_gpus,
            region_group=self.region_group,
            min_bond=self.min_bond,
            notice=self.notice,
            penalty=self.penalty,
            flags=self.flags,
        )


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
    """The provider will leave: from `releasable_at` on, Unix seconds, without a penalty."""

    lease: LeaseKey
    releasable_at: int
    at: int


class LeaseClosed(_Event, frozen=True, kw_only=True):
    """The end: `paid` in all to the provider's side, fee included; the cap's rest to the buyer."""

    lease: LeaseKey
    reason: LeaseEndReason
    paid: TokenAmount
    at: int


class BatchCommitted(_Event, frozen=True, kw_only=True):
    """A provider committed to its results; `value` left the lease's held pay for the batch."""

    lease: LeaseKey
    batch_no: int
    root: Digest
    n: int
    value: TokenAmount
    locked: TokenAmount
    """Of the machine's bond."""
    at: int
    block: int


class BatchDrawn(_Event, frozen=True, kw_only=True):
    """The seed is on chain: everybody knows now which segments are audited."""

    lease: LeaseKey
    batch_no: int
    seed: Digest
    at: int


class SegmentAccused(_Event, frozen=True, kw_only=True):
    """Two verifiers agree on a mismatch; it may be contested until `until`."""

    lease: LeaseKey
    batch_no: int
    until: int
    opening: Opening
    """The segment, as whoever contests or convicts shows it."""
    at: int

    @property
    def i(self) -> int:
        """The segment's number."""
        return self.opening.i


class AccusationContested(_Event, frozen=True, kw_only=True):
    """The segment's price went back to its buyer, nobody is fined."""

    lease: LeaseKey
    batch_no: int
    i: int
    refund: TokenAmount
    at: int


class SegmentConvicted(_Event, frozen=True, kw_only=True):
    """The segment's price went back to its buyer, the fine was taken of the bond."""

    lease: LeaseKey
    batch_no: int
    i: int
    refund: TokenAmount
    fine: TokenAmount
    bounty: TokenAmount
    """Of the fine: to the audit account whose turn the batch was. The rest was burnt."""
    at: int


class LeafChallenged(_Event, frozen=True, kw_only=True):
    """A verifier asks to see the leaf at point j of m; all open ones until `until`."""

    lease: LeaseKey
    batch_no: int
    j: int
    m: int
    until: int
    at: int


class LeafOpened(_Event, frozen=True, kw_only=True):
    """The leaf at point j was shown: it is segment i."""

    lease: LeaseKey
    batch_no: int
    j: int
    i: int
    job: Digest
    result: Digest
    salt: Digest
    at: int


class SilenceConvicted(_Event, frozen=True, kw_only=True):
    """Nobody showed the leaf at point j: a part went back to the buyer, the fine was burnt."""

    lease: LeaseKey
    batch_no: int
    j: int
    refund: TokenAmount
    fine: TokenAmount
    at: int


class BatchFinalised(_Event, frozen=True, kw_only=True):
    """The batch ended: what the provider, the market, the audits and the buyer got of it."""

    lease: LeaseKey
    batch_no: int
    state: BatchState
    provider: TokenAmount
    market: TokenAmount
    audits: TokenAmount
    buyer: TokenAmount
    burnt: TokenAmount
    at: int


class HeldReturned(_Event, frozen=True, kw_only=True):
    """Held pay that nobody committed to went back to the buyer."""

    lease: LeaseKey
    amount: TokenAmount
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


BatchStep: TypeAlias = (
    BatchDrawn
    | SegmentAccused
    | AccusationContested
    | SegmentConvicted
    | LeafChallenged
    | LeafOpened
    | SilenceConvicted
    | BatchFinalised
)
"""What happens to a batch after its commitment."""

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
    | BatchCommitted
    | BatchStep
    | HeldReturned
    | FutureEvent
    | FutureOrderClosed
    | GroupEvent
    | EntrySkipped
    | TransactionFailed
)
