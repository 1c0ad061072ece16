"""Deploying and verifying for the command line, with the settings' chain and key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_gpu.protocol.adapters import deployer
from cloud_gpu.protocol.adapters.deployment_check import check_deployment
from cloud_gpu.protocol.adapters.deployment_files import read_deployment
from cloud_gpu.protocol.adapters.deployment_plan import PlannedContract
from cloud_gpu.protocol.adapters.evm_rpc import Rpc
from cloud_gpu.protocol.adapters.keystore import load_key
from cloud_gpu.protocol.deployment import Deployment, DeploymentTerms
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.values import Address
from cloud_gpu.settings import Settings


@dataclass(frozen=True, slots=True)
class Preview:
    """See `cloud_gpu.cli.outside.DeploymentPreview`."""

    chain_id: int
    deployer: Address
    steps: Sequence[PlannedContract]
    fee_most: int


class ContractsDesk:
    """See `cloud_gpu.cli.outside.ContractsDesk`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def preview(self, terms: DeploymentTerms) -> Preview:
        """Sends nothing. Raises SettingsInvalid, ChainUnavailable."""
        key = self._key()
        with Rpc(self._settings.need("rpc")) as rpc:
            planned, fees = deployer.plan(rpc, key.address, terms)
        return Preview(
            chain_id=planned.chain_id,
            deployer=planned.deployer,
            steps=planned.contracts,
            fee_most=fees.most,
        )

    def deploy(
        self, terms: DeploymentTerms, file: Path, say: Callable[[str], None], within_s: float
    ) -> Deployment:
        """See `deployer.deploy`."""
        rpc = self._settings.need("rpc")
        return deployer.deploy(rpc, self._key(), terms, path=file, say=say, timeout_s=within_s)

    def verify(self, file: Path) -> Sequence[str]:
        """See `check_deployment`."""
        deployment = read_deployment(file)
        with Rpc(self._settings.need("rpc")) as rpc:
            return check_deployment(rpc, deployment)

    def _key(self) -> LocalKey:
        need = self._settings.need
        return load_key(Path(need("keystore")), Path(need("password_file")))
