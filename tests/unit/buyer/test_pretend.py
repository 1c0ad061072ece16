"""Sessions in the pretend marketplace, in real time: what users' own tests are made of."""

import asyncio
import inspect
from pathlib import Path

import pytest

from cloud_gpu import NoMatch, RunError, Session
from cloud_gpu.testing import Pretended, Said, pretend

COMMANDS = {
    "nvidia-smi -L": Said(stdout="GPU 0: A100\n"),
    "train": Said(stdout="loss 0.1\n", files={"out/model.pt": b"weights"}),
}


def test_a_program_can_be_tested_without_a_market(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pretend(COMMANDS) as world:
        with world.session("A100", 2) as s:
            assert s.run("nvidia-smi -L").stdout == "GPU 0: A100\n"
            s.run("train", stream=False)
            s.get("out/", tmp_path)
            job = s.popen("train")
            assert "".join(job.logs()) == "loss 0.1\n"
            with pytest.raises(RunError, match="not found"):
                s.run("rm -rf /", stream=False)
        assert s.bill is not None
        assert s.bill.settled
        with pytest.raises(NoMatch), world.session("B200"):
            pass
    assert (tmp_path / "model.pt").read_bytes() == b"weights"
    assert capsys.readouterr().out == "GPU 0: A100\n"


def test_asyncio_programs_can_be_tested_too() -> None:
    async def main(world: Pretended) -> str:
        async with world.async_session("A100", 2) as s:
            return (await s.run("train", stream=False)).stdout

    with pretend(COMMANDS) as world:
        assert asyncio.run(main(world)) == "loss 0.1\n"


def test_a_session_that_is_not_open_says_so() -> None:
    with pretend() as world:
        s = world.session("A100", 2)
        assert s.bill is None
        with pytest.raises(RuntimeError, match="with"):
            s.run("x")


def test_words_are_checked_when_they_are_said() -> None:
    with pretend() as world, pytest.raises(ValueError, match="timeout"):
        world.session("A100", timeout="soon")


def test_a_bill_reads_as_a_sentence() -> None:
    said: list[str] = []
    with pretend(COMMANDS) as world, world.session("A100", 2, say=said.append) as s:
        s.run("train", stream=False)
        assert "tokens so far" in str(s.cost())
    assert "2x A100-SXM4-80GB" in said[-1]
    assert "(stopped)" in said[-1]


def test_the_real_session_takes_the_same_words() -> None:
    with pretend() as world:
        kind = type(world.session("A100"))
        assert inspect.signature(kind) == inspect.signature(Session)


def test_a_session_names_a_provider_or_excludes_some() -> None:
    one, two = "0x" + "11" * 20, "0x" + "22" * 20
    with pretend() as world:
        wanted = world.session("A100", 2, provider=one, exclude_providers=(two,)).request
        again = world.session("A100", 2, exclude_providers=wanted.excluded_providers).request
    assert str(wanted.provider) == one
    assert [str(each) for each in again.excluded_providers] == [two]
    with pretend() as world, pytest.raises(ValueError, match="provider"):
        world.session("A100", provider="bob")
