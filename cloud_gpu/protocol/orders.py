"""Orders: a provider's ask, a buyer's bid, and the documents that bind what their words leave out.

Both are EIP-712 values that LeaseBook checks again on chain; the type strings are final and equal
to Solidity's. A bid's `terms` is the digest of its constraint document.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntFlag, StrEnum
from typing import ClassVar, NewType

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.hardware import GpuClass, HardwareProfile, Isolation
from cloud_gpu.protocol.identity import KeyRole, NodeBinding, PeerId
from cloud_gpu.protocol.lease import LeaseKey, MachineKey
from cloud_gpu.protocol.signing import Signed, Statement, TypedData
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, Price, TokenAmount
from cloud_gpu.protocol.values import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Digest,
    Value,
    keccak256,
    within,
)

AskId = NewType("AskId", Digest)
BidId = NewType("BidId", Digest)
"""An order's id is its struct hash: the same in the book, in a `Match` and on chain."""


class AskFlags(IntFlag):
    """What the provider offers; bit values are the contract's."""

    INTERRUPTIBLE = 1
    VERIFIED = 2


class BidFlags(IntFlag):
    """What the buyer accepts; bit values are the contract's."""

    INTERRUPTIBLE = 1
    VERIFIED = 2
    PAY_AS_ASK = 4


class Scope(StrEnum):
    """How near each other the machines of one bid must be, nearest first."""

    NODE = "node"
    """All at one node."""
    FABRIC = "fabric"
    """Of one provider, which says that one fabric joins them (`HardwareProfile.fabric`)."""
    REGION = "region"
    ANY = "any"


class Ask(TypedData, frozen=True, kw_only=True):
    """A provider's signed price for one machine and one lease number."""

    TYPE = (
        "Ask(address provider,uint32 index,uint24 seq,uint32 product,uint64 minPricePerHour,"
        "uint24 minDuration,uint24 maxDuration,uint32 startBy,address matcher,uint16 maxFeeBps,"
        "uint8 flags)"
    )
    ROLE = KeyRole.NODE
    provider: Address
    index: int
    seq: int
    """The lease this ask may open; the machine's next one."""
    product: int
    min_price_per_hour: Price
    min_duration: int
    max_duration: int
    """Seconds."""
    start_by: int
    """Unix seconds after which the ask cannot be opened."""
    matcher: Address
    max_fee_bps: BasisPoints
    flags: int = 0

    def __post_init__(self) -> None:
        within("ask.index", self.index, 0, 2**32 - 1)
        within("ask.seq", self.seq, 1, limits.SEQ_MAX)
        within("ask.product", self.product, 1, 2**32 - 1)
        within("ask.min_duration", self.min_duration, 1, limits.DURATION_S_MAX)
        within("ask.max_duration", self.max_duration, self.min_duration, limits.DURATION_S_MAX)
        within("ask.start_by", self.start_by, 1, 2**32 - 1)
        within("ask.max_fee_bps", self.max_fee_bps.value, 0, 65_535)
        within("ask.flags", self.flags, 0, 3)
        if not self.min_price_per_hour:
            raise ValueError("ask.min_price_per_hour is above 0: a free lease locks nothing")
        if self.matcher.is_zero:
            raise ValueError("ask.matcher names the market that may open it, not the zero address")

    @property
    def id(self) -> AskId:
        """Its struct hash."""
        return AskId(self.struct_hash())

    @property
    def machine(self) -> MachineKey:
        """What it is for."""
        return MachineKey(provider=self.provider, index=self.index)

    @property
    def lease(self) -> LeaseKey:
        """What it may open."""
        return LeaseKey(provider=self.provider, index=self.index, seq=self.seq)


