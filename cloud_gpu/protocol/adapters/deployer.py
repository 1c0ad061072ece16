"""Puts the contracts on a chain and writes down where. Blocking; works with any EVM node."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloud_gpu.protocol.adapters import evm_views as views
from cloud_gpu.protocol.adapters.evm_abi import lease_book, payment_token, verification
from cloud_gpu.protocol.adapters.evm_direct import DirectSender
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, octets, whole
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.deployment import AuditWindows, Deployment
from cloud_gpu.protocol.errors import ChainUnavailable, SettingsInvalid
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Digest, Value, keccak256


class VerifierAccount(Value, frozen=True, kw_only=True):
    """One of the two verifiers that a deployment fixes."""

    signer: Address
    """Its key's: signs verdicts and results."""
    anchor: Digest
    """Of its hash chain: `cloud-gpu-verifier anchor` prints it."""
    audits: Address
    """Whose cash the audit share becomes: the account that pays re-executions."""


class AuditPlan(Value, frozen=True, kw_only=True):
    """What a deployment with verified leases fixes besides."""

    verifiers: tuple[VerifierAccount, VerifierAccount]
    windows: AuditWindows


def deploy(
    rpc_url: str,
    key: Signer,
    windows: Windows,
    *,
    audits: AuditPlan | None = None,
    token: Address | None = None,
    registration_fee: TokenAmount = ZERO_TOKENS,
    guardian: Address = ZERO_ADDRESS,
    voucher_interval_s: int = 60,
    heartbeat_s: int = 10,
    confirmations: int = 0,
    path: Path | None = None,
) -> Deployment:
    """Deploy LeaseBook, Verification with an `audits` plan, and a token where `token` names none.

    The devnet's token anybody can mint. The result is also written to `path` as JSON. `key` pays
    for gas and has no right in the contracts afterwards; nothing else may send with it meanwhile.
    Raises TransactionReverted (LeaseBook_BadWindow, Verification_BadSetting, …), FundsTooSmall,
    ChainUnavailable.
    """
    with Rpc(rpc_url) as rpc:
        sender = DirectSender(rpc, key)
        if token is None:
            token = _created(rpc, sender.send(None, payment_token().deployment()))
        # The two contracts name each other, so the second one's address is computed beforehand.
        count = whole(rpc.call("eth_getTransactionCount", str(key.address), "pending"))
        module = created_at(key.address, count + 1) if audits else ZERO_ADDRESS
        times = (windows.start, windows.claim, windows.retire, windows.no_show)
        commit = audits.windows.commit if audits else 0
        creation = lease_book().deployment(token, times, registration_fee, guardian, module, commit)
        receipt = sender.send(None, creation)
        address = _created(rpc, receipt)
        if audits is not None:
            _deploy_audits(rpc, sender, address, module, audits)
        unit, found_token = views.read_all(
            rpc, lease_book(), address, [("bondUnit", ()), ("token", ())]
        )
        assert Address.parse(found_token.lower()) == token, "LeaseBook names the token it was given"
        deployment = Deployment(
            chain_id=whole(rpc.call("eth_chainId")),
            lease_book=address,
            token=token,
            first_block=whole(receipt["blockNumber"]),
            windows=windows,
            bond_unit=TokenAmount(unit),
            verification=module,
            verifiers=tuple(v.signer for v in audits.verifiers) if audits else (),
            audit=audits.windows if audits else None,
            voucher_interval_s=voucher_interval_s,
            heartbeat_s=heartbeat_s,
            confirmations=confirmations,
        )
    if path is not None:
        write_deployment(path, deployment)
    return deployment


def _deploy_audits(
    rpc: Rpc, sender: DirectSender, book: Address, module: Address, audits: AuditPlan
) -> None:
    verifiers = [(each.signer, each.anchor, each.audits) for each in audits.verifiers]
    windows = audits.windows
    limits_of_time = (windows.challenge, windows.hard_cap, windows.late_slash)
    created = _created(
        rpc, sender.send(None, verification().deployment(book, verifiers, limits_of_time))
    )
    if created != module:
        raise ChainUnavailable(
            "another program sent with the deployer's key meanwhile: LeaseBook names a"
            f" Verification at {module}, which is not there. Deploy again"
        )


def created_at(deployer: Address, count: int) -> Address:
    """Where a contract lies that `deployer` creates with its transaction of this number.

    The last 20 bytes of keccak256(rlp([deployer, count])). Source: Ethereum Yellow Paper, 7.
    """
    digits = count.to_bytes((count.bit_length() + 7) // 8, "big")
    number = (
        digits if len(digits) == 1 and digits[0] < 0x80 else bytes([0x80 + len(digits)]) + digits
    )
    body = bytes([0x80 + 20]) + deployer.raw + number
    return Address(keccak256(bytes([0xC0 + len(body)]) + body).raw[12:])


def write_deployment(path: Path, deployment: Deployment) -> None:
    """Write the JSON file, whole or not at all; replaces an older one. Raises SettingsInvalid."""
    scratch: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, scratch = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(to_json(deployment) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        Path(scratch).chmod(0o644)  # nothing in it is secret, and every party reads it
        Path(scratch).replace(path)
    except OSError as error:
        if scratch is not None:
            Path(scratch).unlink(missing_ok=True)
        raise SettingsInvalid(
            f"deployment {path}: cannot be written ({error.strerror or error}); choose a folder"
            " that this user may write to, on a disk with room"
        ) from error


def read_deployment(path: Path) -> Deployment:
    """Read the JSON file. Raises SettingsInvalid naming the file, the field and the fix."""
    try:
        return from_json(path.read_bytes(), Deployment)
    except FileNotFoundError as error:
        raise SettingsInvalid(
            f"deployment {path}: there is no such file; correct the setting, or deploy first"
        ) from error
    except (OSError, ValueError) as error:
        raise SettingsInvalid(
            f"deployment {path}: {error}; it must be the JSON file that the deployer wrote"
        ) from error


def _created(rpc: Rpc, receipt: Mapping[str, Any]) -> Address:
    address = Address(octets(receipt["contractAddress"]))
    if not octets(rpc.call("eth_getCode", str(address), "latest")):
        raise ChainUnavailable(f"the EVM node mined a deployment, but has no code at {address}")
    return address
