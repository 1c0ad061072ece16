"""Deploying: another chain id, slow blocks, crashes, reorganisations, other people's numbers."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cloud_gpu.protocol.adapters import deployer
from cloud_gpu.protocol.adapters.deployer import deploy
from cloud_gpu.protocol.adapters.deployment_check import check_deployment
from cloud_gpu.protocol.adapters.deployment_files import (
    progress_path,
    read_deployment,
    read_progress,
)
from cloud_gpu.protocol.adapters.deployment_plan import created_at
from cloud_gpu.protocol.adapters.evm_abi import payment_token
from cloud_gpu.protocol.adapters.evm_direct import DirectSender
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, whole
from cloud_gpu.protocol.adapters.keystore import write_keystore, write_password_file
from cloud_gpu.protocol.deployment import (
    AuditPlan,
    AuditWindows,
    Deployment,
    DeploymentTerms,
    VerifierAccount,
)
from cloud_gpu.protocol.errors import (
    ChainUnavailable,
    DeploymentDiffers,
    GasTooSmall,
    SettingsInvalid,
)
from cloud_gpu.protocol.futures import FuturesRules
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from cloud_gpu.protocol.values import Address, keccak256
from tests.support.anvil import ETHER, WINDOWS, Anvil, key, running_anvil

AUDITS = AuditPlan(
    verifiers=(
        VerifierAccount(
            signer=key("verifier 0").address,
            anchor=keccak256(b"0"),
            audits=key("audits 0").address,
        ),
        VerifierAccount(
            signer=key("verifier 1").address,
            anchor=keccak256(b"1"),
            audits=key("audits 1").address,
        ),
    ),
    windows=AuditWindows(commit=60, challenge=10, hard_cap=200, late_slash=30, answer=15),
)
TERMS = DeploymentTerms(
    windows=WINDOWS,
    audits=AUDITS,
    registration_fee=TokenAmount(5),
    guardian=key("guardian").address,
)
CHAIN_ID = 8453
CONTRACTS = (
    *("PaymentToken", "FrontOffice", "BackOffice", "LeaseBook"),
    *("Verification", "Futures", "GroupBuy"),
)


@pytest.fixture(scope="module")
def chain() -> Iterator[Anvil]:
    with running_anvil("--chain-id", str(CHAIN_ID)) as anvil:
        yield anvil


def payer(anvil: Anvil, name: str) -> LocalKey:
    """An account of its own for each test: its transactions count from 0."""
    made = key(name)
    anvil.give_native(made.address)
    return made


def count(anvil: Anvil, of: Address) -> int:
    return whole(anvil.rpc.call("eth_getTransactionCount", str(of), "latest"))


def test_a_deployment_is_what_its_file_says(chain: Anvil, tmp_path: Path) -> None:
    owner, path, said = payer(chain, "a"), tmp_path / "deep" / "d.json", list[str]()
    made = deploy(chain.url, owner, TERMS, path=path, say=said.append)
    assert read_deployment(path) == made
    assert made.chain_id == CHAIN_ID
    assert made.token == created_at(owner.address, 0)
    assert made.verification == created_at(owner.address, 4)
    assert [line.split()[0] for line in said] == list(CONTRACTS)
    assert [p.name for p in path.parent.iterdir()] == ["d.json"]
    facts = "\n".join(check_deployment(chain.rpc, made))
    for words in (*CONTRACTS[1:], "guardian", "6 decimals"):
        assert words in facts


def test_the_gas_that_a_plan_names_is_enough_and_not_much_more(chain: Anvil) -> None:
    owner = payer(chain, "gas")
    planned, fees = deployer.plan(chain.rpc, owner.address, TERMS)
    assert count(chain, owner.address) == 0  # a plan sends nothing
    assert fees.most > 0
    before = chain.block()
    deploy(chain.url, owner, TERMS)
    for place, each in enumerate(planned.contracts, start=1):
        block = chain.rpc.call("eth_getBlockByNumber", hex(before + place), False)
        used = whole(block["gasUsed"])
        assert used <= each.gas_most <= used * 13 // 10 + 300_000, (each.contract, used)


def test_a_second_run_finds_the_result_and_sends_nothing(chain: Anvil, tmp_path: Path) -> None:
    owner, path = payer(chain, "twice"), tmp_path / "d.json"
    made = deploy(chain.url, owner, TERMS, path=path)
    assert deploy(chain.url, owner, TERMS, path=path) == made
    assert count(chain, owner.address) == len(CONTRACTS)
    other = msgspec.structs.replace(TERMS, registration_fee=TokenAmount(6))
    with pytest.raises(SettingsInvalid, match="holds another deployment, which is not overwritten"):
        deploy(chain.url, owner, other, path=path)


def test_a_token_that_is_there_is_used(chain: Anvil) -> None:
    owner = payer(chain, "token")
    token = deploy(chain.url, owner, TERMS).token
    made = deploy(chain.url, owner, msgspec.structs.replace(TERMS, token=token, audits=None))
    assert made.token == token
    assert made.verification.is_zero
    assert count(chain, owner.address) == 2 * len(CONTRACTS) - 2


KILLED = """
import os, signal, sys
from pathlib import Path
import msgspec
from cloud_gpu.protocol.adapters.deployer import deploy
from cloud_gpu.protocol.adapters.evm_rpc import Rpc
from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.deployment import DeploymentTerms
from cloud_gpu.protocol.identity import LocalKey

