"""One deployment and its leases on two EVMs: what one gives, the other gives, to the last unit."""

from collections.abc import Iterator

import pytest

from cloud_gpu.protocol.adapters.deployment_check import check_code
from cloud_gpu.protocol.adapters.evm_calls import calldata
from cloud_gpu.protocol.adapters.evm_direct import DirectSender
from cloud_gpu.protocol.adapters.evm_rpc import octets, whole
from cloud_gpu.protocol.calls import ChainCall, ExpireLease, StopLease
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.values import Address, keccak256
from tests.support.anvil import ETHER, Anvil, Deployed, deployed_on, key, running_anvil
from tests.support.second_evm import Receipt, SecondEvm
from tests.support.trading import Trading, trading_on

PARTIES = ("deployer", "provider", "buyer", "matcher", "node", "session")
CHAIN_ID = 31_337


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployed]:
    with running_anvil("--hardfork", "prague", "--chain-id", str(CHAIN_ID)) as anvil:
        yield deployed_on(anvil)


def send(deployed: Deployed, sender: LocalKey, call: ChainCall) -> None:
    DirectSender(deployed.anvil.rpc, sender).send(deployed.deployment.lease_book, calldata(call))


def traded(deployed: Deployed) -> Trading:
    """One lease to its agreed end, one stopped and expired, one that settles by a voucher."""
    t = trading_on(deployed, machines=2)
    send(deployed, t.matcher, t.opening((t.ask(), t.bid()), (t.ask(index=1), t.bid(nonce=1))))
    for index in (0, 1):
        lease = t.lease(index=index)
        send(deployed, t.node, t.beginning(lease, deployed.anvil.time()))
    deployed.anvil.pass_time(300)
    send(deployed, t.node, t.settling(t.voucher(t.lease(), 100_000)))
    send(deployed, t.buyer, StopLease(lease=t.lease(index=1)))
    deployed.anvil.pass_time(400)
    send(deployed, t.matcher, t.closing(t.lease(), 450_000, early=False))
    deployed.anvil.pass_time(deployed.deployment.windows.claim)
    send(deployed, t.session, ExpireLease(lease=t.lease(index=1)))
    with deployed.wallet(t.buyer) as wallet:
        wallet.withdraw(wallet.account().cash)
    return t


def receipts(anvil: Anvil, number: int) -> list[Receipt]:
    found = anvil.rpc.call("eth_getBlockReceipts", hex(number))
    return [
        Receipt(
            succeeded=whole(each["status"]) == 1,
            gas_used=whole(each["gasUsed"]),
            logs=tuple(
                (
                    octets(log["address"]),
                    tuple(octets(topic) for topic in log["topics"]),
                    octets(log["data"]),
                )
                for log in each["logs"]
            ),
        )
        for each in found
    ]


def test_another_evm_gives_the_same_receipts_balances_and_code(deployed: Deployed) -> None:
    traded(deployed)
    anvil, second = deployed.anvil, SecondEvm(CHAIN_ID, _first_wei())
    last, logs = anvil.block(), 0
    for number in range(1, last + 1):
        block = anvil.rpc.call("eth_getBlockByNumber", hex(number), False)
        raw = [
            octets(anvil.rpc.call("eth_getRawTransactionByHash", name))
            for name in block["transactions"]
        ]
        ours = receipts(anvil, number)
        assert second.block(block, raw) == ours, f"block {number}"
        logs += sum(len(receipt.logs) for receipt in ours)
    assert logs > 20, "leases from their opening to their end log more"
    block = anvil.rpc.call("eth_getBlockByNumber", hex(last), False)
    for name in PARTIES:
        owner = key(name).address
        assert second.wei(owner, block) == whole(
            anvil.rpc.call("eth_getBalance", str(owner), "latest")
        )
    check_code(anvil.rpc, "LeaseBook", deployed.deployment.lease_book)
    for contract in (deployed.deployment.lease_book, deployed.deployment.token):
        code = octets(anvil.rpc.call("eth_getCode", str(contract), "latest"))
        assert second.code(contract, block) == code
    token = deployed.deployment.token
    balances = _balances(anvil, token, deployed.deployment.lease_book)
    for slot, word in balances.items():
        assert second.word(token, slot, block) == word


def _balances(anvil: Anvil, token: Address, book: Address) -> dict[int, int]:
    """The book's balance where OpenZeppelin's ERC20 keeps it, and the total supply."""
    slot = int.from_bytes(keccak256(book.raw.rjust(32, b"\0") + bytes(32)).raw, "big")
    found = {
        each: whole(anvil.rpc.call("eth_getStorageAt", str(token), hex(each), "latest"))
        for each in (slot, 2)
    }
    assert all(found.values()), "the book holds tokens"
    return found


def _first_wei() -> dict[Address, int]:
    return {key(name).address: 100 * ETHER for name in PARTIES}
