"""Every limit that keeps an ask from a bid, and what a person is told about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_gpu.protocol.hardware import Isolation
from cloud_gpu.protocol.orders import AskFlags, BidFlags, SignedAdvert, SignedBid, Terms
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from cloud_gpu.protocol.values import Address
from market.books.book import RestingAsk
from market.books.ledger import Ledger
from market.clearing.fitting import Conditions, fits, obstacles
from tests.unit.market.builders import (
    FEE,
    NOW_S,
    RULES,
    TOKEN,
    advert,
    key,
    order,
    product,
    profile,
    resting_ask,
    resting_bid,
)


def conditions(*asks: RestingAsk, bond: int = 10, flags: int = 0) -> Conditions:
    ledger = Ledger(RULES.bond_unit)
    ledger.apply(product(flags=flags))
    return Conditions(
        at=NOW_S,
        inclusion_s=3,
        fee=FEE,
        products=ledger.products,
        bonds={ask.machine: TokenAmount(bond * TOKEN) for ask in asks},
        verifiers_alive=True,
    )


PLAIN = order("bob", limit="1.50", duration=3_600)

CASES: list[tuple[str, SignedBid, SignedAdvert, str, str]] = [
    ("price", PLAIN, advert(at="1.60"), "bid.max_price_per_hour", "raise the price limit to 1.60"),
    (
        "too short",
        order("bob", duration=60),
        advert(min_duration=600),
        "bid.duration",
        "change the duration to 10m",
    ),
    (
        "too long",
        order("bob", duration=7_200),
        advert(max_duration=3_600),
        "bid.duration",
        "change the duration to 1h",
    ),
    ("ask ends", PLAIN, advert(start_by=NOW_S + 2), "ask.start_by", ""),
    (
        "bid ends",
        order("bob", start_by=NOW_S + 2),
        advert(),
        "bid.start_by",
        "bid with a later start-by",
    ),
    (
        "provider",
        order("bob", provider=key("eve").address),
        advert(),
        "bid.provider",
        "accept any provider (leave it zero)",
    ),
    ("self", order("ada"), advert("ada"), "bid.buyer", ""),
    (
        "bid's fee",
        order("bob", max_fee_bps=BasisPoints(99)),
        advert(),
        "bid.max_fee_bps",
        "accept a fee of 100 bp",
    ),
    ("ask's fee", PLAIN, advert(max_fee_bps=BasisPoints(99)), "ask.max_fee_bps", ""),
    (
        "interruptible",
        PLAIN,
        advert(flags=AskFlags.INTERRUPTIBLE),
        "bid.flags",
        "accept interruption",
    ),
    (
        "verified",
        order("bob", flags=BidFlags.VERIFIED),
        advert(),
        "bid.flags",
        "do without verified results",
    ),
    (
        "terms",
        order("bob", wanting=Terms(gpu_memory_mib_min=90_000)),
        advert(),
        "terms.gpu_memory_mib_min",
        "accept 81920 (gpu_memory_mib_min)",
    ),
    (
        "isolation",
        order("bob", wanting=Terms(isolation_min=Isolation.VM)),
        advert(),
        "terms.isolation_min",
        "accept container (isolation_min)",
    ),
    (
        "simulated",
        order("bob", wanting=Terms(simulated_allowed=False)),
        advert(),
        "terms.simulated_allowed",
        "accept simulated GPUs (simulated_allowed)",
    ),
    (
        "excluded",
        order("bob", wanting=Terms(excluded_providers=(key("ada").address,))),
        advert(),
        "terms.excluded_providers",
        "do without excluded_providers",
    ),
    (
        "bond",
        order("bob", limit=200, duration=3_600),
        advert(at="101.00"),
        "ask.bond",
        "bid for a shorter duration, which the machine's bond covers",
    ),
    (
        "no cost",
        order("bob", duration=3),
        advert(at="0.001", min_duration=1),
        "bid.duration",
        "bid for a longer duration",
    ),
]


@pytest.mark.parametrize(
    ("bid", "ask", "field", "change"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_one_obstacle_is_found_and_named(
    bid: SignedBid, ask: SignedAdvert, field: str, change: str
) -> None:
    offered, wanted = resting_ask(ask), resting_bid(bid)
    given = conditions(offered)
    (found,) = obstacles(wanted, offered, given)
    assert (found.field, found.words().change) == (field, change)
    assert not fits(wanted, offered, given)


def test_every_broken_rule_is_told_for_itself() -> None:
    """What is told as the only one in the way must be the only one."""
    offered = resting_ask(
        advert(
            flags=AskFlags.INTERRUPTIBLE,
            max_fee_bps=BasisPoints(98),
            start_by=NOW_S + 2,
            hardware=profile(region="US"),
        )
    )
    wanted = order(
        "bob",
        flags=BidFlags.VERIFIED,
        max_fee_bps=BasisPoints(99),
        start_by=NOW_S + 2,
        wanting=Terms(
            regions=("EU",), gpu_memory_mib_min=90_000, cuda_min="99", simulated_allowed=False
        ),
    )
    found = [each.field for each in obstacles(resting_bid(wanted), offered, conditions(offered))]
    assert found == [
        "ask.start_by",
        "bid.start_by",
        "bid.max_fee_bps",
        "ask.max_fee_bps",
        "bid.flags",
        "bid.flags",
        "terms.gpu_memory_mib_min",
        "terms.cuda_min",
        "terms.simulated_allowed",
        "terms.regions",
    ]


def test_an_ask_within_every_limit_fits() -> None:
    offered = resting_ask(advert(at="1.50"))
    assert fits(resting_bid(PLAIN), offered, conditions(offered))


def test_an_interruptible_ask_fits_a_bid_that_accepts_it_where_the_product_allows() -> None:
    offered = resting_ask(advert(flags=AskFlags.INTERRUPTIBLE))
    wanted = resting_bid(order("bob", flags=BidFlags.INTERRUPTIBLE))
    assert fits(wanted, offered, conditions(offered, flags=1))
    assert not fits(wanted, offered, conditions(offered, flags=0))


def test_a_region_is_met_by_either_part_of_the_machines() -> None:
    offered = resting_ask(advert(hardware=profile(region="FR/EU")))
    given = conditions(offered)
    assert fits(resting_bid(order("bob", wanting=Terms(regions=("EU",)))), offered, given)
    assert not fits(resting_bid(order("bob", wanting=Terms(regions=("US",)))), offered, given)


def test_an_unknown_machines_bond_is_no_bond() -> None:
    offered = resting_ask(advert())
    given = replace(conditions(offered), bonds={})
    assert [each.field for each in obstacles(resting_bid(PLAIN), offered, given)] == ["ask.bond"]


def test_a_bid_for_one_provider_takes_only_his_machines() -> None:
    offered = resting_ask(advert("ada"))
    wanted = resting_bid(order("bob", provider=key("ada").address))
    assert fits(wanted, offered, conditions(offered))
    stranger = resting_bid(order("bob", provider=Address(b"\x07" * 20)))
    assert not fits(stranger, offered, conditions(offered))
