"""A wrong word on a daemon's command line is one line of text and exit code 2, no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DAEMONS = ("cloud-gpu-node", "cloud-gpu-market", "cloud-gpu-verifier")


@pytest.mark.parametrize("daemon", DAEMONS)
@pytest.mark.parametrize(("words", "said"), [(("run", "--bogus"), "--bogus"), (("fly",), "fly")])
def test_a_wrong_word_is_named_in_one_line(daemon: str, words: tuple[str, ...], said: str) -> None:
    command = [str(Path(sys.executable).with_name(daemon)), *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
