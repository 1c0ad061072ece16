"""Accounts of a test chain that use a market from the command line."""

from pathlib import Path

from cloud_gpu.protocol.adapters.deployment_files import write_deployment
from cloud_gpu.protocol.adapters.keystore import (
    DEVNET_SCRYPT_N,
    write_keystore,
    write_password_file,
)
from cloud_gpu.protocol.identity import LocalKey
from tests.support.anvil import Deployed
from tests.support.person import Person


def person_with(key: LocalKey, deployed: Deployed, market: str, home: Path) -> Person:
    """Somebody whose settings name this wallet, chain and market."""
    home.mkdir(parents=True)
    write_deployment(home / "deployment.json", deployed.deployment)
    write_keystore(home / "wallet.json", key.secret, "secret", work=DEVNET_SCRYPT_N)
    write_password_file(home / "wallet.password", "secret")
    return Person(
        home,
        {
            "CLOUD_GPU_MARKET": market,
            "CLOUD_GPU_RPC": deployed.rpc_url,
            "CLOUD_GPU_DEPLOYMENT": str(home / "deployment.json"),
            "CLOUD_GPU_KEYSTORE": str(home / "wallet.json"),
            "CLOUD_GPU_PASSWORD_FILE": str(home / "wallet.password"),
            "CLOUD_GPU_OUTPUT": "json",
        },
    )