class Bid(TypedData, frozen=True, kw_only=True):
    """A buyer's signed limit. Alternatives share one nonce: the first to open voids the rest."""

    TYPE = (
        "Bid(address buyer,uint32 product,uint16 count,uint64 maxPricePerHour,uint24 duration,"
        "uint32 startBy,uint32 openFrom,address provider,uint32 nonce,address matcher,"
        "uint16 maxFeeBps,uint16 auditBps,uint8 flags,bytes32 terms)"
    )
    buyer: Address
    product: int
    count: int
    """GPUs: the sum over the slices of its leases."""
    max_price_per_hour: Price
    duration: int
    """Seconds."""
    start_by: int
    open_from: int
    """Unix seconds after which the buyer may open a match itself, at the ask's price."""
    provider: Address = ZERO_ADDRESS
    """Zero: any provider."""
    nonce: int
    matcher: Address
    max_fee_bps: BasisPoints
    audit_bps: BasisPoints = BasisPoints(0)
    flags: int = 0
    terms: Digest

    def __post_init__(self) -> None:
        within("bid.product", self.product, 1, 2**32 - 1)
        within("bid.count", self.count, 1, limits.GPUS_MAX)
        within("bid.duration", self.duration, 1, limits.DURATION_S_MAX)
        within("bid.start_by", self.start_by, 1, 2**32 - 1)
        within("bid.open_from", self.open_from, 0, 2**32 - 1)
        within("bid.nonce", self.nonce, 0, 2**32 - 1)
        within("bid.audit_bps", self.audit_bps.value, 0, limits.AUDIT_BPS_MAX)
        within("bid.flags", self.flags, 0, 7)
        if not self.max_price_per_hour:
            raise ValueError("bid.max_price_per_hour is above 0")
        if self.matcher.is_zero:
            raise ValueError("bid.matcher names the market that may open it, not the zero address")

    @property
    def id(self) -> BidId:
        """Its struct hash."""
        return BidId(self.struct_hash())

    @property
    def quantity(self) -> GpuSeconds:
        """GPU-seconds asked for."""
        return GpuSeconds(self.count * self.duration)


