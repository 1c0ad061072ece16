"""What a market decides about itself, as one value that its journal carries.

Settings are facts too: a restart with another round length is an event, so that replaying the
journal needs no settings file. Time-outs here are the market's own; the chain's are LeaseBook's.
"""

from __future__ import annotations

from typing import TypeAlias

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.events import MarketEvent
from cloud_gpu.protocol.futures import FuturesRules
from cloud_gpu.protocol.signing import Domain
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from cloud_gpu.protocol.values import Address, Value
from market.attributes import Attributes

ROUND_MS_MAX = 60_000
BLOCK_S_MAX = 24 * 3_600
BLOCK_WINDOWS_MAX = 336
"""That a block lasts: two weeks of hours."""
BATCH_MATCHES_MAX = 50
"""Matches in one transaction: a batch of ABI entries stays far below 2^24 gas and 128 KiB."""

GANG_MACHINES_MAX = 64
"""Machines of one bid, which open in one transaction: 1.5 M gas, 34 kB if one provider has them."""


class MarketRules(Value, frozen=True, kw_only=True):
    """Who this market is, and its rhythm."""

    domain: Domain
    matcher: Address
    """The account that posts openings; orders name it."""
    market_id: int
    """Its row in LeaseBook, which fixes the fee; 0: no market, no fee."""
    bond_unit: TokenAmount
    round_ms: int = 1_000
    """What arrives within one round is matched together."""
    settle_ms: int = 60_000
    """An opening the chain has not answered for so long is given up, and its capacity freed."""
    silence_ms: int = 60_000
    """No round while the newest block is older: matches against an old chain waste gas."""
    inclusion_s: int = 3
    """Orders that end sooner are not matched: the transaction would come too late."""
    openings_max: int = 5
    """How often one bid is matched again after its opening failed."""
    bids_per_account_max: int = limits.NONCE_WINDOW
    verifiers: tuple[Address, ...] = ()
    """Who audits verified leases; none: no verified lease is matched."""
    heartbeat_age_s: int = 600
    """Nor while one of them was not heard for so long."""
    class_owners_min: int = 3
    """Nor in a GPU class with fewer owners: somebody else must be able to repeat the work."""
    futures_domain: Domain | None = None
    """Of the contract for futures; None: they are not traded here."""
    futures: FuturesRules = FuturesRules()
    """Of that contract."""
    futures_batch_ms: int = 60_000
    """Orders of futures that arrive within one batch are cleared together."""
    position_limit: BasisPoints = BasisPoints(2_500)
    """What one account may hold of the hours that a product's machines have in a window."""
    block_s: int = 3_600
    """A block auction closes so often; blocks last one such window or several."""
    attributes: Attributes = Attributes()
    """Facts that make one fitting machine better than another; never a price."""
    group_buy_domain: Domain | None = None
    """Of the contract for group buys; None: none are kept here."""
    start_window_s: int = 600
    """Of the deployment: how long after a window's start its machines may be delivered."""

    def __post_init__(self) -> None:
        if self.matcher.is_zero:
            raise ValueError("rules.matcher is an account, not the zero address")
        if not 0 <= self.market_id <= 65_535:
            raise ValueError(f"rules.market_id is 0 to 65535, found {self.market_id}")
        if not 10 <= self.round_ms <= ROUND_MS_MAX:
            raise ValueError(f"rules.round_ms is 10 to {ROUND_MS_MAX}, found {self.round_ms}")
        if self.settle_ms < self.round_ms:
            raise ValueError("rules.settle_ms is not shorter than a round")
        if not self.bond_unit:
            raise ValueError("rules.bond_unit is above 0")
        if not 1 <= self.block_s <= BLOCK_S_MAX:
            raise ValueError(f"rules.block_s is 1 to {BLOCK_S_MAX}, found {self.block_s}")
        if not 10 <= self.futures_batch_ms <= ROUND_MS_MAX:
            raise ValueError(
                f"rules.futures_batch_ms is 10 to {ROUND_MS_MAX}, found {self.futures_batch_ms}"
            )
        if not 1 <= self.position_limit.value <= limits.BASIS_POINTS_ONE:
            raise ValueError(
                f"rules.position_limit is 1 to {limits.BASIS_POINTS_ONE} basis points,"
                f" found {self.position_limit.value}"
            )

    @property
    def owner(self) -> str:
        """Whose journal it is, in words."""
        book = self.domain.verifying_contract
        return (
            f"market {self.market_id} of {self.matcher} at {book} on chain {self.domain.chain_id}"
        )

    @property
    def identity(self) -> tuple[Domain, Address, int, TokenAmount]:
        """What may never change in one journal."""
        return self.domain, self.matcher, self.market_id, self.bond_unit


class RulesSet(Value, frozen=True, kw_only=True, tag=True):
    """The market started with these rules; the first event of every journal."""

    rules: MarketRules


MatchmakerEvent: TypeAlias = MarketEvent | RulesSet
