"""The sender against a node that answers by a script: what no real Anvil can be brought to say."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_gpu.protocol.adapters.evm_outbox import Outbox
from cloud_gpu.protocol.adapters.evm_rpc import Request, Rpc, RpcError
from cloud_gpu.protocol.adapters.evm_sender import GAS_MAX, Sender
from cloud_gpu.protocol.calls import CancelOne
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import ChainUnavailable
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address

KEY = LocalKey(b"\x07" * 32)
DEPLOYMENT = Deployment(
    chain_id=1,
    lease_book=Address(b"\xcc" * 20),
    token=Address(b"\xdd" * 20),
    first_block=1,
    windows=Windows(start=10, claim=20, retire=60),
    bond_unit=TokenAmount(1_000_000),
)
BLOCK = {"number": "0x64", "timestamp": "0x3e8", "baseFeePerGas": "0x3b9aca00"}


def refusal(message: str, data: bytes | None = None) -> RpcError:
    return RpcError("eth_anything", -32000, message, data)


class ScriptedRpc(Rpc):
    """Answers by method; a list is used up from the front, its last entry stays."""

    def __init__(self, **answers: Any) -> None:
        super().__init__("http://127.0.0.1:1")
        self.answers: dict[str, Any] = {
            "eth_estimateGas": "0xc350",
            "eth_getTransactionCount": "0x5",
            "eth_getBlockByNumber": BLOCK,
            "eth_maxPriorityFeePerGas": "0x1",
            "eth_getTransactionReceipt": None,
            "eth_getTransactionByHash": None,
            "eth_getBalance": "0x2a",
            "eth_sendRawTransaction": "0x",
        } | answers
        self.sent: list[str] = []

    def call(self, method: str, *params: Any) -> Any:
        if method == "eth_sendRawTransaction":
            self.sent.append(params[0])
        answer = self.answers[method]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def batch(self, requests: Any) -> list[Any]:
        found: list[Any] = []
        each: Request
        for each in requests:
            try:
                found.append(self.call(each[0], *each[1]))
            except RpcError as error:
                found.append(error)
        return found


class Clock:
    def __init__(self) -> None:
        self.at = 1_000_000

    def now(self) -> int:
        return self.at


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    opened = Outbox(tmp_path / "outbox")
    yield opened
    opened.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


Start = Callable[..., Sender]


@pytest.fixture
def start(outbox: Outbox, clock: Clock) -> Start:
    """A sender with these calls queued."""

    def made(rpc: Rpc, *nonces: int) -> Sender:
        for nonce in nonces:
            outbox.add(CancelOne(nonce=nonce), clock.now())
        return Sender(rpc, DEPLOYMENT, KEY, outbox, clock)

    return made


def receipt(block: int, status: int = 1, gas: int = 40_000) -> dict[str, str]:
    return {"blockNumber": hex(block), "status": hex(status), "gasUsed": hex(gas)}


def errors(outbox: Outbox) -> list[str]:
    return [failed.error for failed in outbox.untold()]


def test_a_node_that_will_not_say_why_is_asked_for_a_minute_and_holds_nobody_up(
    start: Start, outbox: Outbox, clock: Clock
) -> None:
    rpc = ScriptedRpc(eth_estimateGas=[refusal("internal error"), "0xc350"])
    sender = start(rpc, 1, 2)
    sender.turn()
    assert [call.call for call in outbox.sent()] == [CancelOne(nonce=2)]
    rpc.answers["eth_estimateGas"] = refusal("internal error")
    for _ in range(59):
        clock.at += 1_000
        assert sender.turn()
    assert errors(outbox) == []
    clock.at += 2_000
    sender.turn()
    assert errors(outbox) == ["NotSent(text=eth_anything: internal error (code -32000))"]


def test_a_refused_transaction_gives_its_nonce_back(
    start: Start, outbox: Outbox, clock: Clock
) -> None:
    rpc = ScriptedRpc(eth_sendRawTransaction=[refusal("intrinsic gas too low"), "0x"])
    sender = start(rpc, 1, 2)
    sender.turn()
    (second,) = outbox.sent()
    assert (second.call, second.nonce) == (CancelOne(nonce=2), 5)
    clock.at += 1_001
    sender.turn()
    assert [(c.call, c.nonce) for c in outbox.sent()] == [
        (CancelOne(nonce=2), 5),
        (CancelOne(nonce=1), 6),
    ]


@pytest.mark.parametrize("said", ["already known", "Transaction already imported", "AlreadyKnown"])
def test_a_transaction_that_the_node_has_is_sent(start: Start, outbox: Outbox, said: str) -> None:
    sender = start(ScriptedRpc(eth_sendRawTransaction=refusal(said)), 1)
    assert sender.turn()
    assert len(outbox.sent()) == 1


@pytest.mark.parametrize("at", ["eth_estimateGas", "eth_sendRawTransaction"])
def test_poverty_is_told_at_once_with_what_is_there(start: Start, outbox: Outbox, at: str) -> None:
    sender = start(ScriptedRpc(**{at: refusal("insufficient funds for gas * price + value")}), 1)
    sender.turn()
    (error,) = errors(outbox)
    assert error.startswith(f"InsufficientFunds(key={KEY.address}, wei=42): it cannot pay for gas")
    assert not outbox.sent()


def test_poverty_later_ends_nothing_that_may_be_in_a_pool(
    start: Start, outbox: Outbox, clock: Clock
) -> None:
    rpc = ScriptedRpc()
    sender = start(rpc, 1)
    sender.turn()
    rpc.answers["eth_sendRawTransaction"] = refusal("insufficient funds")
    for _ in range(3):
        clock.at += 31_000
        assert sender.turn()
    assert len(rpc.sent) >= 3
    assert errors(outbox) == []


def test_a_spent_nonce_is_replaced_and_one_of_ours_is_waited_for(
    start: Start, outbox: Outbox
) -> None:
    rpc = ScriptedRpc(eth_sendRawTransaction=[refusal("nonce too low: next nonce 6"), "0x"])
    sender = start(rpc, 1)
    sender.turn()
    assert not outbox.sent()
    rpc.answers["eth_getTransactionCount"] = "0x6"
    sender.turn()
    assert [call.nonce for call in outbox.sent()] == [6]
    rpc.answers |= {
        "eth_sendRawTransaction": refusal("nonce too low"),
        "eth_getTransactionByHash": {"hash": "0x"},
    }
    sender.chain_was_reorganised_after(90)
    sender.turn()
    assert [call.nonce for call in outbox.sent()] == [6], "ours is what spent it"


def test_fees_are_raised_with_new_blocks_and_never_beyond_ten_times_the_price(
    start: Start, outbox: Outbox, clock: Clock
) -> None:
    rpc = ScriptedRpc()
    sender = start(rpc, 1)
    sender.turn()

    def later(block: int) -> int:
        clock.at += 31_000
        rpc.answers["eth_getBlockByNumber"] = BLOCK | {"number": hex(block)}
        sender.turn()
        (call,) = outbox.sent()
        return call.attempts[-1].fees.most

    first = later(101)
    assert later(101) == first, "no block came: nobody was preferred"
    offers = [later(block) for block in range(102, 140)]
    assert offers[0] >= first * 11 // 10
    assert offers[-1] == offers[-2] <= 10 * (2 * 10**9 + 1)
    assert {call.nonce for call in outbox.sent()} == {5}


def test_a_call_is_over_when_the_party_was_told_of_its_block(start: Start, outbox: Outbox) -> None:
    rpc = ScriptedRpc()
    sender = start(rpc, 1)
    sender.chain_was_told_upto(99)
    sender.turn()
    rpc.answers["eth_getTransactionReceipt"] = receipt(100)
    assert sender.turn()
    assert not outbox.add(CancelOne(nonce=1), 0), "a repeat before that would fail"
    sender.chain_was_told_upto(100)
    assert not sender.turn()
    assert outbox.gas_used() == 40_000
    assert outbox.add(CancelOne(nonce=1), 0)


def test_a_receipt_of_a_branch_that_was_left_settles_nothing(start: Start, outbox: Outbox) -> None:
    sender: Sender

    class Racing(ScriptedRpc):
        """The follower is told of another branch between a receipt and its note."""

        def batch(self, requests: Any) -> list[Any]:
            found = super().batch(requests)
            if found == [receipt(100)]:
                sender.chain_was_reorganised_after(99)
                sender.chain_was_told_upto(100)
            return found

    rpc = Racing()
    sender = start(rpc, 1)
    sender.chain_was_told_upto(100)
    sender.turn()
    rpc.answers["eth_getTransactionReceipt"] = receipt(100)
    sender.turn()
    assert len(outbox.sent()) == 1
    rpc.answers["eth_getTransactionReceipt"] = None
    before = len(rpc.sent)
    sender.turn()
    assert len(rpc.sent) == before + 1, "it is sent again at once"


def test_running_out_of_gas_is_named(start: Start, outbox: Outbox) -> None:
    rpc = ScriptedRpc()
    sender = start(rpc, 1)
    sender.turn()
    limit = outbox.sent()[0].attempts[0].gas
    assert 0xC350 < limit <= GAS_MAX
    rpc.answers["eth_getTransactionReceipt"] = receipt(100, status=0, gas=limit)
    sender.turn()
    assert errors(outbox) == [f"OutOfGas(limit={limit})"]


def test_an_outage_loses_nothing(start: Start, outbox: Outbox) -> None:
    rpc = ScriptedRpc(eth_sendRawTransaction=[ChainUnavailable("gone"), "0x"])
    sender = start(rpc, 1)
    with pytest.raises(ChainUnavailable):
        sender.turn()
    sender.turn()
    assert len(rpc.sent) == 2
    assert rpc.sent[0] == rpc.sent[1], "the same bytes, so it is mined once"


def test_a_chain_without_base_fees_is_named(start: Start) -> None:
    sender = start(ScriptedRpc(eth_getBlockByNumber={"number": "0x1", "timestamp": "0x1"}), 1)
    with pytest.raises(ChainUnavailable, match="EIP-1559 is needed"):
        sender.turn()
