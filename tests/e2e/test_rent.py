"""A person rents on a devnet: looks, quotes, runs, pays for what was used."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cloud_gpu.cli.exits import ExitCode
from tests.support.person import Person

pytestmark = pytest.mark.timeout(180)

README_EXAMPLE = """
from cloud_gpu import Session

with Session(gpu_type="A100", count=2) as s:
    r = s.run("no-such-program 2> /dev/null || echo hi")
print(r.code, s.bill.settled, s.bill.gpus)
"""


def test_the_book_lists_real_prices_of_pretended_gpus(buyer: Person) -> None:
    listed = buyer.runs("ls", "--gpu", "A100", "--count", "2", "--json")
    assert listed.code == 0, listed.err
    (pair,) = listed.json["items"]
    assert pair["gpu_class"] == "A100-SXM4-40GB"
    assert pair["price"] == {"amount": "0.745", "unit": "token/GPU-hour"}
    assert pair["simulated"] is True
    assert pair["isolation"] == "process"


def test_a_quote_rounds_up_and_places_nothing(buyer: Person) -> None:
    quoted = buyer.runs("quote", "--gpu", "A100", "--count", "2", "--duration", "10m", "--json")
    assert quoted.code == 0, quoted.err
    # 0.745 * 2 GPUs * 600 s / 3600 s = 0.24833…
    assert quoted.json["cost_max"] == {"amount": "0.248334", "unit": "token"}
    assert quoted.json["fitting"] == 1


def test_a_provider_is_named_or_excluded(buyer: Person) -> None:
    sold: dict[tuple[str, int], list[str]] = {}
    for ask in buyer.runs("ls", "--sort", "price", "--json").json["items"]:
        sold.setdefault((ask["gpu_class"], ask["gpus"]), []).append(ask["provider"])
    gpu, count, cheap, dear = next(
        (*product, sellers[0], other)
        for product, sellers in sold.items()
        for other in sellers
        if other != sellers[0]
    )
    wanted = ("--gpu", gpu, "--count", str(count), "--duration", "10m", "--json")
    assert buyer.runs("quote", *wanted).json["provider"] == cheap
    for flag, named in (("--provider", dear), ("--exclude-provider", cheap)):
        ran = buyer.runs("run", *wanted, "--yes", flag, named, "--", "true")
        assert ran.code == 0, ran.err
        assert ran.json["lease"].startswith(dear)
    refused = buyer.runs("quote", *wanted, "--provider", "0x" + "11" * 20)
    assert refused.code == ExitCode.NO_MATCH
    assert refused.json["found"].startswith("--provider: an ask of 0x")


def test_a_command_runs_and_its_output_and_exit_code_are_the_callers(
    buyer: Person, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("from the buyer\n")
    command = ["sh", "-c", "cat words.txt; echo made > made.txt; echo oops >&2; exit 3"]
    rented = buyer.runs(
        *("run", "--gpu", "A100", "--count", "2", "--duration", "10m", "--yes"),
        *("--put", "words.txt", "--get", "made.txt", "--", *command),
        folder=tmp_path,
    )
    assert rented.code == 3, rented.err
    assert rented.out == "from the buyer\n"
    assert "oops\n" in rented.err
    assert (tmp_path / "made.txt").read_text() == "made\n"


def test_what_was_not_used_comes_back(buyer: Person) -> None:
    before = buyer.runs("wallet", "show", "--json").json["vault"]["amount"]
    ran = buyer.runs(
        *("run", "--gpu", "A100", "--count", "2", "--duration", "10m", "--yes", "--json"),
        *("--", "sh", "-c", "echo $((6 * 7))"),
    )
    assert ran.code == 0, ran.err
    assert ran.json["stdout"] == "42\n"
    assert ran.json["settled"] is True
    after = buyer.runs("wallet", "show", "--json").json["vault"]["amount"]
    spent = round(float(before) - float(after), 6)
    assert spent == float(ran.json["paid"]["amount"])
    assert 0 < spent < 0.05  # seconds of ten minutes that cost 0.248


SLEEP = ("run", "--gpu", "A100", "--count", "2", "--duration", "10m", "--yes", "--", "sleep", "300")


def until_it_sleeps(run: "subprocess.Popen[str]") -> None:
    assert run.stderr is not None
    for line in run.stderr:
        if line.startswith("running sleep"):
            return
    pytest.fail("the command did not start")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, ExitCode.INTERRUPTED),
        (signal.SIGTERM, ExitCode.TERMINATED),
        (signal.SIGHUP, ExitCode.HUNG_UP),
    ],
)
def test_an_ending_signal_ends_the_lease_and_returns_the_rest(
    buyer: Person, number: signal.Signals, code: int
) -> None:
    before = buyer.runs("wallet", "show", "--json").json["vault"]["amount"]
    with buyer.starts(*SLEEP) as run:
        until_it_sleeps(run)
        if number is signal.SIGHUP:  # a terminal that closes takes its reader along
            assert run.stderr is not None
            run.stderr.close()
            run.stderr = None
        run.send_signal(number)
        _, err = run.communicate(timeout=60)
    assert run.returncode == code, err
    assert folders_of_clients(buyer) == []
    after = buyer.runs("wallet", "show", "--json").json["vault"]["amount"]
    assert 0 < float(before) - float(after) < 0.05  # of 0.248 that were locked


def folders_of_clients(buyer: Person) -> list[Path]:
    return list(buyer.temporary.glob("cloud-gpu-client-*"))


def test_the_readme_example_runs_as_it_stands(buyer: Person) -> None:
    ran = buyer.runs_program([sys.executable, "-c", README_EXAMPLE])
    assert ran.code == 0, ran.err
    assert ran.out == "hi\n0 True 2\n"


def test_a_script_may_lie_beside_files_named_like_our_packages(
    buyer: Person, tmp_path: Path
) -> None:
    for name in ("protocol", "node", "market", "verifier"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong file was imported')\n")
    (tmp_path / "rent.py").write_text(README_EXAMPLE)
    ran = buyer.runs_program([sys.executable, "rent.py"], folder=tmp_path)
    assert ran.code == 0, ran.err
    assert ran.out == "hi\n0 True 2\n"


def test_doctor_finds_nothing_wrong(buyer: Person) -> None:
    looked = buyer.runs("doctor", "--json")
    assert looked.code == 0, looked.err
    assert looked.json["ok"] is True
    assert [check["check"] for check in looked.json["checks"]] == [
        "settings",
        "price limit",
        "wallet key",
        "chain",
        "vault",
        "market",
    ]


def test_what_a_killed_client_left_is_removed_by_the_next_one(buyer: Person) -> None:
    """The last one here: the lease of the killed client stays open for a while."""
    with buyer.starts(*SLEEP) as run:
        until_it_sleeps(run)
        (left,) = folders_of_clients(buyer)
        assert buyer.runs("ls").code == 0
        assert left.is_dir()  # its client lives
        run.kill()
        run.communicate()
    assert buyer.runs("ls").code == 0
    assert folders_of_clients(buyer) == []
