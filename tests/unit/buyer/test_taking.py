"""A lease that opened without a session is taken up: its node found, checked, and paid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import trio

from cloud_gpu.buyer import Buyer, Phase
from cloud_gpu.protocol.errors import Rejected, RejectReason
from cloud_gpu.protocol.events import CloseWanted
from cloud_gpu.protocol.lease import LeaseKey, LeaseReport, LeaseState, LeaseTerms, MachineStatus
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.ports import AccountView, MachineView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from cloud_gpu.protocol.values import Address, Digest
from cloud_gpu.taking import Given, lease_given, lease_opened
from cloud_gpu.testing import World
from cloud_gpu.testing.world import BUYER
from tests.unit.buyer.builders import MARKET, OWN, RHYTHM, T0, advert, purse, request
from tests.unit.buyer.worlds import cash, conserved, in_world, said, shown

ADVERT = advert()
ASK = ADVERT.body.ask.payload
LEASE = LeaseKey(provider=ASK.provider, index=ASK.index, seq=ASK.seq)
PRODUCT = Product(
    id=ASK.product,
    gpu_class=ADVERT.body.profile.gpu_class,
    slice_gpus=2,
    region_group="",
    min_bond=BasisPoints(1_000),
    notice=0,
    penalty=BasisPoints(1_000),
    flags=0,
)
VIEW = MachineView(
    status=MachineStatus.FUNDED,
    product=ASK.product,
    bond=TokenAmount(0),
    locked=TokenAmount(0),
    seq=LEASE.seq,
    next_seq=LEASE.seq + 1,
    cap=TokenAmount(1_000_001),
    paid=TokenAmount(0),
    buyer_id=7,
    start=T0 + 60,
    duration=3_600,
    market_id=1,
)
ACCOUNT = AccountView(id=7, cash=TokenAmount(0), nonce_base=0, nonce_bits=0)


def given(view: MachineView = VIEW, **changes: Any) -> Any:
    words: dict[str, Any] = {
        "adverts": [ADVERT],
        "buyer": BUYER.address,
        "account": ACCOUNT,
        "market": MARKET,
        "start_window_s": 60,
    }
    words |= changes
    return lease_given(LEASE, view, PRODUCT, words.pop("adverts"), **words)


def test_what_the_chain_says_becomes_what_the_node_is_held_to() -> None:
    found = given()
    bid = found.order.bid.payload
    assert (bid.count, bid.duration, bid.provider) == (2, 3_600, ASK.provider)
    assert bid.max_price_per_hour.value == 501_000, "a tick above 0.5000005, not below"
    assert found.terms.opened_at == T0
    assert found.terms.start_deadline == T0 + 60
    assert found.order.terms.gpu_classes == (PRODUCT.gpu_class,)


@pytest.mark.parametrize(
    ("changes", "reason", "found"),
    [
        ({"status": MachineStatus.ACTIVE}, RejectReason.WRONG_STATE, "active"),
        ({"status": MachineStatus.FREE}, RejectReason.WRONG_STATE, "free"),
        ({"seq": 9}, RejectReason.WRONG_STATE, "lease number 9 there"),
        ({"buyer_id": 8}, RejectReason.NOT_THE_BUYER, "account no. 8's"),
    ],
)
def test_a_lease_that_is_not_ours_to_start_is_refused(
    changes: dict[str, Any], reason: RejectReason, found: str
) -> None:
    with pytest.raises(Rejected) as caught:
        given(msgspec.structs.replace(VIEW, **changes))
    assert caught.value.rejection.reason is reason
    assert found in caught.value.rejection.found


def test_the_machines_own_advert_is_the_best() -> None:
    other = advert(index=ASK.index + 1)
    assert given(adverts=[other, ADVERT]).advert == ADVERT
    assert given(adverts=[other]).advert == other


def test_a_node_is_found_by_an_advert_of_the_same_provider_and_product_alone() -> None:
    for adverts in ([], [advert(product=ASK.product + 1)]):
        with pytest.raises(Rejected, match="to find its node"):
            given(adverts=adverts)


async def test_the_nth_lease_of_a_campaign_is_waited_for() -> None:
    looks = 0

    def report(index: int, opened_by: Digest) -> LeaseReport:
        terms = LeaseTerms(
            key=LeaseKey(provider=Address(b"\x01" * 20), index=index, seq=1),
            buyer=BUYER.address,
            cap=TokenAmount(1),
            duration=1,
            start_deadline=1,
            market_id=1,
            opened_at=1,
        )
        state, paid = LeaseState.FUNDED, TokenAmount(0)
        return LeaseReport(terms=terms, bid=opened_by, state=state, paid=paid)

    contract = Given.of_contract(3, 1)

    async def leases() -> list[LeaseReport]:
        other = report(0, Digest(bytes(32)))
        opened = [report(index, contract.opened_by) for index in (7, 2)]
        return [other, *opened[:looks]]

    async def next_look() -> None:
        nonlocal looks
        looks += 1

    found = await lease_opened(contract, leases, next_look)
    assert (found.index, looks) == (7, 2)


def test_a_buyer_takes_up_one_lease_and_ends_it_when_asked() -> None:
    buyer = Buyer(purse=purse(), peer=OWN, rhythm=RHYTHM)
    first = buyer.handle(given(), T0 * 1000)
    assert buyer.phase is Phase.HOLDING
    assert first
    assert buyer.handle(given(), T0 * 1000) == []
    buyer.handle(CloseWanted(), T0 * 1000)
    assert buyer.phase is Phase.HOLDING, "a funded lease is looked after to its end"


@in_world()
async def test_a_lease_whose_bid_was_placed_elsewhere_is_run_and_settled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cash(world)
    listed = await world.market.asks()

    async def asks(gpu: str = "") -> Sequence[SignedAdvert]:
        return listed  # as if the provider had another machine like it

    monkeypatch.setattr(world.market, "asks", asks)
    await world.client().place(request(), said.append)
    await trio.sleep(3)
    book = world.chain.chain.book
    ((key, row),) = [(k, m) for k, m in book.machines.items() if m.status is MachineStatus.FUNDED]
    lease = LeaseKey(provider=key.provider, index=key.index, seq=row.seq)
    shown.clear()
    taken = await world.client().take_up(
        lease, echo=lambda *what: shown.append(what), progress=said.append
    )
    assert (await taken.run("echo hi")).stdout == "hi\n"
    bill = await taken.close()
    assert bill.settled
    assert cash(world) == before - bill.paid.value
    assert conserved(world)