url, secret, terms, path, moment = sys.argv[1:]
call = Rpc.call

def deadly(self, method, *params):
    if method == "eth_sendRawTransaction":
        if moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        call(self, method, *params)
        os.kill(os.getpid(), signal.SIGKILL)
    return call(self, method, *params)

Rpc.call = deadly
deploy(url, LocalKey(bytes.fromhex(secret)), from_json(terms, DeploymentTerms), path=Path(path))
"""


def killed(anvil: Anvil, owner: LocalKey, path: Path, moment: str) -> int:
    """Deploy in another process, which dies at its first sending."""
    from cloud_gpu.protocol.codec import to_json

    words = (anvil.url, owner.secret.hex(), to_json(TERMS).decode(), str(path), moment)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *words], check=False, capture_output=True, timeout=60
    )
    return done.returncode


def test_kill_9_at_every_step_deploys_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "deployment.json"
    with running_anvil("--chain-id", str(CHAIN_ID), "--block-time", "1") as anvil:
        owner = payer(anvil, "killed")
        for place in range(len(CONTRACTS)):
            assert killed(anvil, owner, path, "before") == -signal.SIGKILL
            assert not path.exists()
            assert killed(anvil, owner, path, "after") == -signal.SIGKILL
            held = read_progress(progress_path(path))
            assert held is not None
            assert [len(step.sent) > 0 for step in held.steps].count(True) == place + 1
        made = deploy(anvil.url, owner, TERMS, path=path)
        assert count(anvil, owner.address) == len(CONTRACTS)
        assert made.lease_book == created_at(owner.address, 3)
        check_deployment(anvil.rpc, made)
    assert [p.name for p in tmp_path.iterdir()] == ["deployment.json"]


def test_confirmations_are_waited_for(tmp_path: Path) -> None:
    with running_anvil("--block-time", "1") as anvil:
        owner = payer(anvil, "deep")
        terms = DeploymentTerms(windows=WINDOWS, confirmations=3)
        made = deploy(anvil.url, owner, terms, path=tmp_path / "d.json")
        last = whole(anvil.rpc.call("eth_blockNumber"))
        assert last - made.first_block >= 4  # the book one block after the token, 3 on top


def test_a_block_that_is_replaced_is_deployed_again(chain: Anvil) -> None:
    owner = payer(chain, "reorganised")
    terms = DeploymentTerms(windows=WINDOWS, confirmations=2)
    said, seen, made = list[str](), threading.Event(), list[Deployment]()

    def say(text: str) -> None:
        said.append(text)
        if text.startswith("GroupBuy"):
            seen.set()

    working = threading.Thread(target=lambda: made.append(deploy(chain.url, owner, terms, say=say)))
    working.start()
    assert seen.wait(20)
    chain.reorganise(1)  # the last one's block: it is sent again under its number
    while working.is_alive():
        working.join(0.3)
        chain.mine()
    assert count(chain, owner.address) == len(CONTRACTS) - 1
    assert [line.split()[0] for line in said].count("GroupBuy") == 2
    check_deployment(chain.rpc, made[0])


def test_a_number_that_somebody_else_used_is_named(chain: Anvil, tmp_path: Path) -> None:
    owner, path = payer(chain, "moved"), tmp_path / "d.json"
    assert killed(chain, owner, path, "before") == -signal.SIGKILL
    with Rpc(chain.url) as rpc:
        DirectSender(rpc, owner).send(key("other").address, b"", wei=1)
    with pytest.raises(ChainUnavailable, match=r"transaction 0 of 0x.* was used for"):
        deploy(chain.url, owner, TERMS, path=path)
    assert count(chain, owner.address) == 1


def test_progress_of_another_plan_is_not_continued(chain: Anvil, tmp_path: Path) -> None:
    owner, path = payer(chain, "changed"), tmp_path / "d.json"
    assert killed(chain, owner, path, "before") == -signal.SIGKILL
    other = msgspec.structs.replace(TERMS, registration_fee=TokenAmount(6))
    with pytest.raises(SettingsInvalid, match="plan: it was begun with 0x"):
        deploy(chain.url, owner, other, path=path)
    with pytest.raises(SettingsInvalid, match="deployer: it was begun with 0x"):
        deploy(chain.url, payer(chain, "somebody else"), TERMS, path=path)
    assert count(chain, owner.address) == 0


def test_an_account_without_money_sends_nothing(chain: Anvil, tmp_path: Path) -> None:
    poor = key("pauper")
    chain.give_native(poor.address, ETHER // 10**6)
    with pytest.raises(GasTooSmall, match="the deployment may cost"):
        deploy(chain.url, poor, TERMS, path=tmp_path / "d.json")
    assert count(chain, poor.address) == 0


def test_other_code_and_other_settings_are_told_apart(chain: Anvil) -> None:
    made = deploy(chain.url, payer(chain, "differs"), TERMS)
    for changed, field in (
        ({"guardian": key("other").address}, "LeaseBook.guardian"),
        ({"registration_fee": TokenAmount(6)}, "LeaseBook.registrationFee"),
        ({"windows": Windows(start=61, claim=120, retire=600)}, "LeaseBook.windows"),
        ({"verifiers": tuple(reversed(made.verifiers))}, "verifiers"),
        ({"anchors": tuple(reversed(made.anchors))}, "anchors"),
        ({"audit_accounts": (key("other").address,) * 2}, "audit_accounts"),
        ({"bond_unit": TokenAmount(10**8)}, "LeaseBook.bondUnit"),
        ({"lease_book": made.verification}, "code of LeaseBook"),
        ({"back_office": key("other").address}, "what LeaseBook builds on"),
        ({"front_office": key("other").address}, "what LeaseBook builds on"),
        ({"futures_rules": FuturesRules(lead=90_000)}, "Futures.rules"),
        ({"group_buy": made.futures}, "code of GroupBuy"),
    ):
        with pytest.raises(DeploymentDiffers, match=field):
            check_deployment(chain.rpc, msgspec.structs.replace(made, **changed))
    book = str(made.lease_book)
    code = bytearray.fromhex(chain.rpc.call("eth_getCode", book, "latest")[2:])
    code[100] ^= 1
    chain.rpc.call("anvil_setCode", book, "0x" + code.hex())
    with pytest.raises(DeploymentDiffers, match=r"found other code, needed this package's build"):
        check_deployment(chain.rpc, made)


def test_the_command_deploys_previews_and_verifies(chain: Anvil, tmp_path: Path) -> None:
    owner = payer(chain, "command")
    keystore, password = tmp_path / "key.json", tmp_path / "key.password"
    write_keystore(keystore, owner.secret, "word", work=2)
    write_password_file(password, "word")
    out = tmp_path / "out.json"

    def said(*words: str) -> dict[str, object]:
        program = Path(sys.executable).with_name("cloud-gpu")
        done = subprocess.run(
            [program, "contracts", *words, "--rpc", chain.url, "--json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"HOME": str(tmp_path), "PATH": ""},
        )
        found: dict[str, object] = json.loads(done.stdout)
        return found | {"exit": done.returncode}

    files = ("--keystore", str(keystore), "--password-file", str(password), "--out", str(out))
    rules = ("--long-margin-bps", "2000", "--margin-floor", "2.50", "--futures-lead-short", "1h")
    wanted = ("deploy", *files, "--play-money", "--confirmations", "0", *rules)
    preview = said(*wanted, "--dry-run")
    assert (preview["exit"], preview["kind"]) == (0, "deployment-plan")
    fixed = preview["fixed"]
    assert isinstance(fixed, dict)
    assert fixed["futures"] == {
        "long_margin_bps": 2_000,
        "short_margin_bps": 2_500,
        "margin_floor": {"amount": "2.50", "unit": "token"},
        "lead": 86_400,
        "lead_short": 3_600,
    }
    assert count(chain, owner.address) == 0
    assert said(*wanted)["reason"] == "usage"  # nobody there to ask
    made = said(*wanted, "--yes")
    assert (made["exit"], made["kind"]) == (0, "deployment")
    written = read_deployment(out)
    assert written.lease_book == Address.parse(str(made["lease_book"]))
    assert written.futures_rules == FuturesRules(
        long_margin=BasisPoints(2_000), margin_floor=TokenAmount(2_500_000), lead_short=3_600
    )
    assert said("verify", str(out))["exit"] == 0
    wrong = said(*wanted, "--futures-lead", "30m", "--dry-run")
    rule = "futures.lead_short is 1 to 1800 s (futures.lead), found 3600"
    assert (wrong["exit"], wrong["found"]) == (2, f"{rule}: correct --futures-lead-short")
    above = said(*wanted, "--long-margin-bps", "5001", "--dry-run")
    assert (above["exit"], "'--long-margin-bps'" in str(above["found"])) == (2, True)
    undecided = said("deploy", *files, "--yes")
    assert (undecided["exit"], "payment token" in str(undecided["found"])) == (2, True)


def test_the_token_is_play_money_only_where_it_was_asked_for(chain: Anvil) -> None:
    made = deploy(chain.url, payer(chain, "play"), TERMS)
    name = chain.rpc.call(
        "eth_call", {"to": str(made.token), "data": "0x" + payment_token().encode("name").hex()}
    )
    assert payment_token().decode("name", bytes.fromhex(name[2:])) == ("Devnet Dollar",)
