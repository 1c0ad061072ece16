"""A person at a machine of their own: the installed `cloud-gpu`, an empty home, no settings."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMAND = Path(sys.executable).with_name("cloud-gpu")


def hear_interrupts() -> None:
    """In a child: whoever runs the tests in the background may have made it deaf to signals."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@dataclass
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The last line of its result."""
        return json.loads(self.out.splitlines()[-1])


@dataclass
class Person:
    """Whose config and data folders lie below `home`."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def everything(self) -> dict[str, str]:
        """The environment of their commands. The cache, where Anvil lies, is the machine's."""
        folders = {
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_DATA_HOME": str(self.home / "share"),
            "TMPDIR": str(self.temporary),
        }
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CLOUD_GPU_")}
        return {**kept, **folders, **self.environ}

    @property
    def temporary(self) -> Path:
        """Where their programs put what should not last."""
        path = self.home / "tmp"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def runs(self, *words: str, within_s: float = 120, folder: Path | None = None) -> Answer:
        """`cloud-gpu words…`"""
        return self.runs_program([str(COMMAND), *words], within_s=within_s, folder=folder)

    def runs_program(
        self, words: list[str], *, within_s: float = 120, folder: Path | None = None
    ) -> Answer:
        """Any program, from `folder`."""
        done = subprocess.run(
            words,
            cwd=folder or self.temporary,
            env=self.everything,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
        return Answer(code=done.returncode, out=done.stdout, err=done.stderr)

    @contextmanager
    def starts(self, *words: str) -> "Iterator[subprocess.Popen[str]]":
        """`cloud-gpu words…` in the background; ended with the block, whatever the test found."""
        with subprocess.Popen(
            [str(COMMAND), *words],
            cwd=self.temporary,
            env=self.everything,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hear_interrupts,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
