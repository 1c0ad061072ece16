"""Whether what lies on a chain is what a deployment says: the code, and what constructors fixed.

Immutables are values of a deployment, so code is compared without them, and they are read through
views. Blocking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloud_gpu.protocol.adapters import evm_views as views
from cloud_gpu.protocol.adapters.bindings import (
    futures,
    group_buy,
    lease_book,
    payment_token,
    verification,
)
from cloud_gpu.protocol.adapters.evm_abi import Code, interface
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, octets, whole
from cloud_gpu.protocol.deployment import (
    BACK_OFFICE,
    FRONT_OFFICE,
    LEASE_BOOK,
    VERIFICATION,
    Deployment,
)
from cloud_gpu.protocol.errors import ChainUnavailable, DeploymentDiffers
from cloud_gpu.protocol.futures import FUTURES
from cloud_gpu.protocol.group_buy import GROUP_BUY
from cloud_gpu.protocol.values import Address, Digest


def check_deployment(rpc: Rpc, deployment: Deployment) -> tuple[str, ...]:
    """What was found equal, one line a fact. Raises DeploymentDiffers, ChainUnavailable."""
    chain_id = whole(rpc.call("eth_chainId"))
    if chain_id != deployment.chain_id:
        raise ChainUnavailable(
            f"{rpc.shown} serves chain {chain_id}, the deployment is on chain"
            f" {deployment.chain_id}: correct `rpc`, or name the other file"
        )
    offices = (deployment.front_office, deployment.back_office)
    found = [
        check_code(rpc, LEASE_BOOK, deployment.lease_book, names=offices),
        check_code(rpc, FRONT_OFFICE, deployment.front_office),
        check_code(rpc, BACK_OFFICE, deployment.back_office),
        check_code(rpc, FUTURES, deployment.futures),
        check_code(rpc, GROUP_BUY, deployment.group_buy),
    ]
    found += _check_views(rpc, deployment.lease_book, _of_lease_book(deployment))
    found += _check_views(rpc, deployment.futures, _of_futures(deployment))
    found += _check_views(rpc, deployment.group_buy, _of_group_buy(deployment))
    if deployment.audit is not None:
        found.append(check_code(rpc, VERIFICATION, deployment.verification))
        found += _check_views(rpc, deployment.verification, _of_verification(deployment))
        found.append(_check_verifiers(rpc, deployment))
    decimals = views.ask(rpc, deployment.token, payment_token.decimals())
    if 10**decimals != deployment.bond_unit.value:
        raise DeploymentDiffers("bond_unit", str(10**decimals), str(deployment.bond_unit.value))
    return (*found, f"token {deployment.token} has {decimals} decimals")


def _check_verifiers(rpc: Rpc, deployment: Deployment) -> str:
    fixed = views.ask(rpc, deployment.verification, verification.verifiers())
    for field, found, wanted in (
        ("verifiers", tuple(each.signer for each in fixed), deployment.verifiers),
        ("anchors", tuple(Digest(each.anchor) for each in fixed), deployment.anchors),
        ("audit_accounts", tuple(each.audits for each in fixed), deployment.audit_accounts),
    ):
        if found != wanted:
            raise DeploymentDiffers(field, _shown(found), _shown(wanted))
    return "verifiers, anchors and audit accounts are the deployment's"


def check_code(rpc: Rpc, contract: str, address: Address, names: Sequence[Address] = ()) -> str:
    """Compare a contract's code with this package's build; it must hold the addresses `names`.

    Raises DeploymentDiffers.
    """
    known = interface(contract)
    code = known.code
    found = octets(rpc.call("eth_getCode", str(address), "latest"))
    wanted = known.bytecode[code.start : code.start + code.size]
    field = f"code of {contract} at {address}"
    if len(found) != len(wanted):
        raise DeploymentDiffers(field, f"{len(found)} bytes", f"{len(wanted)} bytes")
    if _masked(found, code) != _masked(wanted, code):
        raise DeploymentDiffers(field, "other code", "this package's build")
    written = {found[start : start + size] for start, size in code.immutables}
    for name in names:
        if name.raw.rjust(32, b"\0") not in written:
            raise DeploymentDiffers(f"what {contract} builds on", "another address", str(name))
    return f"{contract} {address}: {code.size} bytes of code are this package's"


def is_there(rpc: Rpc, contract: str, address: Address) -> bool:
    """Whether the contract, and nothing else, lies there."""
    try:
        check_code(rpc, contract, address)
    except DeploymentDiffers:
        return False
    return True


def _masked(found: bytes, code: Code) -> bytes:
    masked = bytearray(found)
    for start, size in code.immutables:
        masked[start : start + size] = bytes(size)
    return bytes(masked)


Expected = Sequence[tuple[Call[Any], Any]]
"""Views, and what they must answer."""


def _of_lease_book(deployment: Deployment) -> Expected:
    times, audit = deployment.windows, deployment.audit
    windows = lease_book.Windows(times.start, times.claim, times.retire, times.no_show)
    return (
        (lease_book.token(), deployment.token),
        (lease_book.windows(), windows),
        (lease_book.bond_unit(), deployment.bond_unit.value),
        (lease_book.registration_fee(), deployment.registration_fee.value),
        (lease_book.guardian(), deployment.guardian),
        (lease_book.verification(), deployment.verification),
        (lease_book.futures(), deployment.futures),
        (lease_book.group_buy(), deployment.group_buy),
        (lease_book.commit_window(), audit.commit if audit else 0),
        (lease_book.domain_separator(), deployment.domain.separator),
    )


def _of_verification(deployment: Deployment) -> Expected:
    audit = deployment.audit
    assert audit is not None, "asked for where there are audits"
    windows = verification.AuditWindows(
        audit.challenge, audit.hard_cap, audit.late_slash, audit.answer
    )
    return (
        (verification.lease_book(), deployment.lease_book),
        (verification.audit_windows(), windows),
        (verification.domain_separator(), deployment.verification_domain.separator),
    )


def _of_futures(deployment: Deployment) -> Expected:
    fixed = deployment.futures_rules
    rules = futures.FuturesRules(
        fixed.long_margin.value,
        fixed.short_margin.value,
        fixed.margin_floor.value,
        fixed.lead,
        fixed.lead_short,
    )
    return (
        (futures.lease_book(), deployment.lease_book),
        (futures.rules(), rules),
        (futures.domain_separator(), deployment.futures_domain.separator),
    )


def _of_group_buy(deployment: Deployment) -> Expected:
    return (
        (group_buy.lease_book(), deployment.lease_book),
        (group_buy.domain_separator(), deployment.group_buy_domain.separator),
    )


def _check_views(rpc: Rpc, address: Address, expected: Expected) -> tuple[str, ...]:
    asked = [view for view, _ in expected]
    for (view, wanted), found in zip(expected, views.ask_all(rpc, address, asked), strict=True):
        if found != wanted:
            field = f"{view.contract}.{view.function}"
            raise DeploymentDiffers(field, _shown(found), _shown(wanted))
    return (f"{asked[0].contract}: {', '.join(v.function for v in asked)} are the deployment's",)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(_shown(part) for part in value)
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)
