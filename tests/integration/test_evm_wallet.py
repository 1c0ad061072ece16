"""A wallet's own calls, the deployer, and the node's answers when something is wrong."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.adapters.deployment_files import read_deployment, write_deployment
from cloud_gpu.protocol.adapters.evm_calls import calldata
from cloud_gpu.protocol.adapters.evm_direct import DirectSender
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, RpcError
from cloud_gpu.protocol.adapters.wallet import Wallet, prove_delegate
from cloud_gpu.protocol.errors import (
    ChainUnavailable,
    FundsTooSmall,
    SettingsInvalid,
    TransactionReverted,
)
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import MachineKey, MachineStatus
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from tests.support.anvil import WINDOWS, Anvil, Deployed, key
from tests.support.trading import trading_on

TOKEN = 1_000_000


@pytest.fixture
def wallet(deployed: Deployed) -> Iterator[Wallet]:
    """1,000 tokens outside the vault, and no account yet."""
    with deployed.wallet(deployed.key("owner")) as made:
        made.mint(TokenAmount(1_000 * TOKEN))
        yield made


def test_money_goes_in_and_comes_out_again(wallet: Wallet) -> None:
    assert wallet.account().id == 0
    assert wallet.register_account() == 1
    assert wallet.register_account() == 1, "asked twice, it says the same"
    sent = wallet.gas_used
    wallet.deposit(TokenAmount(600 * TOKEN))
    assert (wallet.account().cash.value, wallet.token_balance().value) == (600 * TOKEN, 400 * TOKEN)
    assert wallet.gas_used > sent
    wallet.withdraw(TokenAmount(599 * TOKEN))
    assert (wallet.account().cash.value, wallet.token_balance().value) == (TOKEN, 999 * TOKEN)


def test_a_deposit_by_permit_is_one_transaction(wallet: Wallet, deployed: Deployed) -> None:
    wallet.register_account()
    before = deployed.anvil.block()
    wallet.deposit(TokenAmount(TOKEN))
    assert deployed.anvil.block() == before + 1


def test_a_token_without_permits_is_approved_first(
    wallet: Wallet, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    wallet.register_account()
    monkeypatch.setattr(wallet, "_permit", lambda _amount: None)
    wallet.deposit(TokenAmount(TOKEN))
    assert wallet.account().cash.value == TOKEN


def test_a_deposit_can_be_for_somebody_else(wallet: Wallet, deployed: Deployed) -> None:
    other = deployed.member("other", tokens=0)
    wallet.deposit(TokenAmount(5 * TOKEN), to=other.address)
    assert wallet.account(other.address).cash.value == 5 * TOKEN


def test_lacking_money_is_told_with_both_numbers(wallet: Wallet, deployed: Deployed) -> None:
    wallet.register_account()
    with pytest.raises(FundsTooSmall, match=r"holds 1000.00 tokens, 1001.00 are needed") as caught:
        wallet.deposit(TokenAmount(1_001 * TOKEN))
    assert (caught.value.needed, caught.value.have) == (1_001 * TOKEN, 1_000 * TOKEN)
    with pytest.raises(FundsTooSmall, match=r"the vault holds 0.00 tokens of yours, 1.00 are need"):
        wallet.withdraw(TokenAmount(TOKEN))
    with pytest.raises(FundsTooSmall, match=r"the wallet holds 1000.00 tokens, 2000.00"):
        wallet.transfer(key("other").address, TokenAmount(2_000 * TOKEN))
    with (
        deployed.wallet(key("beggar")) as beggar,
        pytest.raises(FundsTooSmall, match="holds 0 wei, too little to pay for gas"),
    ):
        beggar.register_account()


def test_a_refusal_comes_back_with_its_name_and_numbers(wallet: Wallet) -> None:
    with pytest.raises(TransactionReverted, match="LeaseBook_NotRegistered: account 0x") as caught:
        wallet.register_market(BasisPoints(1))
    assert caught.value.error == "LeaseBook_NotRegistered"
    wallet.register_account()
    with pytest.raises(TransactionReverted, match="FeeTooHigh: feeBps 1001, limit 1000"):
        wallet.register_market(BasisPoints(1_001))


def test_tables_give_their_numbers(wallet: Wallet) -> None:
    wallet.register_account()
    numbers = [
        wallet.register_product(
            gpu_class=GpuClass(name),
            slice_gpus=8,
            min_bond=BasisPoints(500),
            penalty=BasisPoints(500),
            region_group="EU",
            flags=1,
        )
        for name in ("H100-SXM5-80GB", "RTX4090")
    ]
    assert numbers == [1, 2]
    assert [wallet.register_market(BasisPoints(fee)) for fee in (0, 100)] == [1, 2]


def test_a_machine_is_added_paused_retired_and_pays_its_bond_back(
    wallet: Wallet, deployed: Deployed
) -> None:
    machine = MachineKey(provider=wallet.address, index=4)
    wallet.register_account()
    wallet.deposit(TokenAmount(100 * TOKEN))
    product = wallet.register_product(
        gpu_class=GpuClass("RTX4090"),
        slice_gpus=1,
        min_bond=BasisPoints(0),
        penalty=BasisPoints(0),
    )
    wallet.add_machine(4, TokenAmount(10 * TOKEN), product)
    wallet.add_bond(4, TokenAmount(5 * TOKEN))
    view = wallet.machine(machine)
    assert (view.status, view.product, view.bond.value) == (MachineStatus.FREE, 1, 15 * TOKEN)
    assert (view.seq, view.next_seq) == (0, 1)
    wallet.cancel_asks(4, 7)
    assert wallet.machine(machine).next_seq == 7
    wallet.pause(4)
    assert wallet.machine(machine).status is MachineStatus.PAUSED
    wallet.unpause(4)
    wallet.retire(4)
    assert wallet.machine(machine).status is MachineStatus.RETIRING
    with pytest.raises(TransactionReverted, match="LeaseBook_TooEarly: opensAt"):
        wallet.finish_retire(4)
    deployed.anvil.pass_time(WINDOWS.retire + 1)
    wallet.finish_retire(4)
    assert wallet.machine(machine).status is MachineStatus.NONE
    assert wallet.account().cash.value == 100 * TOKEN


def test_a_bond_is_a_multiple_of_the_unit(wallet: Wallet) -> None:
    with pytest.raises(ValueError, match=r"a multiple of 1.00 tokens, found 1.50"):
        wallet.add_machine(0, TokenAmount(1_500_000), 1)


def test_keys_are_delegated_by_proof_and_revoked(wallet: Wallet, deployed: Deployed) -> None:
    wallet.register_account()
    node, expiry = key("node"), deployed.anvil.time() + 3_600
    proof = prove_delegate(
        node,
        deployed.deployment.domain,
        account=key("thief").address,
        role=KeyRole.NODE,
        expiry=expiry,
    )
    with pytest.raises(TransactionReverted, match="LeaseBook_BadSignature"):
        wallet.set_proven_delegate(node.address, KeyRole.NODE, expiry, proof)
    wallet.set_delegate(node, KeyRole.NODE, expiry)
    wallet.revoke_delegate(node.address)
    with pytest.raises(TransactionReverted, match="LeaseBook_DelegateTaken"):
        wallet.set_delegate(node, KeyRole.NODE, expiry + 1)


def test_nonces_are_cancelled_one_by_one_and_below(wallet: Wallet) -> None:
    wallet.register_account()
    wallet.cancel_one(3)
    assert not wallet.account().nonce_is_free(3)
    assert wallet.account().nonce_is_free(4)
    wallet.cancel_below(50)
    assert not wallet.account().nonce_is_free(49)
    assert wallet.account().nonce_is_free(50)
    with pytest.raises(TransactionReverted, match="LeaseBook_NonceUnusable: nonce 3"):
        wallet.cancel_one(3)


def test_two_wallets_of_one_key_do_not_hinder_each_other(
    wallet: Wallet, deployed: Deployed
) -> None:
    wallet.register_account()
    others = [Wallet(deployed.rpc_url, deployed.deployment, key("owner")) for _ in range(4)]

    def cancel(place: int, own: Wallet) -> None:
        for step in range(8):
            own.cancel_one(place * 8 + step)

    threads = [Thread(target=cancel, args=each) for each in enumerate(others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own in others:
        own.close()
    # The window moved on past all 32 used places, or remembers each of them.
    view = wallet.account()
    assert not any(view.nonce_is_free(nonce) for nonce in range(32))


def test_a_transaction_that_no_block_takes_is_named(deployed: Deployed) -> None:
    deployed.anvil.automine(False)
    owner = deployed.key("owner")
    with (
        Wallet(deployed.rpc_url, deployed.deployment, owner, timeout_s=0.3) as wallet,
        pytest.raises(ChainUnavailable, match="not mined in 0 s; it may still be"),
    ):
        wallet.register_account()


def test_native_currency_is_sent(wallet: Wallet) -> None:
    other = key("other").address
    wallet.transfer_native(other, 12_345)
    assert wallet.native_balance(other) == 12_345


# The deployer.


def test_a_broken_deployment_file_is_named(deployed: Deployed, tmp_path: Path) -> None:
    path = tmp_path / "deployment.json"
    with pytest.raises(SettingsInvalid, match="there is no such file"):
        read_deployment(path)
    path.write_text("{}")
    with pytest.raises(SettingsInvalid, match=r"missing required field `\w+`"):
        read_deployment(path)
    write_deployment(path, deployed.deployment)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"colour": "red"}))
    with pytest.raises(SettingsInvalid, match="colour"):
        read_deployment(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsInvalid, match="cannot be written"):
        write_deployment(tmp_path / "file" / "x.json", deployed.deployment)


# The node's answers.


def test_an_address_that_is_none_is_refused() -> None:
    for url in ("", "127.0.0.1:8545", "ftp://host", "http://"):
        with pytest.raises(SettingsInvalid, match="rpc: found"):
            Rpc(url)


def test_secrets_in_the_address_are_not_shown() -> None:
    with Rpc("http://user:hunter2@127.0.0.1:1/v3/apikey") as rpc:
        assert rpc.shown == "http://127.0.0.1:1"
        with pytest.raises(ChainUnavailable) as caught:
            rpc.call("eth_chainId")
    assert "hunter2" not in str(caught.value)
    assert "apikey" not in str(caught.value)


def test_errors_of_single_calls_stand_in_their_place_of_a_batch(anvil: Anvil) -> None:
    good, bad, other = anvil.rpc.batch(
        [("eth_chainId", ()), ("eth_nonsense", ()), ("eth_blockNumber", ())]
    )
    assert good == "0x7a69"
    assert isinstance(bad, RpcError)
    assert "eth_nonsense" in str(bad)
    assert other.startswith("0x")
    with pytest.raises(RpcError):
        anvil.rpc.all([("eth_chainId", ()), ("eth_nonsense", ())])
    many = anvil.rpc.batch([("eth_chainId", ())] * 250)
    assert many == ["0x7a69"] * 250


@pytest.mark.parametrize(
    ("status", "content", "text"),
    [
        (503, b"", "answered HTTP 503"),
        (200, b"<html>", "answered no JSON"),
        (200, b"7", "no JSON-RPC object"),
        (200, b"[]", "no JSON-RPC object"),
    ],
)
def test_what_is_no_evm_node_is_named(
    monkeypatch: pytest.MonkeyPatch, status: int, content: bytes, text: str
) -> None:
    def answer(*_: Any, **__: Any) -> httpx.Response:
        return httpx.Response(status, content=content)

    monkeypatch.setattr(httpx.Client, "post", answer)
    with Rpc("http://127.0.0.1:1") as rpc, pytest.raises(ChainUnavailable, match=text):
        rpc.call("eth_chainId")


def read_request(connection: socket.socket) -> None:
    """To its last byte: closing on unread bytes would reset the connection instead."""
    found = connection.recv(65_536)
    while b"\r\n\r\n" not in found:
        found += connection.recv(65_536)
    head, _, body = found.partition(b"\r\n\r\n")
    lengths = [
        line.split(b":")[1] for line in head.lower().splitlines() if b"content-length" in line
    ]
    while len(body) < int(lengths[0]):
        body += connection.recv(65_536)


def test_a_connection_that_was_closed_while_idle_is_opened_again() -> None:
    answer = b'{"jsonrpc":"2.0","id":0,"result":"0x1"}'
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for reply in (None, answer):
                connection, _ = server.accept()
                with connection:
                    read_request(connection)
                    if reply is not None:
                        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(reply)}\r\n\r\n"
                        connection.sendall(head.encode() + reply)

        thread = Thread(target=serve)
        thread.start()
        with Rpc(f"http://127.0.0.1:{server.getsockname()[1]}") as rpc:
            assert rpc.call("eth_chainId") == "0x1"
        thread.join()


def test_closing_under_a_call_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connects, closed, found = Event(), Event(), list[Any]()
    looked_up = socket.getaddrinfo

    def slow(*words: Any, **more: Any) -> Any:
        connects.set()
        assert closed.wait(10)
        return looked_up(*words, **more)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        rpc = Rpc(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread = Thread(target=lambda: found.append(rpc.call("eth_chainId")))
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        thread.start()
        assert connects.wait(10)
        rpc.close()
        with pytest.raises(ChainUnavailable, match="was closed"):
            rpc.call("eth_chainId")
        closed.set()
        connection, _ = server.accept()
        with connection:
            connection.settimeout(10)
            read_request(connection)
            answer = b'{"jsonrpc":"2.0","id":0,"result":"0x1"}'
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 39\r\n\r\n" + answer)
            thread.join()
            assert connection.recv(1) == b""  # the other end, closed
    assert found == ["0x1"]


def test_views_say_which_contract_did_not_answer(deployed: Deployed) -> None:
    elsewhere = replace(deployed.deployment, lease_book=key("nobody").address)
    wallet = Wallet(deployed.rpc_url, elsewhere, key("owner"))
    with pytest.raises(ChainUnavailable, match="is the deployment's address right"):
        wallet.account()
    with pytest.raises(ChainUnavailable, match="no LeaseBook at"), wallet:
        pass
    wallet.close()


def test_the_view_of_a_funded_machine_names_its_buyer(deployed: Deployed) -> None:
    trading = trading_on(deployed)
    opening = trading.opening((trading.ask(), trading.bid()))
    with Rpc(deployed.rpc_url) as rpc:
        DirectSender(rpc, trading.matcher).send(deployed.deployment.lease_book, calldata(opening))
    with deployed.wallet(trading.buyer) as wallet:
        view = wallet.machine(trading.machine)
        assert view.status is MachineStatus.FUNDED
        assert view.buyer_id == wallet.account().id
        assert (view.cap, view.paid, view.duration) == (trading.cap(), TokenAmount(0), 600)
        with pytest.raises(TransactionReverted, match="LeaseBook_NotOwner"):
            wallet.release(trading.lease())
    with deployed.wallet(trading.provider) as wallet:
        wallet.release(trading.lease())
        assert wallet.machine(trading.machine).status is MachineStatus.FREE
