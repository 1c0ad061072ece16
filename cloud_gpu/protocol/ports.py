"""How pure code reaches the outside world: small protocols, one role each.

Every port has a fake in `cloud_gpu.testing` and a real adapter; one suite runs on both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from cloud_gpu.protocol.auctions import AuctionReport
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.chain_events import ChainEvent
from cloud_gpu.protocol.group_reports import GroupLease
from cloud_gpu.protocol.hardware import HardwareProfile
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import JobSpec
from cloud_gpu.protocol.lease import LeaseKey, LeaseReport, MachineKey, MachineStatus
from cloud_gpu.protocol.match import BidReport
from cloud_gpu.protocol.messages import RuntimeReport
from cloud_gpu.protocol.news import Cut, Interest, News
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid, SignedCancellation
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.units import BasisPoints, Instant, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Value

EventT = TypeVar("EventT")


class Clock(Protocol):
    """The wall clock."""

    def now(self) -> Instant: ...


class AccountView(Value, frozen=True, kw_only=True):
    """An account's word on chain."""

    id: int
    cash: TokenAmount
    nonce_base: int
    nonce_bits: int

    def nonce_is_free(self, nonce: int) -> bool:
        """Whether a bid with this nonce could still open."""
        place = nonce - self.nonce_base
        return place >= 0 and (place > 127 or not self.nonce_bits >> place & 1)


class MachineView(Value, frozen=True, kw_only=True):
    """A machine's words on chain; `paid` and `cap` are of its current lease."""

    status: MachineStatus
    product: int
    bond: TokenAmount
    locked: TokenAmount
    seq: int
    """Of the newest lease; 0 before the first."""
    next_seq: int
    """What the next ask must carry."""
    cap: TokenAmount
    paid: TokenAmount
    buyer_id: int
    start: int
    duration: int
    market_id: int


class Chain(Protocol):
    """One account's way to LeaseBook; calls are durable before they are sent."""

    async def submit(self, call: ChainCall) -> None: ...

    def events(self) -> AsyncIterator[ChainEvent]: ...

    async def account(self, address: Address) -> AccountView: ...

    async def machine(self, key: MachineKey) -> MachineView: ...


class Journal(Protocol[EventT]):
    """Accepted events, durable before they are handled; starting is replaying."""

    def append(self, event: EventT, now: Instant) -> None: ...

    def replay(self) -> Iterator[tuple[EventT, Instant]]: ...


class MarketView(Value, frozen=True, kw_only=True):
    """What a market says of itself."""

    matcher: Address
    """The key that bids must name, and that signs receipts."""
    market_id: int
    fee_bps: BasisPoints
    round_ms: int
    block_s: int = 3_600
    """How often a block auction closes; a block lasts whole windows of it."""
    chain_id: int
    lease_book: Address
    token: Address
    peer: PeerId
    addresses: tuple[str, ...]


class MarketApi(Protocol):
    """A market, as its buyers see it."""

    async def describe(self) -> MarketView: ...

    async def products(self) -> Sequence[Product]: ...

    async def place(self, order: SignedBid) -> SignedReceipt: ...

    async def report(self, bid: Digest) -> BidReport: ...

    async def asks(self, gpu: str = "") -> Sequence[SignedAdvert]:
        """What may be opened now, cheapest first; `gpu` by words: "A100" finds "A100-SXM4-80GB"."""
        ...

    async def cancel(self, statement: SignedCancellation) -> None: ...

    async def leases(self, buyer: Address) -> Sequence[LeaseReport]: ...

    async def auctions(self, window: int | None = None) -> Sequence[AuctionReport]:
        """The last that have cleared, newest first; or the one of a window (Unix seconds)."""
        ...

    def watch(
        self, interest: Interest, after: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[News | Cut]]:
        """What happens, as it does; `after` is the number that was heard last."""
        ...

    async def promised_node(self, machine: MachineKey) -> SignedAdvert | None:
        """Where the node of a machine is that was promised to a future; None: it was not heard."""
        ...

    async def group_leases(self, campaign: Digest, buyer: Address) -> Sequence[GroupLease]:
        """What a group buy opened for a buyer."""
        ...


class Runtime(Protocol):
    """Runs strangers' jobs. Every call may be repeated; what happens later comes as events.

    All raise `ContainerFailed` when the engine below does not do what it was told.
    """

    async def prepare(self, lease: LeaseKey, profile: HardwareProfile) -> RuntimeReport:
        """Make everything ready that the lease's jobs need, and say what that is."""
        ...

    async def start_job(self, spec: JobSpec) -> None:
        """Start, or take up again: JobStarted, OutputRead and, once, JobExited follow."""
        ...

    async def kill_job(self, lease: LeaseKey, job: Digest) -> None:
        """End it; JobExited follows, also for a job that never started."""
        ...

    async def read_output(
        self, lease: LeaseKey, job: Digest, stdout_from: int, stderr_from: int
    ) -> None:
        """What a running job printed from these byte offsets on: OutputRead, one a stream."""
        ...

    async def pause(self, lease: LeaseKey) -> None:
        """Stop the clock of everything that runs for the lease."""
        ...

    async def resume(self, lease: LeaseKey) -> None: ...

    async def end_jobs(self, lease: LeaseKey) -> None:
        """End what runs for the lease, within seconds; its folder and results stay."""
        ...

    async def remove(self, lease: LeaseKey) -> None:
        """End what runs for the lease and delete what it left."""
        ...

    async def adopt(self) -> Sequence[RuntimeReport]:
        """What was prepared before this process and is still here."""
        ...


class Artifacts(Protocol):
    """Files by sha256."""

    def put_file(self, path: Path) -> str: ...

    def path_of(self, sha256: str) -> Path: ...

    def has(self, sha256: str) -> bool: ...
