"""Listings by pages: every row once, whatever comes in between; a wrong cursor is refused."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import httpx
import msgspec
import pytest

from cloud_gpu.adapters.market_http import HttpMarket
from cloud_gpu.protocol.effects import (
    ListAsk,
    ListProduct,
    MarketEffect,
    ReportIndex,
    ReportLease,
    UnlistAsk,
)
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.lease import LeaseReport, LeaseState
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.price_reports import IndexPoint
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, TokenAmount
from market.books.ledger import Ledger
from tests.support.market_api import Api
from tests.unit.market.builders import (
    NOW_S,
    RULES,
    advert,
    key,
    machine,
    opened,
    order,
    price,
    product,
)


def listed(*adverts: SignedAdvert) -> list[MarketEffect]:
    return [ListAsk(ask=each.body.ask.payload.id, advert=each) for each in adverts]


async def pages(api: Api, path: str, **query: str | int) -> list[list[Any]]:
    """Every page, by the links alone."""
    found = []
    url = httpx.URL(path).copy_merge_params(query)
    while True:
        answer = await api.client.get(url)
        assert answer.status_code == 200, answer.text
        found.append(answer.json())
        if "next" not in answer.links:
            return found
        url = url.join(answer.links["next"]["url"])


async def test_asks_come_in_pages_and_rows_that_come_and_go_move_none(api: Api) -> None:
    prices = ("0.50", "0.60", "0.60", "0.70", "0.80")
    adverts = [advert("ada", index, at=at) for index, at in enumerate(prices)]
    api.view.write(listed(*adverts))
    first = await api.client.get("/v1/asks", params={"limit": 2, "gpu": "a100"})
    assert len(first.json()) == 2
    # A cheaper one comes, one that was shown goes.
    shown = [each["body"]["ask"]["payload"]["index"] for each in first.json()]
    cheaper = advert("eve", 9, at="0.10")
    api.view.write([*listed(cheaper), UnlistAsk(ask=adverts[0].body.ask.payload.id)])
    rest = await pages(api, "/v1/asks" + first.links["next"]["url"])
    assert [len(each) for each in rest] == [2, 1]
    shown += [each["body"]["ask"]["payload"]["index"] for page in rest for each in page]
    assert sorted(shown) == [0, 1, 2, 3, 4]


async def test_leases_of_one_second_come_once_each(api: Api) -> None:
    bid = order("bob").bid.payload
    events = [
        opened(bid, machine("ada"), price(1), seq=n, at_s=NOW_S + n // 3) for n in range(1, 8)
    ]
    api.view.write(
        [
            ReportLease(
                report=LeaseReport(
                    terms=each.terms, bid=each.bid, state=LeaseState.FUNDED, paid=TokenAmount(0)
                )
            )
            for each in events
        ]
    )
    whole = (await api.client.get("/v1/leases")).json()
    for limit in (1, 2, 3, 7):
        found = await pages(api, "/v1/leases", limit=limit, buyer=str(key("bob").address))
        assert [each for page in found for each in page] == whole
        assert [len(each) for each in found[:-1]] == [limit] * (len(found) - 1)


async def test_products_and_index_points_come_in_pages(api: Api) -> None:
    api.view.write([ListProduct(product=each) for each in products(range(2, 6))])
    found = await pages(api, "/v1/products", limit=2)
    assert [[each["id"] for each in page] for page in found] == [[1, 2], [3, 4], [5]]
    classes = ["A100-SXM4-80GB", "H100-SXM5-80GB", "RTX-4090"]
    api.view.write([ReportIndex(report=point(each)) for each in classes])
    found = await pages(api, "/v1/index", limit=1)
    assert [each["gpu_class"] for (each,) in found] == classes


async def test_the_sdk_follows_the_links(api: Api) -> None:
    api.view.write([ListProduct(product=each) for each in products(range(2, 1_200))])
    transport = api.client._transport
    async with HttpMarket("http://market", transport=transport) as market:
        assert [each.id for each in await market.products()] == list(range(1, 1_200))


CURSORS = {
    "nonsense": "%%%",
    "another listing's": urlsafe_b64encode(b'["/v1/leases", 1, "0x"]').decode(),
    "no list": urlsafe_b64encode(b"{}").decode(),
    "too few": urlsafe_b64encode(b'["/v1/asks", 1]').decode(),
    "wrong kinds": urlsafe_b64encode(b'["/v1/asks", "1", 2]').decode(),
    "a truth": urlsafe_b64encode(b'["/v1/asks", true, "0x"]').decode(),
    "too large": urlsafe_b64encode(b'["/v1/asks", %d, "0x"]' % 2**63).decode(),
    "a zero byte": urlsafe_b64encode(rb'["/v1/asks", 1, "\u0000"]').decode(),
    "deep": urlsafe_b64encode(b"[" * 300).decode(),
    "not ASCII": "é",
}


@pytest.mark.parametrize("cursor", CURSORS.values(), ids=CURSORS)
async def test_a_cursor_of_nobodys_is_refused(api: Api, cursor: str) -> None:
    told = await api.problem(await api.client.get("/v1/asks", params={"cursor": cursor}))
    assert (told.status, told.reason, told.field) == (400, RejectReason.MALFORMED, "cursor")
    assert "Link" in told.next


def products(numbers: range) -> list[Product]:
    ledger = Ledger(RULES.bond_unit)
    ledger.apply(product())
    return [msgspec.structs.replace(ledger.products[1], id=number) for number in numbers]


def point(gpu_class: str) -> IndexPoint:
    return IndexPoint(
        gpu_class=GpuClass(gpu_class),
        at=NOW_S,
        per_hour=TokenAmount(1),
        is_stale=False,
        mean=None,
        quantity=GpuSeconds(0),
        pairs=0,
        concentration=BasisPoints(0),
    )
