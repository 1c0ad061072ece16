"""Instructions, as they leave a party. Adapters carry them out; every one may be repeated safely.

Calls of the contracts are in `calls`; here are the other instructions, and who gives which.
"""

from __future__ import annotations

from typing import TypeAlias

from cloud_gpu.protocol.auctions import AuctionReport
from cloud_gpu.protocol.audit import Evidence
from cloud_gpu.protocol.audit_messages import AuditMessage, AuditRecord, SignedVerifierNotice
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.future_reports import ContractReport, FutureReport, SeriesReport
from cloud_gpu.protocol.group_reports import (
    CampaignNotice,
    CampaignReport,
    GroupLease,
    LockedPledge,
    PledgeReport,
)
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import JobSpec, ResultContent
from cloud_gpu.protocol.lease import LeaseKey, LeaseReport, MachineKey
from cloud_gpu.protocol.match import BidReport
from cloud_gpu.protocol.messages import Message
from cloud_gpu.protocol.notices import AnyNotice
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.price_reports import IndexPoint
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.rounds import RoundBody, RoundFacts
from cloud_gpu.protocol.values import Address, Digest, Value


class _Effect(Value, frozen=True, kw_only=True, tag=True):
    pass


class Transact(_Effect, frozen=True, kw_only=True):
    """Send this once; a repeat of the same call while the first is in flight is dropped."""

    call: ChainCall


# Peers.


class Publish(_Effect, frozen=True, kw_only=True):
    """Gossip an advert."""

    advert: SignedAdvert


class Connect(_Effect, frozen=True, kw_only=True):
    """Keep a connection to a peer while the lease lasts."""

    peer: PeerId
    addresses: tuple[str, ...]


class Send(_Effect, frozen=True, kw_only=True):
    peer: PeerId
    message: Message


class SendAudit(_Effect, frozen=True, kw_only=True):
    peer: PeerId
    message: AuditMessage


class PublishVerifier(_Effect, frozen=True, kw_only=True):
    """Gossip a verifier's notice."""

    notice: SignedVerifierNotice


class Replay(_Effect, frozen=True, kw_only=True):
    """Re-execute a segment as an ordinary job on another provider of the class."""

    evidence: Evidence
    peer: PeerId
    addresses: tuple[str, ...]
    """Where the evidence's files are fetched."""
    excluded: tuple[Address, ...]
    """Providers that may not run it."""
    gpu_class: GpuClass
    gpus: int
    against: tuple[ResultContent, ...] = ()
    """Other results to compare with, besides the committed one."""
    also_peer: PeerId | None = None
    also_addresses: tuple[str, ...] = ()
    """Another peer that has all the files: the verifier that asks for an opinion."""
    within_s: int = 3_600
    """Seconds after which it has failed."""


class PublishRecord(_Effect, frozen=True, kw_only=True):
    """Show everybody what was said about a batch."""

    record: AuditRecord


# The node's machine room.


class PrepareContainer(_Effect, frozen=True, kw_only=True):
    """Make a lease's container ready; idempotent."""

    lease: LeaseKey


class StartJob(_Effect, frozen=True, kw_only=True):
    spec: JobSpec


class KillJob(_Effect, frozen=True, kw_only=True):
    lease: LeaseKey
    job: Digest


class ReadOutput(_Effect, frozen=True, kw_only=True):
    """Read what a job printed again from these byte offsets; it comes as `OutputRead`."""

    lease: LeaseKey
    job: Digest
    stdout_from: int
    stderr_from: int


class PauseContainer(_Effect, frozen=True, kw_only=True):
    lease: LeaseKey


class ResumeContainer(_Effect, frozen=True, kw_only=True):
    lease: LeaseKey


class RemoveContainer(_Effect, frozen=True, kw_only=True):
    """End what runs for a lease and delete its folder."""

    lease: LeaseKey


class ProbeMachine(_Effect, frozen=True, kw_only=True):
    """Probe the hardware again and report `MachineProbed`."""

    index: int


# The market's public face.


class ReportBid(_Effect, frozen=True, kw_only=True):
    """What the API answers about a bid from now on."""

    report: BidReport


class ListAsk(_Effect, frozen=True, kw_only=True):
    """An ask entered the book."""

    ask: Digest
    advert: SignedAdvert


class UnlistAsk(_Effect, frozen=True, kw_only=True):
    """An ask left the book."""

    ask: Digest


class ListProduct(_Effect, frozen=True, kw_only=True):
    """A product was registered."""

    product: Product


class ReportLease(_Effect, frozen=True, kw_only=True):
    """What the API answers about a lease from now on."""

    report: LeaseReport


class ReportFuture(_Effect, frozen=True, kw_only=True):
    """What the API answers about an order of futures from now on."""

    report: FutureReport


class ReportContract(_Effect, frozen=True, kw_only=True):
    """What the API answers about a contract of futures from now on."""

    report: ContractReport


class ReportSeries(_Effect, frozen=True, kw_only=True):
    """What the API answers about a series from now on."""

    report: SeriesReport


class ReportNode(_Effect, frozen=True, kw_only=True):
    """Where the node of a machine is that was promised to a future; None: it no longer is."""

    machine: MachineKey
    advert: SignedAdvert | None


class ReportCampaign(_Effect, frozen=True, kw_only=True):
    """What the API answers about a group buy from now on."""

    report: CampaignReport
    pledges: tuple[LockedPledge, ...]
    leases: tuple[GroupLease, ...]


class ReportPledge(_Effect, frozen=True, kw_only=True):
    """What the API answers about a pledge from now on."""

    report: PledgeReport


class KeepNotice(_Effect, frozen=True, kw_only=True):
    """Tell an account of its campaign whenever it asks."""

    notice: CampaignNotice


class ReportAuction(_Effect, frozen=True, kw_only=True):
    """A block auction has cleared."""

    report: AuctionReport


class ReportIndex(_Effect, frozen=True, kw_only=True):
    """The price index of a GPU class from now on."""

    report: IndexPoint


class PublishRound(_Effect, frozen=True, kw_only=True):
    """Sign a round, chain it to the one before, and show it to everybody."""

    facts: RoundFacts
    body: RoundBody


# The buyer's market and façade.


class SubmitBid(_Effect, frozen=True, kw_only=True):
    order: SignedBid


class AskAboutBid(_Effect, frozen=True, kw_only=True):
    bid: Digest


class PushInputs(_Effect, frozen=True, kw_only=True):
    """Bring a job's input files to the node."""

    peer: PeerId
    spec: JobSpec


class Tell(_Effect, frozen=True, kw_only=True):
    """Tell the façade."""

    notice: AnyNotice


ProviderEffect: TypeAlias = (
    Transact
    | Publish
    | Send
    | PrepareContainer
    | StartJob
    | KillJob
    | ReadOutput
    | PauseContainer
    | ResumeContainer
    | RemoveContainer
    | ProbeMachine
    | SendAudit
)
FutureReported: TypeAlias = ReportFuture | ReportContract | ReportSeries | ReportNode
GroupReported: TypeAlias = ReportCampaign | ReportPledge | KeepNotice
MarketEffect: TypeAlias = (
    Transact
    | ReportBid
    | ListAsk
    | UnlistAsk
    | ListProduct
    | ReportLease
    | FutureReported
    | GroupReported
    | ReportIndex
    | ReportAuction
    | PublishRound
)
VerifierEffect: TypeAlias = (
    Transact | Connect | SendAudit | PublishVerifier | Replay | PublishRecord
)
BuyerEffect: TypeAlias = Transact | Connect | Send | SubmitBid | AskAboutBid | PushInputs | Tell
