"""Signed bids of many buyers, and the market that takes them; no chain is asked."""

from __future__ import annotations

from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.orders import Bid, SignedBid, Terms
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.signing import Domain, sign
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount
from cloud_gpu.protocol.values import Address, keccak256
from market.rules import MarketRules

NOW_S = 1_800_000_000
"""When they are taken, unless told otherwise."""
MATCHER = LocalKey(keccak256(b"matcher").raw)
FEE = BasisPoints(100)
RULES = MarketRules(
    domain=Domain(name="LeaseBook", chain_id=31_337, verifying_contract=Address(b"\x0b" * 20)),
    matcher=MATCHER.address,
    market_id=1,
    bond_unit=TokenAmount(1_000_000),
)
_CLASS = GpuClass("A100-SXM4-80GB")
PRODUCT = Product(
    id=1,
    gpu_class=_CLASS,
    slice_gpus=1,
    region_group="",
    min_bond=BasisPoints(0),
    notice=60,
    penalty=BasisPoints(1_000),
    flags=0,
)
_BUYERS = 50


def bids(
    count: int, at: int = NOW_S, *, rules: MarketRules = RULES, product: int = PRODUCT.id
) -> list[SignedBid]:
    """Different bids, sound at `at` (Unix seconds) and some minutes later, of fifty buyers."""
    buyers = [LocalKey(keccak256(b"buyer %d" % number).raw) for number in range(_BUYERS)]
    terms = Terms(gpu_classes=(_CLASS,), gpu_memory_mib_min=40_000, regions=("EU", "US"))
    found = []
    for number in range(count):
        buyer = buyers[number % _BUYERS]
        bid = Bid(
            buyer=buyer.address,
            product=product,
            count=PRODUCT.slice_gpus,
            max_price_per_hour=Price(1_000 * (1 + number % 3_000)),
            duration=3_600,
            start_by=at + 1_800,
            open_from=at + 1_200,
            nonce=number // _BUYERS,
            matcher=rules.matcher,
            max_fee_bps=BasisPoints(1_000),
            terms=terms.digest,
        )
        found.append(SignedBid(bid=sign(bid, rules.domain, buyer), terms=terms))
    return found
