"""A verifier as its own process: everything that it reads at its start, and its ready line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from cloud_gpu.protocol.adapters.deployment_files import write_deployment
from cloud_gpu.protocol.adapters.keystore import (
    DEVNET_SCRYPT_N,
    write_keystore,
    write_password_file,
)
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.identity import LocalKey

COMMAND = (sys.executable, "-m", "verifier.main")


@dataclass
class VerifierDaemon:
    """A running `cloud-gpu-verifier run`."""

    process: subprocess.Popen[bytes]
    ready: dict[str, object]
    log: Path

    @property
    def addresses(self) -> tuple[str, ...]:
        found = self.ready["addresses"]
        assert isinstance(found, list)
        return tuple(found)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=60)

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=60)


def verifier_config(
    folder: Path,
    deployment: Deployment,
    rpc: str,
    key: LocalKey,
    audits: LocalKey,
    /,
    **changes: object,
) -> Path:
    """Write keys, deployment and settings; the path of the settings file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_deployment(folder / "deployment.json", deployment)
    write_password_file(folder / "password", "secret")
    for name, each in (("verifier", key), ("audits", audits)):
        write_keystore(folder / f"{name}.json", each.secret, "secret", work=DEVNET_SCRYPT_N)
    table: dict[str, object] = {
        "deployment": str(folder / "deployment.json"),
        "rpc": rpc,
        "keystore": str(folder / "verifier.json"),
        "password_file": str(folder / "password"),
        "preimages_file": str(folder / "preimages"),
        "preimages": 100,
        "data_folder": str(folder / "data"),
        "market": "http://127.0.0.1:9",
        "audit_keystore": str(folder / "audits.json"),
        "audit_password_file": str(folder / "password"),
        "max_price": "5.00",
        "listen_overlay": "/ip4/127.0.0.1/tcp/0",
    }
    path = folder / "verifier.toml"
    path.write_text(tomli_w.dumps({**table, **changes}))
    return path


def said(*words: str) -> subprocess.CompletedProcess[str]:
    """What `cloud-gpu-verifier words…` says."""
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=60, check=False
    )


def start_verifier(config: Path) -> VerifierDaemon:
    """Start the daemon and wait for its ready line."""
    log = config.with_suffix(".log")
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [*COMMAND, "run", "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.stdout.close()
    if not line:
        code = process.wait(timeout=10)
        raise AssertionError(f"the verifier ended with {code}:\n{log.read_text()}")
    return VerifierDaemon(process=process, ready=json.loads(line), log=log)
