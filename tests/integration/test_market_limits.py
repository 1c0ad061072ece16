"""Rate limits of the API: 429 says which limit, and when to come again."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import RejectReason
from market.api.schemas import Placed
from market.rate_limits import RateLimit
from tests.support.market_api import Api
from tests.unit.market.builders import order

ACCOUNT = RateLimit(name="account_orders_per_s", per_s=2, burst=3)
ADDRESS = RateLimit(name="address_requests_per_s", per_s=1, burst=4)


@pytest.fixture
def limits(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = getattr(request, "param", {"account": ACCOUNT})
    return found


async def test_an_account_hands_in_so_many_orders_and_others_as_many_beside_it(api: Api) -> None:
    for nonce in range(3):
        assert (await api.place(order("bob", nonce=nonce))).status_code == 201
    answer = await api.place(order("bob", nonce=3))
    told = await api.problem(answer)
    assert (told.status, told.reason) == (429, RejectReason.RATE_LIMITED)
    assert told.field == "account_orders_per_s"
    assert answer.headers["retry-after"] == "1"
    assert len(api.inbox.after(0, 10)) == 3, "nothing of it was kept"
    assert (await api.place(order("eve"))).status_code == 201
    forged = await api.place(order("eve", nonce=1, signer="mallory"))
    assert forged.status_code == 403, "and does not count against eve"
    assert (await api.place(order("eve", nonce=1))).status_code == 201
    assert (await api.place(order("eve", nonce=2))).status_code == 201
    api.clock.at += 500
    assert (await api.place(order("bob", nonce=3))).status_code == 201


async def test_each_order_of_many_counts(api: Api) -> None:
    parts = [to_json(order("bob", nonce=nonce)) for nonce in range(5)]
    answer = await api.client.post("/v1/bids:bulk", content=b"[" + b",".join(parts) + b"]")
    found = from_json(answer.content, list[Placed])
    assert [each.status for each in found] == [201, 201, 201, 429, 429]
    assert len(api.inbox.after(0, 10)) == 3


@pytest.mark.parametrize(
    "limits", [{"address": ADDRESS, "is_loopback_limited": True}], indirect=True
)
async def test_an_address_asks_so_often_and_whoever_runs_the_market_as_he_likes(api: Api) -> None:
    for _ in range(4):
        assert (await api.client.get("/v1/market")).status_code == 200
    answer = await api.client.get("/v1/market")
    told = await api.problem(answer)
    assert (told.status, told.field) == (429, "address_requests_per_s")
    assert answer.headers["retry-after"] == "1"
    assert (await api.client.get("/healthz")).status_code == 200
    assert "cloud_gpu_market_requests_total" in (await api.client.get("/metrics")).text
    api.clock.at += 2_000
    many = b"[" + b",".join([b"1"] * 3) + b"]"
    assert (await api.client.post("/v1/bids:bulk", content=many)).status_code == 429
    api.clock.at += 4_000
    assert (await api.client.post("/v1/bids:bulk", content=many)).status_code == 200


@pytest.mark.parametrize("limits", [{"address": ADDRESS}], indirect=True)
async def test_this_machine_asks_without_limit_unless_told(api: Api) -> None:
    for _ in range(20):
        assert (await api.client.get("/v1/market")).status_code == 200


@pytest.mark.parametrize(
    "limits", [{"address": ADDRESS, "trusted": (ip_network("127.0.0.1"),)}], indirect=True
)
async def test_behind_a_trusted_proxy_each_client_has_its_own(api: Api) -> None:
    async def asked(client: str) -> int:
        headers = {"X-Forwarded-For": client}
        return (await api.client.get("/v1/market", headers=headers)).status_code

    assert [await asked("192.0.2.1") for _ in range(5)] == [200] * 4 + [429]
    assert await asked("192.0.2.2") == 200
