"""The port `Runtime`: what a job gets and what it returns, by digest and never by a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_gpu.protocol.job import FileRef, JobOutcome
from tests.support.runtimes import Bench, bench


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("out",), ["out/a.txt", "out/deep/b.bin"]),
        (("*.txt",), ["c.txt"]),
        (("**/*.txt",), ["c.txt", "out/a.txt"]),
        (("out/deep/b.bin", "c.txt"), ["c.txt", "out/deep/b.bin"]),
        (("o?t/*",), ["out/a.txt", "out/deep/b.bin"]),
        ((), ["c.txt", "out/a.txt", "out/deep/b.bin"]),
    ],
)
async def test_outputs_are_chosen_by_path_folder_or_pattern(
    tmp_path: Path, patterns: tuple[str, ...], expected: list[str]
) -> None:
    async with bench("process", tmp_path) as runtime:
        spec = runtime.spec(
            "sh",
            "-c",
            "mkdir -p out/deep; touch out/a.txt out/deep/b.bin c.txt",
            outputs=patterns,
        )
        exited = await runtime.run(spec)
        assert [file.path for file in exited.outputs] == expected
        assert exited.detail == ""


async def test_an_output_that_is_not_there_is_said(runtime: Bench) -> None:
    exited = await runtime.run(runtime.spec("true", outputs=("model.pt",)))
    assert exited.outputs == ()
    assert "model.pt" in exited.detail


async def test_no_link_leads_out_of_the_jobs_folder(runtime: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("the provider's")
    spec = runtime.spec(
        "sh",
        "-c",
        f"ln -s {secret}/key a; ln -s {secret} b; ln -s ../../../../.. c; mkfifo d; mkdir e;"
        f" ln -s {secret} e/f; ln -s /etc/passwd g; echo mine > h; true",
        outputs=("a", "b", "b/key", "c", "d", "e", "g", "h", "**"),
    )
    exited = await runtime.run(spec)
    assert [file.path for file in exited.outputs] == ["h"]


async def test_names_that_no_protocol_carries_are_left_out_and_said(runtime: Bench) -> None:
    spec = runtime.python(
        r"open(b'\xff\xfe', 'w'); open('back\\slash', 'w'); open('fine', 'w').write('1')"
    )
    exited = await runtime.run(spec)
    assert [file.path for file in exited.outputs] == ["fine"]
    assert "no name that a job may return" in exited.detail


async def test_an_input_that_was_not_pushed_is_said(runtime: Bench) -> None:
    missing = FileRef(path="a", sha256="0" * 64, size=1)
    exited = await runtime.run(runtime.spec("true", inputs=(missing,)))
    assert exited.outcome is JobOutcome.FAILED_TO_START
    assert "0" * 64 in exited.detail


async def test_an_input_of_another_size_is_said(runtime: Bench) -> None:
    wrong = FileRef(path="a", sha256=runtime.store.put_bytes(b"abc"), size=1)
    exited = await runtime.run(runtime.spec("true", inputs=(wrong,)))
    assert exited.outcome is JobOutcome.FAILED_TO_START


async def test_a_job_cannot_change_what_the_store_holds(runtime: Bench) -> None:
    digest = runtime.store.put_bytes(b"input")
    await runtime.run(
        runtime.python("open('a', 'r+').write('XXXXX')", files={"a": b"input"}, outputs=("a",))
    )
    assert runtime.store.path_of(digest).read_bytes() == b"input"


async def test_a_result_survives_a_full_store(tmp_path: Path) -> None:
    async with bench("process", tmp_path) as runtime:
        runtime.store.bytes_max = runtime.store.bytes_used + 10
        exited = await runtime.run(runtime.python("open('big', 'wb').write(bytes(1000)); print(1)"))
        assert exited.outcome is JobOutcome.EXITED
        assert exited.outputs == ()
        assert "does not fit" in exited.detail
