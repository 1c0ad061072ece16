"""The settings file: everything is read once, exactly, and what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli_w

from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.orders import AskFlags
from cloud_gpu.protocol.units import BasisPoints, Price
from cloud_gpu.protocol.values import Address
from node.adapters.files import read_settings
from node.settings import NodeSettings, RuntimeChoice, parse_settings

ADDRESS = "0x" + "11" * 20
MACHINE = {
    "index": 3,
    "gpu_class": "A100-SXM4-80GB",
    "gpus": 2,
    "price": "1.20",
    "simulated": True,
    "gpu_memory_mib": 81_920,
    "max_duration": "2h",
}
TABLE: dict[str, object] = {
    "deployment": "d.json",
    "rpc": "http://127.0.0.1:8545",
    "keystore": "k.json",
    "password_file": "p",
    "binding": "b.json",
    "data_folder": "data",
    "provider": ADDRESS,
    "matcher": "0x" + "22" * 20,
    "bootstrap": ["/ip4/127.0.0.1/tcp/1/p2p/a"],
    "machines": [MACHINE],
}


def read(environment: dict[str, str] | None = None, **changes: object) -> NodeSettings:
    table = {name: value for name, value in {**TABLE, **changes}.items() if value is not None}
    return parse_settings(tomli_w.dumps(table), environment or {})


def test_human_words_become_units_once() -> None:
    settings = read()
    policy = settings.policies()[3]
    assert policy.price == Price(1_200_000)
    assert (policy.min_duration, policy.max_duration) == (10, 7_200)
    assert policy.max_fee == BasisPoints(500)
    assert settings.runtime is RuntimeChoice.AUTO
    assert settings.stand_ins == ("simulated GPUs",)


def test_group_buys_may_have_machines_where_the_owner_says_so() -> None:
    module = Address(b"\x1f" * 20)
    assert read().policies(module)[3].matchers == (read().matcher,)
    serving = read(group_buys=True)
    assert serving.policies(module)[3].matchers == (serving.matcher, module)
    assert serving.policies()[3].matchers == (serving.matcher,), "no such contract"


def test_a_machine_that_may_be_interrupted_says_so_in_its_asks() -> None:
    settings = read(machines=[{**MACHINE, "interruptible": True, "verified": True, "fabric": "a"}])
    assert settings.policies()[3].flags == AskFlags.INTERRUPTIBLE | AskFlags.VERIFIED
    assert settings.machines[0].fabric == "a"


def test_the_environment_overrides_the_file_and_strange_variables_are_ignored() -> None:
    settings = read(
        {
            "CLOUD_GPU_RPC": "http://127.0.0.1:1",
            "CLOUD_GPU_ASK_INTERVAL_S": "7",
            "CLOUD_GPU_BOOTSTRAP": "a,b",
            "CLOUD_GPU_END_JOBS_ON_STOP": "true",
            "CLOUD_GPU_JOB_ID": "a job's own",
            "CLOUD_GPU_MACHINES": "no",
        }
    )
    assert settings.rpc == "http://127.0.0.1:1"
    assert (settings.ask_interval_s, settings.end_jobs_on_stop) == (7, True)
    assert settings.bootstrap == ("a", "b")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"nonsense": 1}, "nonsense is no setting"),
        ({"rpc": None}, "rpc is missing"),
        ({"rpc": 5}, "rpc: a text is needed"),
        ({"provider": "0x12"}, "provider: Address"),
        ({"ask_interval_s": 0}, "ask_interval_s: a whole number above 0"),
        ({"ask_interval_s": "soon"}, "ask_interval_s: a whole number"),
        ({"bootstrap": 5}, "bootstrap: a list of texts"),
        ({"runtime": "lxc"}, "runtime: 'lxc'"),
        ({"log_level": "loud"}, "log_level is"),
        ({"machines": []}, "at least one"),
        ({"machines": 5}, r"\[\[machines\]\] tables"),
        ({"machines": [MACHINE, MACHINE]}, "an index is named twice"),
        ({"machines": [{**MACHINE, "speed": 1}]}, r"machines\[0\].speed is no setting"),
        ({"machines": [{**MACHINE, "price": "1.2345"}]}, r"machines\[0\].price: a price has"),
        ({"machines": [{**MACHINE, "price": "0"}]}, "a free lease"),
        ({"machines": [{**MACHINE, "price": 1.2}]}, r"machines\[0\].price: a text"),
        ({"machines": [{**MACHINE, "simulated": "maybe"}]}, "true or false"),
        ({"machines": [{**MACHINE, "gpu_memory_mib": 0}]}, "gpu_memory_mib is needed"),
        ({"machines": [{**MACHINE, "uuids": ["a"]}]}, "uuids names 1 GPUs, gpus says 2"),
        ({"machines": [{**MACHINE, "max_duration": "soon"}]}, r"machines\[0\].max_duration: a dur"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, object], named: str) -> None:
    with pytest.raises(SettingsInvalid, match=named):
        read(None, **changes)


def test_a_file_that_is_no_toml_or_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="no TOML"):
        parse_settings("a = = 1", {})
    with pytest.raises(SettingsInvalid, match="cannot be read"):
        read_settings(tmp_path / "none.toml", {})


def test_a_fault_on_purpose_is_for_simulated_machines_and_says_so() -> None:
    assert "wrong-results" in read(fault="wrong-results").stand_ins[-1]
    real = {"index": 0, "gpu_class": "A100-SXM4-80GB", "price": "1.20"}
    with pytest.raises(SettingsInvalid, match="fault: wrong-results is for simulated machines"):
        read(fault="wrong-results", machines=[MACHINE, real])


@pytest.mark.parametrize(
    ("machine", "threshold", "named"),
    [
        ({"interruptible": True}, 8_000, "firm_price"),
        ({"interruptible": True, "firm_price": "1.50"}, 0, "firm_price"),
        ({"firm_price": "1.50"}, 8_000, "firm_price"),
        ({"interruptible": True, "firm_price": "1.10"}, 8_000, "firm_price"),
        ({}, 10_001, "preemption_threshold"),
    ],
)
def test_a_threshold_needs_both_prices_and_both_need_a_threshold(
    machine: dict[str, object], threshold: int, named: str
) -> None:
    with pytest.raises(SettingsInvalid, match=named):
        read(machines=[{**MACHINE, **machine}], preemption_threshold=threshold)


def test_under_a_threshold_a_machine_has_two_prices() -> None:
    machine = {**MACHINE, "interruptible": True, "firm_price": "1.50"}
    policy = read(machines=[machine], preemption_threshold=8_000).policies()[3]
    assert policy.firm is not None
    assert (policy.price, policy.firm.price) == (Price(1_200_000), Price(1_500_000))
    assert (policy.flags, policy.firm.flags) == (AskFlags.INTERRUPTIBLE, AskFlags(0))
    assert read().policies()[3].firm is None