class Terms(Value, frozen=True, kw_only=True):
    """A bid's full constraints; empty fields constrain nothing. Hashed into `Bid.terms`."""

    KIND: ClassVar[str] = "cloud-gpu/terms"
    gpu_classes: tuple[GpuClass, ...] = ()
    gpu_memory_mib_min: int = 0
    gpu_memory_mib_max: int = 0
    """0: no limit."""
    memory_mib_min: int = 0
    disk_mib_min: int = 0
    cuda_min: str = ""
    cuda_max: str = ""
    driver_min: str = ""
    driver_max: str = ""
    regions: tuple[str, ...] = ()
    excluded_regions: tuple[str, ...] = ()
    """A machine whose region is not told is in none of them."""
    network_classes: tuple[str, ...] = ()
    isolation_min: Isolation = Isolation.PROCESS
    simulated_allowed: bool = True
    excluded_providers: tuple[Address, ...] = ()
    scope: Scope = Scope.ANY
    """Of a bid for several machines."""
    chunk: int = 0
    """GPUs that come together: each node gives a multiple of it. 0: as many as a machine has."""
    start_from: int = 0
    """Unix seconds before which it is not matched; 0: at once. `Bid.start_by` ends the window."""
    block: bool = False
    """For lane B: sealed until the first block auction that it takes part in has cleared, then
    published, also if it got nothing; one price for all."""
    salt: Digest = ZERO_DIGEST
    """Random, and needed, of a sealed bid: its id is published at once, and is the hash of little
    else that could not be guessed by trying all limits."""
    gpu_memory_need_mib: int = 0
    """What the job takes of each GPU's memory; the market's margin is put on top."""
    communication: BasisPoints = BasisPoints(0)
    """Of the running time, what machines of one bid spend on each other: weighs how near they
    are."""
    electricity_weight: BasisPoints = BasisPoints(0)
    """How much of a machine's electricity counts as if the buyer paid for it."""
    carbon_price: TokenAmount = TokenAmount(0)
    """What a kilogram of CO2 counts for, likewise; nobody is charged for either."""
    one_round: bool = False
    """Immediate or cancel: what the first round does not match, or what then does not open, ends
    there, instead of waiting until the bid's `start_by`."""

    def __post_init__(self) -> None:
        words = self.gpu_classes + self.regions + self.excluded_regions + self.network_classes
        if len(words) + len(self.excluded_providers) > limits.TERMS_WORDS_MAX:
            raise ValueError(f"terms hold at most {limits.TERMS_WORDS_MAX} words in all")
        if any(len(word) > 64 for word in words):
            raise ValueError("a word of the terms has at most 64 characters")
        within("terms.chunk", self.chunk, 0, limits.GPUS_MAX)
        within("terms.gpu_memory_need_mib", self.gpu_memory_need_mib, 0, 2**24 - 1)
        within("terms.communication", self.communication.value, 0, limits.BASIS_POINTS_ONE)
        within("terms.carbon_price", self.carbon_price.value, 0, limits.PRICE_MAX)
        within("terms.start_from", self.start_from, 0, 2**32 - 1)

    @property
    def digest(self) -> Digest:
        """keccak256 of the canonical JSON."""
        return keccak256(to_json(self))

    def unmet_by(self, profile: HardwareProfile, provider: Address) -> str | None:
        """The first constraint that a machine does not satisfy, in words; None: all are met."""
        return next(self.all_unmet_by(profile, provider), None)

    def all_unmet_by(self, profile: HardwareProfile, provider: Address) -> Iterator[str]:
        """Every constraint that a machine does not satisfy, in words."""
        yield from self._unmet_by_gpus(profile)
        yield from self._unmet_by_versions(profile)
        yield from self._unmet_by_host(profile)
        yield from self.unmet_by_place(profile)
        if provider in self.excluded_providers:
            yield f"excluded_providers: names {provider}"

    def _unmet_by_gpus(self, profile: HardwareProfile) -> Iterator[str]:
        smallest = min(gpu.memory_mib for gpu in profile.gpus)
        if self.gpu_classes and profile.gpu_class not in self.gpu_classes:
            yield (
                f"gpu_classes: found {profile.gpu_class}, needed one of {_listed(self.gpu_classes)}"
            )
        if smallest < self.gpu_memory_mib_min:
            yield f"gpu_memory_mib_min: found {smallest}, needed {self.gpu_memory_mib_min}"
        most, largest = self.gpu_memory_mib_max, max(gpu.memory_mib for gpu in profile.gpus)
        if most and largest > most:
            yield f"gpu_memory_mib_max: found {largest}, needed {most}"

    def _unmet_by_versions(self, profile: HardwareProfile) -> Iterator[str]:
        gpu = profile.gpus[0]
        for name, found, least, most in (
            ("cuda", gpu.cuda, self.cuda_min, self.cuda_max),
            ("driver", gpu.driver, self.driver_min, self.driver_max),
        ):
            if least and _version(found) < _version(least):
                yield f"{name}_min: found {found or 'none'}, needed {least}"
            if most and not (found and _version(found) <= _version(most)):
                yield f"{name}_max: found {found or 'none'}, needed {most}"

    def _unmet_by_host(self, profile: HardwareProfile) -> Iterator[str]:
        for name, found, needed in (
            ("memory_mib_min", profile.memory_mib, self.memory_mib_min),
            ("disk_mib_min", profile.disk_mib, self.disk_mib_min),
        ):
            if found < needed:
                yield f"{name}: found {found}, needed {needed}"
        if profile.isolation.strength < self.isolation_min.strength:
            yield f"isolation_min: found {profile.isolation}, needed {self.isolation_min}"
        if profile.simulated and not self.simulated_allowed:
            yield "simulated_allowed: found simulated GPUs, needed real ones"

    def unmet_by_place(self, profile: HardwareProfile) -> Iterator[str]:
        """The same of where it stands: its region, its network."""
        place = set(profile.region.split("/"))
        if self.regions and not set(self.regions) & place:
            found = profile.region or "none"
            yield f"regions: found {found}, needed one of {_listed(self.regions)}"
        if barred := [region for region in self.excluded_regions if region in place]:
            yield (
                f"excluded_regions: found {profile.region}, needed none of {_listed(tuple(barred))}"
            )
        if self.network_classes and profile.network_class not in self.network_classes:
            needed_words = _listed(self.network_classes)
            yield f"network_classes: found {profile.network_class}, needed one of {needed_words}"


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in text.split(".")) if text else ()


class SignedBid(Value, frozen=True, kw_only=True):
    """A bid as a buyer submits it."""

    bid: Signed[Bid]
    terms: Terms


class Cancellation(Value, frozen=True, kw_only=True):
    """The market shall forget this bid. Signed by the buyer as a statement.

    It binds nobody: only a nonce voided on chain (`CancelOne`) makes a bid unopenable.
    """

    KIND: ClassVar[str] = "cloud-gpu/cancellation"
    bid: Digest


SignedCancellation = Statement[Cancellation]


class Advert(Value, frozen=True, kw_only=True):
    """An ask as it is gossiped: with the machine's profile and where its node is reached."""

    KIND: ClassVar[str] = "cloud-gpu/advert"
    ask: Signed[Ask]
    profile: HardwareProfile
    peer: PeerId
    addresses: tuple[str, ...]
    """Multiaddrs, each ending in /p2p/<peer>."""
    binding: Statement[NodeBinding]


SignedAdvert = Statement[Advert]
"""Signed by the node key."""
