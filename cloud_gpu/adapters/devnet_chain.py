"""Fills a devnet's fresh chain: contracts, keys, wallets, products, a market, machines with bonds.

Every party gets its own new key in an encrypted keystore (0600). Node keys are delegates of their
provider's wallet, bound to their peer by a statement that the wallet signs. The verifiers and
their audit accounts are fixed in the contracts.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coincurve import PrivateKey

from cloud_gpu.adapters import devnet_profile as profile
from cloud_gpu.adapters.devnet_profile import DevnetMachine
from cloud_gpu.protocol.adapters.deployer import deploy
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, whole
from cloud_gpu.protocol.adapters.keystore import (
    DEVNET_SCRYPT_N,
    write_keystore,
    write_password_file,
    write_secret_file,
)
from cloud_gpu.protocol.adapters.wallet import Wallet
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.deployment import AuditPlan, Deployment, DeploymentTerms, VerifierAccount
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.identity import KeyRole, LocalKey, NodeBinding, PeerId
from cloud_gpu.protocol.product import ProductFlags
from cloud_gpu.protocol.signing import state
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest, keccak256

_ETHER: Final = 10**18
_KEYS_LIVE_S: Final = 365 * 24 * 3600
_THREADS: Final = 4
_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

Entropy = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class KeptKey:
    """A key in memory, and where it lies on disk."""

    key: LocalKey
    keystore: Path
    password: Path


@dataclass(frozen=True, slots=True)
class PreparedNode:
    """A provider and its node, ready to start."""

    name: str
    wallet: KeptKey
    key: KeptKey
    binding_path: Path
    machines: tuple[DevnetMachine, ...]


@dataclass(frozen=True, slots=True)
class PreparedVerifier:
    """A verifier, ready to start."""

    name: str
    key: KeptKey
    audits: KeptKey
    """Of the account that pays re-executions."""
    preimages: Path
    anchor: Digest


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that is on the chain when the daemons start."""

    deployment: Deployment
    deployment_path: Path
    market: KeptKey
    market_id: int
    buyer: KeptKey
    nodes: tuple[PreparedNode, ...]
    verifiers: tuple[PreparedVerifier, ...]
    """None where too few providers are left to repeat anybody's work."""


class _Keys:
    """Makes keys and keeps them below one folder."""

    def __init__(self, folder: Path, entropy: Entropy) -> None:
        self._folder, self._entropy = folder, entropy

    def make(self, name: str) -> KeptKey:
        secret = self._entropy(32)
        keystore = self._folder / f"{name}.json"
        password_file = self._folder / f"{name}.password"
        password = self._entropy(16).hex()
        write_keystore(keystore, secret, password, work=DEVNET_SCRYPT_N)
        write_password_file(password_file, password)
        return KeptKey(key=LocalKey(secret), keystore=keystore, password=password_file)

    def make_verifier(self, name: str) -> PreparedVerifier:
        seed = Digest(self._entropy(32))
        path = self._folder / f"{name}.preimages"
        write_secret_file(path, seed.raw.hex().encode() + b"\n")
        return PreparedVerifier(
            name=name,
            key=self.make(name),
            audits=self.make(f"{name}-audits"),
            preimages=path,
            anchor=_anchor(seed),
        )


def _anchor(seed: Digest) -> Digest:
    """The end of a verifier's hash chain, as `cloud-gpu-verifier anchor` prints it."""
    for _ in range(profile.PREIMAGES):
        seed = keccak256(seed.raw)
    return seed


def prepare(rpc: Rpc, rpc_url: str, folder: Path, nodes: int, entropy: Entropy) -> Prepared:
    """Do it all on a chain that mines at once. Raises what the deployer and wallets raise."""
    keys = _Keys(folder / "keys", entropy)
    deployer, market, buyer = keys.make("deployer"), keys.make("market"), keys.make("buyer")
    machines = profile.machines_of(nodes)
    prepared = [
        PreparedNode(
            name=f"node-{number}",
            wallet=keys.make(f"node-{number}-wallet"),
            key=keys.make(f"node-{number}"),
            binding_path=folder / f"node-{number}-binding.json",
            machines=hand,
        )
        for number, hand in enumerate(machines)
    ]
    is_verified = nodes >= profile.VERIFIED_FROM_NODES
    names = [f"verifier-{number}" for number in range(profile.VERIFIERS * is_verified)]
    verifiers = tuple(keys.make_verifier(name) for name in names)
    senders = [deployer, market, buyer]
    senders += [key for node in prepared for key in (node.wallet, node.key)]
    senders += [key for each in verifiers for key in (each.key, each.audits)]
    for kept in senders:
        rpc.call("anvil_setBalance", str(kept.key.address), hex(100 * _ETHER))
    path = folder / "deployment.json"
    deployment = deploy(
        rpc_url,
        deployer.key,
        DeploymentTerms(
            windows=profile.WINDOWS,
            audits=_audit_plan(verifiers),
            futures=profile.FUTURES,
            voucher_interval_s=profile.VOUCHER_INTERVAL_S,
            heartbeat_s=profile.HEARTBEAT_S,
        ),
        path=path,
    )
    expiry = _chain_time(rpc) + _KEYS_LIVE_S
    products, market_id = _fill_tables(rpc_url, deployment, market, machines)
    _fund(rpc_url, deployment, buyer, profile.BUYER_TOKENS, profile.BUYER_VAULT)
    for each in verifiers:
        _fund(rpc_url, deployment, each.audits, profile.AUDIT_VAULT, profile.AUDIT_VAULT)
    with ThreadPoolExecutor(_THREADS) as pool:
        for done in [
            pool.submit(_join, rpc_url, deployment, node, products, expiry) for node in prepared
        ]:
            done.result()
    return Prepared(
        deployment=deployment,
        deployment_path=path,
        market=market,
        market_id=market_id,
        buyer=buyer,
        nodes=tuple(prepared),
        verifiers=verifiers,
    )


