"""`cloud-gpu demo`: the whole line on a fresh devnet, and a balance sheet that must come out even.

A buyer rents two GPUs by bid and trains a network on real images; another provider dies before
it is ready, and the money comes back. Everything shown is read from the chain afterwards.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cloud_gpu.accounting import Books, explain, lease_lives, market_accounts
from cloud_gpu.cli.demo_story import FinishedJob, Story
from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.protocol.errors import SettingsInvalid, StartTimeout

if TYPE_CHECKING:
    from cloud_gpu.cli.outside import FreshDevnet
    from cloud_gpu.settings import Settings

_DATA: Final = ("scikit-learn", "sklearn/datasets/data/digits.csv.gz")
"""A distribution, and a file of it: read without importing the package, which takes seconds."""
_TRAINING: Final = "cloud_gpu.cli.demo_training"
_EPOCHS: Final = 120
_RENTED: Final = ("A100", 2)
_LOST: Final = ("A100-PCIE", 1)
"""Put up by one provider alone, another one than the first."""


def demo(
    run: Invocation,
    seed: Annotated[int, typer.Option(min=0, help="Of the training run.")] = 1,
) -> int:
    """Trade, job, payment, refund and balance sheet on a fresh devnet."""
    began = time.monotonic()
    data = _data_file()
    with run.outside.fresh_devnet(nodes=2, say=run.say.progress) as devnet:
        settings = _settings_of(run, devnet)
        first = devnet.newest_block()
        before = devnet.books(first)
        job = _train(run, settings, data, seed)
        _lose(run, settings, devnet)
        last = devnet.newest_block()
        story = _told(devnet, [job], (first, last), before, time.monotonic() - began)
    run.say.result("demo", story.payload(), story.tables)
    for problem in story.problems:
        run.say.progress(f"problem: {problem}")
    return ExitCode.OUR_BUG if story.problems else ExitCode.DONE


def _data_file() -> Path:
    """The digits as scikit-learn ships them. Raises SettingsInvalid where it is not installed."""
    distribution, name = _DATA
    try:
        path = Path(str(metadata.distribution(distribution).locate_file(name)))
    except metadata.PackageNotFoundError as error:
        raise SettingsInvalid(
            f"the demo's data set: found no {distribution}, needed the package that ships it;"
            " `pip install 'cloud-gpu[demo]'`"
        ) from error
    if not path.is_file():
        raise SettingsInvalid(f"the demo's data set: {distribution} is here without {name}")
    return path


def _settings_of(run: Invocation, devnet: FreshDevnet) -> Settings:
    """The devnet's, whatever the person's own settings say."""
    view = devnet.view
    return run.outside.settings(
        {
            "market": view.market,
            "rpc": view.rpc,
            "deployment": view.deployment,
            "keystore": view.keystore,
            "password_file": view.password_file,
            "max_price": view.max_price,
        }
    )


def _train(run: Invocation, settings: Settings, data: Path, seed: int) -> FinishedJob:
    """Rent by bid, run the training in the lease, fetch what it wrote, settle."""
    gpu_type, count = _RENTED
    found = find_spec(_TRAINING)
    assert found is not None, _TRAINING
    assert found.origin is not None, found
    run.say.progress(f"renting {count} x {gpu_type}")
    with tempfile.TemporaryDirectory(prefix="cloud-gpu-demo-") as scratch:
        script = shutil.copyfile(found.origin, Path(scratch, "train.py"))
        words = {"gpu_type": gpu_type, "count": count, "timeout": "10m"}
        with run.outside.session(settings, run.say.progress, **words) as session:
            session.put(script)
            session.put(data)
            command = ["python", "train.py", data.name, *_arguments(seed)]
            run.say.progress("running " + " ".join(command))
            with redirect_stdout(sys.stderr):  # what a job prints is progress here
                result = session.run(command, check=False, stream=True)
            (written,) = session.get("out/result.json", Path(scratch, "result.json"))
            reached = json.loads(written.read_text())
            run.say.progress("settling")
    return FinishedJob(
        command=" ".join(command),
        exit_code=result.code,
        seconds=result.duration_s,
        cost=result.cost,
        result=reached,
    )


def _arguments(seed: int) -> list[str]:
    return ["--epochs", str(_EPOCHS), "--seed", str(seed)]


def _lose(run: Invocation, settings: Settings, devnet: FreshDevnet) -> None:
    """Rent from a provider that has just died: the lease never begins, the money comes back."""
    gpu_type, count = _LOST
    run.say.progress("a provider's daemon is killed; its ask still stands")
    devnet.kill_node(0)
    run.say.progress(f"renting {count} x {gpu_type} from it")
    words = {"gpu_type": gpu_type, "count": count, "timeout": "10m"}
    try:
        with run.outside.session(settings, run.say.progress, **words):
            run.say.progress("it began after all")
    except StartTimeout as error:
        run.say.progress(str(error))


def _told(
    devnet: FreshDevnet,
    jobs: Sequence[FinishedJob],
    blocks: tuple[int, int],
    before: Books,
    seconds: float,
) -> Story:
    first, last = blocks
    events = devnet.events(last)
    lives = lease_lives(events)
    after = devnet.books(last)
    return Story(
        jobs=jobs,
        lives=lives,
        changes=explain(before, after, lives, market_accounts(events)),
        names=devnet.names,
        books=after,
        gas=devnet.gas(first + 1, last),
        stand_ins=devnet.view.stand_ins,
        seconds=seconds,
    )
