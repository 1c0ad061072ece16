"""What a deployment would create, decided without a chain."""

from collections.abc import Callable

import msgspec
import pytest

from cloud_gpu.protocol.adapters.deployment_plan import created_at, plan_deployment
from cloud_gpu.protocol.deployment import (
    AuditPlan,
    AuditWindows,
    Deployment,
    DeploymentTerms,
    VerifierAccount,
)
from cloud_gpu.protocol.futures import FuturesRules
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Digest

DEPLOYER = Address.parse("0x6ac7ea33f8831ea9dcc53393aaa88b25a785dbf0")
WINDOWS = Windows(start=60, claim=120, retire=600)
AUDITS = AuditPlan(
    verifiers=(
        VerifierAccount(
            signer=Address(b"\x01" * 20), anchor=Digest(b"\x02" * 32), audits=Address(b"\x03" * 20)
        ),
        VerifierAccount(
            signer=Address(b"\x04" * 20), anchor=Digest(b"\x05" * 32), audits=Address(b"\x06" * 20)
        ),
    ),
    windows=AuditWindows(commit=120, challenge=10, hard_cap=240, late_slash=60, answer=30),
)
VERIFIED = DeploymentTerms(windows=WINDOWS, audits=AUDITS)


def test_addresses_are_those_of_a_published_example() -> None:
    """ethereum.stackexchange.com/questions/760: one account's first four contracts."""
    assert [str(created_at(DEPLOYER, count)).lower() for count in range(4)] == [
        "0xcd234a471b72ba2f1ccf0a70fcaba648a5eecd8d",
        "0x343c43a37d37dff08ae8c4a11544c718abb4fcf8",
        "0xf778b86fa74e846c4f0a1fbd1335fe81c00a0c91",
        "0xfffd933a0bc612844eaf0c6fe3e5b8e9b6c1d19c",
    ]


def test_contracts_name_each_other_before_they_exist() -> None:
    planned = plan_deployment(VERIFIED, chain_id=1, deployer=DEPLOYER, first_nonce=7)
    made = {each.contract: each for each in planned.contracts}
    assert list(made) == [
        *("PaymentToken", "FrontOffice", "BackOffice", "LeaseBook"),
        *("Verification", "Futures", "GroupBuy"),
    ]
    assert [each.nonce for each in planned.contracts] == list(range(7, 14))
    book = made["LeaseBook"]
    assert book.arguments[0] == made["PaymentToken"].address
    modules = tuple(made[name].address for name in ("Verification", "Futures", "GroupBuy"))
    assert book.arguments[4] == modules
    assert modules[0] == created_at(DEPLOYER, 11)
    assert book.arguments[-2:] == (made["FrontOffice"].address, made["BackOffice"].address)
    for office in ("FrontOffice", "BackOffice"):
        assert made[office].arguments == book.arguments[:-2]
    for module in ("Verification", "Futures", "GroupBuy"):
        assert made[module].arguments[0] == book.address


def test_what_is_not_wanted_is_not_planned() -> None:
    token = Address(b"\x0a" * 20)
    terms = DeploymentTerms(windows=WINDOWS, token=token)
    planned = plan_deployment(terms, chain_id=1, deployer=DEPLOYER, first_nonce=0).contracts
    made = {each.contract: each for each in planned}
    assert "PaymentToken" not in made
    assert "Verification" not in made
    book = made["LeaseBook"]
    assert (book.arguments[0], book.arguments[4][0]) == (token, ZERO_ADDRESS)


def test_a_plan_has_one_digest_and_another_plan_another() -> None:
    def digest(terms: DeploymentTerms = VERIFIED, chain_id: int = 1, nonce: int = 0) -> Digest:
        return plan_deployment(
            terms, chain_id=chain_id, deployer=DEPLOYER, first_nonce=nonce
        ).digest

    changed = msgspec.structs.replace(VERIFIED, registration_fee=TokenAmount(1))
    slower = msgspec.structs.replace(VERIFIED, heartbeat_s=99)
    assert digest() == digest() == digest(slower)  # what is off the chain may change
    assert len({digest(), digest(changed), digest(chain_id=2), digest(nonce=1)}) == 4


def test_the_result_holds_everything_that_was_decided() -> None:
    terms = msgspec.structs.replace(
        VERIFIED, guardian=Address(b"\x0b" * 20), registration_fee=TokenAmount(5), confirmations=3
    )
    planned = plan_deployment(terms, chain_id=8453, deployer=DEPLOYER, first_nonce=0)
    at = {each.contract: each.address for each in planned.contracts}
    made = planned.result(bond_unit=TokenAmount(10**6), first_block=12)
    assert made == Deployment(
        chain_id=8453,
        lease_book=at["LeaseBook"],
        front_office=at["FrontOffice"],
        back_office=at["BackOffice"],
        token=at["PaymentToken"],
        first_block=12,
        windows=WINDOWS,
        bond_unit=TokenAmount(10**6),
        verification=at["Verification"],
        futures=at["Futures"],
        group_buy=at["GroupBuy"],
        verifiers=(Address(b"\x01" * 20), Address(b"\x04" * 20)),
        anchors=(Digest(b"\x02" * 32), Digest(b"\x05" * 32)),
        audit_accounts=(Address(b"\x03" * 20), Address(b"\x06" * 20)),
        audit=AUDITS.windows,
        registration_fee=TokenAmount(5),
        guardian=Address(b"\x0b" * 20),
        confirmations=3,
    )


def test_terms_that_the_contracts_would_refuse_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match=r"retire is at least 30 \(start \+ claim: .*found 29"):
        DeploymentTerms(windows=Windows(start=10, claim=20, retire=29))
    with pytest.raises(ValueError, match=r"retire is at least 430 \(all audit windows together"):
        DeploymentTerms(windows=Windows(start=10, claim=20, retire=429), audits=AUDITS)
    DeploymentTerms(windows=Windows(start=10, claim=20, retire=430), audits=AUDITS)
    twice = (AUDITS.verifiers[0], AUDITS.verifiers[0])
    with pytest.raises(ValueError, match="two different keys"):
        AuditPlan(verifiers=twice, windows=AUDITS.windows)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Windows(start=3_601, claim=1, retire=1), "windows.start is 1 to 3600 s"),
        (lambda: Windows(start=1, claim=1, retire=2_592_001), "windows.retire is 1 to 2592000 s"),
        (lambda: Windows(start=1, claim=1, retire=9, no_show=901), "windows.no_show is 0 to 900"),
        (lambda: _audits(hard_cap=259_201), "audit.hard_cap is 1 to 259200 s, found 259201"),
        (lambda: _audits(answer=0), "audit.answer is 1 to 86400 s, found 0"),
        (lambda: _audits(commit=604_801), "audit.commit is 1 to 604800 s"),
        (lambda: FuturesRules(long_margin=BasisPoints(0)), "futures.long_margin is 1 to 5000"),
        (lambda: FuturesRules(short_margin=BasisPoints(5_001)), "futures.short_margin is 1 to"),
        (lambda: FuturesRules(margin_floor=TokenAmount(2**48)), "futures.margin_floor is 0 to"),
        (lambda: FuturesRules(lead=604_801), "futures.lead is 1 to 604800 s, found 604801"),
        (lambda: FuturesRules(lead=60), r"futures.lead_short is 1 to 60 s \(futures.lead\)"),
    ],
)
def test_what_a_constructor_would_refuse_names_field_and_range(
    made: Callable[[], object], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        made()


def _audits(**changed: int) -> AuditWindows:
    return msgspec.structs.replace(AUDITS.windows, **changed)