def _audit_plan(verifiers: tuple[PreparedVerifier, ...]) -> AuditPlan | None:
    accounts = [
        VerifierAccount(
            signer=each.key.key.address, anchor=each.anchor, audits=each.audits.key.address
        )
        for each in verifiers
    ]
    if not accounts:
        return None
    first, second = accounts
    return AuditPlan(verifiers=(first, second), windows=profile.AUDITS)


def _chain_time(rpc: Rpc) -> int:
    return whole(rpc.call("eth_getBlockByNumber", "latest", False)["timestamp"])


def _fund(
    rpc_url: str, deployment: Deployment, kept: KeptKey, tokens: TokenAmount, vault: TokenAmount
) -> None:
    """Register an account with tokens in its wallet, of them `vault` in the vault."""
    with Wallet(rpc_url, deployment, kept.key) as wallet:
        wallet.mint(tokens)
        wallet.register_account()
        wallet.deposit(vault)


def _fill_tables(
    rpc_url: str,
    deployment: Deployment,
    market: KeptKey,
    machines: tuple[tuple[DevnetMachine, ...], ...],
) -> tuple[dict[tuple[GpuClass, int], int], int]:
    """Products by (class, GPUs), and the market's number; the operator registers both."""
    _fund(rpc_url, deployment, market, profile.PARTY_VAULT, profile.PARTY_VAULT)
    with Wallet(rpc_url, deployment, market.key) as wallet:
        products = {
            (gpu_class, gpus): wallet.register_product(
                gpu_class=gpu_class,
                slice_gpus=gpus,
                min_bond=profile.MIN_BOND,
                penalty=profile.PENALTY,
                notice=profile.NOTICE_S,
                flags=ProductFlags.VERIFIED,
            )
            for gpu_class, gpus in profile.products_of(machines)
        }
        return products, wallet.register_market(profile.MARKET_FEE)


def _join(
    rpc_url: str,
    deployment: Deployment,
    node: PreparedNode,
    products: dict[tuple[GpuClass, int], int],
    expiry: int,
) -> None:
    """A provider joins: money, its node's key, its machines with their bonds, the binding."""
    _fund(rpc_url, deployment, node.wallet, profile.PARTY_VAULT, profile.PARTY_VAULT)
    with Wallet(rpc_url, deployment, node.wallet.key) as wallet:
        wallet.set_delegate(node.key.key, KeyRole.NODE, expiry)
        for machine in node.machines:
            product = products[machine.offer.gpu_class, machine.offer.gpus]
            wallet.add_machine(machine.index, profile.MACHINE_BOND, product)
    binding = NodeBinding(
        provider=node.wallet.key.address,
        node_key=node.key.key.address,
        peer=peer_of(node.key.key),
    )
    signed = state(binding, deployment.domain, node.wallet.key, nonce=1, expiry=expiry)
    node.binding_path.write_bytes(to_json(signed) + b"\n")


def peer_of(key: LocalKey) -> PeerId:
    """The libp2p peer that a node with this key is, without loading libp2p.

    An identity multihash of the public key's protobuf. Source: libp2p specs, peer-ids.
    """
    public = PrivateKey(key.secret).public_key.format(compressed=True)
    typed = bytes([8, 2, 18, len(public)]) + public  # field 1: Secp256k1, field 2: the key
    number, digits = int.from_bytes(bytes([0, len(typed)]) + typed, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        digits = _BASE58[digit] + digits
    return PeerId("1" + digits)  # the multihash's leading zero byte
