"""Keys at rest: whole or not there, private or refused, and every error says what to do."""

import json
import resource
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from eth_account import Account

from cloud_gpu.protocol.adapters.keystore import (
    DEVNET_SCRYPT_N,
    load_key,
    new_password,
    new_secret,
    write_keystore,
    write_password_file,
    write_secret_file,
)
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.identity import LocalKey

SECRET = b"\x07" * 32


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A keystore and its password file."""
    keystore, password = tmp_path / "keys" / "wallet.json", tmp_path / "keys" / "password"
    write_keystore(keystore, SECRET, "correct horse", work=DEVNET_SCRYPT_N)
    write_password_file(password, "correct horse")
    return keystore, password


@pytest.mark.parametrize(("kdf", "work"), [("scrypt", DEVNET_SCRYPT_N), ("pbkdf2", 1_000)])
def test_a_key_comes_back_and_other_wallets_can_read_it(
    tmp_path: Path, kdf: str, work: int
) -> None:
    secret, password = new_secret(), new_password()
    write_keystore(tmp_path / "k", secret, password, kdf=kdf, work=work)  # type: ignore[arg-type]
    write_password_file(tmp_path / "p", password)
    assert load_key(tmp_path / "k", tmp_path / "p").secret == secret
    held = json.loads((tmp_path / "k").read_text())
    assert bytes(Account.decrypt(held, password)) == secret
    assert "0x" + held["address"].lower() == str(LocalKey(secret).address).lower()
    assert secret.hex() not in (tmp_path / "k").read_text()


def test_a_keystore_of_another_wallet_is_read(tmp_path: Path) -> None:
    theirs = Account.encrypt(SECRET, "word", kdf="pbkdf2", iterations=1_000)
    write_secret_file(tmp_path / "k", json.dumps(theirs).encode())
    write_password_file(tmp_path / "p", "word")
    assert load_key(tmp_path / "k", tmp_path / "p").secret == SECRET


def test_files_are_their_owners_alone(files: tuple[Path, Path]) -> None:
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700
    assert {path.name for path in files[0].parent.iterdir()} == {"wallet.json", "password"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o777])
@pytest.mark.parametrize("which", [0, 1], ids=["keystore", "password_file"])
def test_a_file_open_to_others_is_refused(files: tuple[Path, Path], which: int, mode: int) -> None:
    files[which].chmod(mode)
    with pytest.raises(SettingsInvalid, match=rf"mode {mode:04o}.*needed 0600.*chmod 600"):
        load_key(*files)


def test_a_wrong_password_names_both_files(files: tuple[Path, Path], tmp_path: Path) -> None:
    write_password_file(tmp_path / "other", "wrong horse")
    with pytest.raises(SettingsInvalid) as caught:
        load_key(files[0], tmp_path / "other")
    assert str(files[0]) in str(caught.value)
    assert str(tmp_path / "other") in str(caught.value)
    assert "wrong horse" not in str(caught.value)


def test_a_missing_file_is_named(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match=r"keystore .*nowhere: there is no such file"):
        load_key(tmp_path / "nowhere", files[1])
    with pytest.raises(SettingsInvalid, match=r"password_file .*nowhere: there is no such file"):
        load_key(files[0], tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"[]",
        b'{"version": 4}',
        b'{"version": 3}',
        b'{"version": 3, "crypto": 7}',
        b'{"version": 3, "crypto": {"kdf": "argon9", "kdfparams": {}}}',
        b'{"version": 3, "crypto": {"kdf": "scrypt", "kdfparams": {"n": "x"}}}',
        b'{"version": 3, "crypto": {"kdf": "pbkdf2", "kdfparams": {"prf": "hmac-md5"}}}',
        b'{"version": 3, "crypto": {"kdf": "scrypt", "kdfparams": {"n": 3, "r": 8, "p": 1,'
        b' "dklen": 32, "salt": "00"}, "ciphertext": "00", "mac": "00"}}',
    ],
)
def test_what_is_no_keystore_is_refused(
    files: tuple[Path, Path], tmp_path: Path, content: bytes
) -> None:
    write_secret_file(tmp_path / "broken", content)
    with pytest.raises(SettingsInvalid, match=r"not a Web3 Secret Storage file"):
        load_key(tmp_path / "broken", files[1])


def test_a_folder_in_the_place_of_a_file_is_refused(files: tuple[Path, Path]) -> None:
    with pytest.raises(SettingsInvalid, match="cannot be read"):
        load_key(files[0].parent, files[1])


def test_a_key_is_never_overwritten(files: tuple[Path, Path]) -> None:
    before = files[0].read_bytes()
    with pytest.raises(SettingsInvalid, match="a key is never overwritten"):
        write_keystore(files[0], b"\x08" * 32, "other", work=DEVNET_SCRYPT_N)
    assert files[0].read_bytes() == before
    assert {path.name for path in files[0].parent.iterdir()} == {"wallet.json", "password"}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SettingsInvalid, match=r"file/wallet.json: cannot be written"):
        write_keystore(tmp_path / "file" / "wallet.json", SECRET, "word", work=DEVNET_SCRYPT_N)


@contextmanager
def no_room_for_files() -> Iterator[None]:
    """Writing fails as on a full disk, at the first byte, in this process alone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    with no_room_for_files(), pytest.raises(SettingsInvalid, match="Nothing was left behind"):
        write_keystore(tmp_path / "wallet.json", SECRET, "word", work=DEVNET_SCRYPT_N)
    assert list(tmp_path.iterdir()) == []


def test_secrets_and_passwords_differ() -> None:
    assert len({new_secret() for _ in range(10)}) == 10
    assert len({new_password() for _ in range(10)}) == 10
