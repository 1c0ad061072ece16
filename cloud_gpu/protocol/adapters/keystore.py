"""Keys at rest: encrypted keystores (Web3 Secret Storage, version 3), readable by their owner only.

A keystore is written whole or not at all, mode 0600 in a folder of mode 0700; one that others may
read is refused. The password lies in a file of its own. Every error is a `SettingsInvalid` that
names the file, the rule and what to do.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.identity import LocalKey

SCRYPT_N: Final = 2**18
"""What wallets use: about a second and 256 MB to open."""

DEVNET_SCRYPT_N: Final = 2**12
"""For play money: about 15 ms, so that a demo of many processes starts at once."""

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def new_secret() -> bytes:
    """32 random bytes that make a key."""
    while True:
        secret = secrets.token_bytes(32)
        with suppress(ValueError):  # one in 2^128 is no key of the curve
            LocalKey(secret)
            return secret


def new_password() -> str:
    """A password for a file that no person types: 32 hex digits."""
    return secrets.token_hex(16)


def write_keystore(
    path: Path,
    secret: bytes,
    password: str,
    *,
    kdf: Literal["scrypt", "pbkdf2"] = "scrypt",
    work: int = SCRYPT_N,
) -> None:
    """Encrypt a key into a new file; `work` is scrypt's N or PBKDF2's iterations.

    Raises SettingsInvalid: the file exists, the folder cannot be written, the disk is full. Then
    nothing was left behind.
    """
    from eth_keyfile.keyfile import create_keyfile_json  # 0.4 s that most callers spare

    keyfile = create_keyfile_json(secret, password.encode(), kdf=kdf, iterations=work)
    write_secret_file(path, json.dumps(keyfile).encode() + b"\n")


def write_password_file(path: Path, password: str) -> None:
    """Keep a password beside a keystore, mode 0600. Raises SettingsInvalid as `write_keystore`."""
    write_secret_file(path, password.encode() + b"\n")


def load_key(keystore: Path, password_file: Path) -> LocalKey:
    """The key in a keystore.

    Raises SettingsInvalid: a file is missing, open to others, no keystore, or the password is
    wrong.
    """
    keyfile = _parsed(keystore)
    password = _private_bytes(password_file, "password_file").rstrip(b"\r\n")
    from eth_keyfile.keyfile import decode_keyfile_json  # as above

    try:
        secret: bytes = decode_keyfile_json(keyfile, password)
    except ValueError as error:
        if "MAC mismatch" in str(error):
            raise SettingsInvalid(
                f"keystore {keystore}: the password in {password_file} does not open it; name the"
                " password file that was written with it"
            ) from error
        raise _no_keystore(keystore, str(error)) from error
    except (KeyError, TypeError, NotImplementedError) as error:
        raise _no_keystore(keystore, f"{type(error).__name__}: {error}") from error
    return LocalKey(secret)


def write_secret_file(path: Path, content: bytes) -> None:
    """Write a new file of mode 0600, whole or not at all; its folder is made with mode 0700.

    Raises SettingsInvalid.
    """
    scratch: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, scratch = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # 0600
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(scratch, path)  # unlike a rename, never replaces a key that is there
    except OSError as error:
        if scratch is not None and isinstance(error, FileExistsError):
            raise SettingsInvalid(
                f"{path}: exists already, and a key is never overwritten; move it away or choose"
                " another path"
            ) from error
        raise SettingsInvalid(
            f"{path}: cannot be written ({error.strerror or error}); its folder must belong to"
            " this user and its disk have room. Nothing was left behind"
        ) from error
    finally:
        if scratch is not None:
            Path(scratch).unlink(missing_ok=True)


def _parsed(keystore: Path) -> dict[str, Any]:
    raw = _private_bytes(keystore, "keystore")
    try:
        found = json.loads(raw)
    except ValueError as error:
        raise _no_keystore(keystore, "it is no JSON") from error
    if not isinstance(found, dict) or found.get("version") != 3:
        raise _no_keystore(keystore, "it has no version 3")
    return found


def _private_bytes(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & _OTHERS:
                raise SettingsInvalid(
                    f"{what} {path}: mode {stat.S_IMODE(mode):04o} lets others at this machine"
                    f" have it, needed 0600; run `chmod 600 {path}`"
                )
            return file.read()
    except FileNotFoundError as error:
        raise SettingsInvalid(
            f"{what} {path}: there is no such file; correct the setting, or make a key first"
        ) from error
    except OSError as error:
        raise SettingsInvalid(
            f"{what} {path}: cannot be read ({error.strerror or error}); it must be a file that"
            " belongs to this user"
        ) from error


def _no_keystore(path: Path, why: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"keystore {path}: not a Web3 Secret Storage file of version 3 ({why}); restore it from a"
        " backup, or make a new key"
    )
