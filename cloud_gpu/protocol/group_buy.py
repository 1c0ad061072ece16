"""Group buys: a campaign that buyers agree on by its id, and the pledge each of them signs.

Equal to GroupBuy.sol on shared vectors (tests/vectors/futures.json holds the ids).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.signing import Domain, Statement, TypedData
from cloud_gpu.protocol.units import GpuSeconds, Price, TokenAmount, cost_down
from cloud_gpu.protocol.values import Address, Digest, Value, keccak256, within

GROUP_BUY: Final = "GroupBuy"
"""The contract, also in its EIP-712 domain."""
PLEDGES_MAX: Final = 100
SLICES_MAX: Final = 100
"""Of one campaign."""
PROVIDERS_MAX: Final = 100
"""That a campaign names."""
CAMPAIGN_S_MAX: Final = 14 * 24 * 3600
"""From a pledge to the deadline."""
ANY_PROVIDER: Final = Digest(bytes(32))


class Campaign(Value, frozen=True, kw_only=True):
    """Everything that a group buy's pledges agree on; nobody can change any of it."""

    organiser: Address
    """Whoever set it up; it has no rights."""
    product: int
    price_per_hour: Price
    """What every lease costs."""
    duration: int
    """Of every lease, seconds."""
    goal: int
    """Slices (machines) without which no lease opens."""
    window_start: int
    """When it may close at the earliest, Unix seconds."""
    deadline: int
    market_id: int = 0
    providers_hash: Digest = ANY_PROVIDER
    """See `providers_hash`."""

    def __post_init__(self) -> None:
        within("campaign.product", self.product, 1, 2**32 - 1)
        within("campaign.duration", self.duration, 1, limits.DURATION_S_MAX)
        within("campaign.goal", self.goal, 1, SLICES_MAX)
        within("campaign.window_start", self.window_start, 0, 2**32 - 1)
        within("campaign.deadline", self.deadline, 1, 2**32 - 1)
        within("campaign.market_id", self.market_id, 0, 2**16 - 1)
        if self.window_start > self.deadline:
            raise ValueError("campaign.window_start is not after its deadline")

    def cost(self, gpus: int) -> TokenAmount:
        """What a lease costs on machines of so many GPUs: a slice's share of a pledge."""
        return cost_down(self.price_per_hour, GpuSeconds(gpus * self.duration))

    def id_in(self, domain: Domain) -> Digest:
        """Its id under a deployment's GroupBuy."""
        return self.id(chain_id=domain.chain_id, contract=domain.verifying_contract)

    def id(self, *, chain_id: int, contract: Address) -> Digest:
        """keccak256 of chain, contract and all fields, ABI-encoded: what pledges name."""
        whole = (
            self.product,
            self.price_per_hour.value,
            self.duration,
            self.goal,
            self.window_start,
            self.deadline,
            self.market_id,
        )
        words = (
            _word(chain_id),
            _padded(contract),
            _padded(self.organiser),
            *map(_word, whole),
            self.providers_hash.raw,
        )
        return keccak256(b"".join(words))


class CampaignOffer(Value, frozen=True, kw_only=True):
    """A campaign and the providers that it names by their hash; its organiser's statement."""

    KIND: ClassVar[str] = "cloud-gpu/campaign"
    campaign: Campaign
    providers: tuple[Address, ...] = ()
    """Who alone may serve it; empty: anybody."""

    def __post_init__(self) -> None:
        if len(self.providers) > PROVIDERS_MAX:
            raise ValueError(
                f"offer.providers are at most {PROVIDERS_MAX}, found {len(self.providers)}"
            )
        needed = providers_hash(self.providers) if self.providers else ANY_PROVIDER
        if self.campaign.providers_hash != needed:
            raise ValueError(
                f"campaign.providers_hash is {needed} for these providers,"
                f" found {self.campaign.providers_hash}"
            )


class HeldCampaign(Value, frozen=True, kw_only=True):
    """What GroupBuy keeps of a campaign."""

    slices: int
    pledges: int
    """That were ever locked: their places are 0 to that."""
    is_closed: bool
    """Its leases were opened."""


SignedCampaign = Statement[CampaignOffer]


def providers_hash(providers: Sequence[Address]) -> Digest:
    """What a campaign names that only these may serve, in this order."""
    head = (_word(32), _word(len(providers)))
    return keccak256(b"".join((*head, *map(_padded, providers))))


def _word(value: int) -> bytes:
    return value.to_bytes(32, "big")


def _padded(address: Address) -> bytes:
    return address.raw.rjust(32, b"\0")


class Pledge(TypedData, frozen=True, kw_only=True):
    """A buyer's promise to lease `slices` machines; locked at once. Its own key alone signs."""

    TYPE = "Pledge(address buyer,bytes32 campaignId,uint48 maxAmount,uint16 slices,uint32 nonce)"
    buyer: Address
    campaign_id: Digest
    max_amount: TokenAmount
    """The most that is locked for all slices together."""
    slices: int
    nonce: int
    """Of the account's window, which its bids share."""

    @property
    def id(self) -> Digest:
        """Its struct hash."""
        return self.struct_hash()

    def __post_init__(self) -> None:
        within("pledge.max_amount", self.max_amount.value, 0, 2**48 - 1)
        within("pledge.slices", self.slices, 1, SLICES_MAX)
        within("pledge.nonce", self.nonce, 0, 2**32 - 1)
