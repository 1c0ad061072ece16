"""Where the node of a promised machine is: heard once, shown until nothing is promised of it."""

from __future__ import annotations

from cloud_gpu.protocol.chain_events import AsksCancelled, ChainReorganised, DelegationChanged
from cloud_gpu.protocol.effects import ListAsk, MarketEffect, ReportNode
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.future_events import (
    FutureEnd,
    FutureEnded,
    FutureOpened,
    MachinesNominated,
)
from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.identity import Delegation, KeyRole
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import ZERO_DIGEST
from tests.unit.market.builders import NOW_S, advert, key, machine
from tests.unit.market.futures_builders import DAY_S, FUTURES_DOMAIN, FuturesDesk, future
from tests.unit.market.group_builders import GroupDesk, campaign, group_ask

NAMED = MachinesNominated(contract=1, indexes=(0,), at=0)
NOTHING = TokenAmount(0)


def said(index: int = 0, later_s: int = 0, **changes: object) -> SignedAdvert:
    """A node's word that it serves the futures of a machine."""
    fields: dict[str, object] = {
        "matcher": FUTURES_DOMAIN.verifying_contract,
        "start_by": NOW_S + 300 + later_s,
    }
    return advert("ada", index, **(fields | changes))  # type: ignore[arg-type]


def shown(effects: list[MarketEffect]) -> list[ReportNode]:
    return [each for each in effects if isinstance(each, ReportNode)]


LONG = 8 * DAY_S
"""Of a lease: it runs into the window."""


def traded() -> FuturesDesk:
    desk = FuturesDesk()
    desk.trade(future("bob", buys=True), future("ada", buys=False))
    return desk


def test_a_node_is_shown_once_its_machine_is_promised_and_sells_nothing() -> None:
    desk = traded()
    early = desk.market.examine(said(), desk.now)
    assert early is not None
    assert early.reason is RejectReason.UNKNOWN_MACHINE
    desk.mine(NAMED)
    effects = desk.hear(said())
    assert shown(effects) == [ReportNode(machine=machine("ada"), advert=said())]
    assert not [each for each in effects if isinstance(each, ListAsk)]
    assert ReportNode(machine=machine("ada"), advert=said()) in desk.market.restated()
    assert desk.market.adverts() == []


def test_only_another_place_is_news() -> None:
    desk = traded()
    desk.mine(NAMED)
    desk.hear(said())
    again = desk.market.examine(said(later_s=60), desk.now)
    assert again is not None
    assert again.reason is RejectReason.DUPLICATE
    moved = said(later_s=60, addresses=("/ip4/127.0.0.1/tcp/9/p2p/peer-ada",))
    assert shown(desk.hear(moved)) == [ReportNode(machine=machine("ada"), advert=moved)]
    assert shown(desk.hear(said())) == []


def test_the_ask_of_a_later_lease_is_newer_however_soon_it_ends() -> None:
    desk = traded()
    desk.mine(NAMED)
    desk.hear(said(later_s=600))
    desk.mine(AsksCancelled(machine=machine("ada"), seq=2))
    moved = said(seq=2, addresses=("/ip4/127.0.0.1/tcp/9/p2p/peer-ada",))
    assert shown(desk.hear(moved)) == [ReportNode(machine=machine("ada"), advert=moved)]


def test_it_is_forgotten_with_the_last_contract() -> None:
    desk = traded()
    desk.mine(NAMED)
    desk.hear(said())
    end = FutureEnded(
        contract=1, end=FutureEnd.LONG_DEFAULT, to_long=NOTHING, to_short=NOTHING, at=0
    )
    assert shown(desk.mine(end)) == [ReportNode(machine=machine("ada"), advert=None)]


def test_a_revoked_key_says_no_more_where_a_node_is_and_stands_in_nobodys_way() -> None:
    desk = traded()
    desk.mine(NAMED)
    stolen = said(later_s=600, addresses=("/ip4/10.6.6.6/tcp/1/p2p/peer-ada",))
    desk.hear(stolen)
    node, wallet = key("ada-node").address, key("ada").address
    revoked = Delegation(account=wallet, role=KeyRole.NODE, expiry=0)
    effects = desk.mine(DelegationChanged(signer=node, delegation=revoked))
    assert shown(effects) == [ReportNode(machine=machine("ada"), advert=None)]
    anew = said(node="ada", bound="ada")
    assert shown(desk.hear(anew)) == [ReportNode(machine=machine("ada"), advert=anew)]


def test_it_is_forgotten_with_a_nomination_that_a_longer_chain_undoes() -> None:
    desk = traded()
    block = desk.block
    desk.mine(NAMED)
    desk.hear(said())
    undone = shown(desk.tell(ChainReorganised(block=block)))
    assert undone == [ReportNode(machine=machine("ada"), advert=None)]


def test_what_was_asked_before_the_nomination_cannot_run_into_the_window() -> None:
    desk = traded()
    desk.hear(advert("ada", 0, max_duration=LONG), advert("ada", 1, max_duration=LONG))
    assert len(desk.market.adverts()) == 2
    desk.mine(NAMED)
    assert desk.market.adverts() == [advert("ada", 1, max_duration=LONG)]
    again = desk.market.examine(advert("ada", 0, max_duration=LONG, announced=2), desk.now)
    assert again is not None
    assert again.reason is RejectReason.DURATION_OUTSIDE_LIMITS
    shorter = advert("ada", 0, announced=2)
    desk.hear(shorter)
    assert shorter in desk.market.adverts()


def test_a_group_buy_is_not_served_by_a_machine_whose_window_it_would_run_into() -> None:
    desk, offer = GroupDesk(), campaign(goal=1)
    desk.hear(group_ask("ada", 0), group_ask("ada", 1))
    desk.open(offer)
    desk.mine()
    assert desk.campaign(offer).report.machines == 2
    soon = Series(product=1, window_start=(NOW_S // 3_600 + 1) * 3_600, window_seconds=3_600)
    contract = FutureOpened(
        contract=1,
        long=key("bob").address,
        short=key("ada").address,
        series=soon,
        per_hour=NOTHING,
        units=1,
        long_margin=NOTHING,
        short_margin=NOTHING,
        buy=ZERO_DIGEST,
        sell=ZERO_DIGEST,
        at=0,
    )
    desk.mine(contract, NAMED)
    assert desk.campaign(offer).report.machines == 1
