"""Values check themselves; JSON is strict when read and canonical when written."""

from __future__ import annotations

from typing import Any

import pytest
import rfc8785
from eth_utils.address import to_checksum_address
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol import codec, limits
from cloud_gpu.protocol.events import MarketEvent, ProviderEvent
from cloud_gpu.protocol.hardware import Gpu, GpuClass, HardwareProfile, Isolation
from cloud_gpu.protocol.job import FileRef, JobSpec
from cloud_gpu.protocol.lease import (
    LEASE_TABLE,
    LeaseKey,
    LeaseState,
    LeaseStep,
    MachineKey,
    next_state,
)
from cloud_gpu.protocol.messages import JobAsked, Message
from cloud_gpu.protocol.orders import Ask, Bid, Terms
from cloud_gpu.protocol.units import BasisPoints, Price
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Digest, keccak256

PROVIDER = Address(b"\x01" * 20)
LEASE = LeaseKey(provider=PROVIDER, index=2, seq=3)
SHA = "a" * 64


def _profile(**changes: object) -> HardwareProfile:
    fields: dict[str, object] = {
        "gpu_class": GpuClass("A100-SXM4-80GB"),
        "gpus": (Gpu(model="A100", memory_mib=81_920, cuda="12.4"),) * 2,
        "cpu_model": "EPYC",
        "cpu_architecture": "x86_64",
        "cpu_cores": 16,
        "memory_mib": 65_536,
        "disk_mib": 100_000,
        "region": "FR/EU",
        "isolation": Isolation.CONTAINER,
        "simulated": False,
    }
    return HardwareProfile(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("terms", "word"),
    [
        (Terms(gpu_classes=(GpuClass("H100-SXM"),)), "gpu_classes"),
        (Terms(gpu_memory_mib_min=90_000), "gpu_memory_mib_min"),
        (Terms(memory_mib_min=70_000), "memory_mib_min"),
        (Terms(disk_mib_min=200_000), "disk_mib_min"),
        (Terms(cuda_min="12.10"), "cuda_min"),
        (Terms(regions=("US",)), "regions"),
        (Terms(network_classes=("infiniband",)), "network_classes"),
        (Terms(isolation_min=Isolation.GVISOR), "isolation_min"),
        (Terms(excluded_providers=(PROVIDER,)), "excluded_providers"),
    ],
)
def test_terms_when_one_is_not_met_then_it_is_named(terms: Terms, word: str) -> None:
    unmet = terms.unmet_by(_profile(), PROVIDER)
    assert unmet is not None
    assert unmet.startswith(word)


def test_terms_when_met_or_empty_then_none() -> None:
    assert Terms().unmet_by(_profile(), PROVIDER) is None
    close = Terms(
        gpu_classes=(GpuClass("A100-SXM4-80GB"),),
        gpu_memory_mib_min=81_920,
        cuda_min="12.4",
        regions=("EU",),
        isolation_min=Isolation.CONTAINER,
        simulated_allowed=False,
    )
    assert close.unmet_by(_profile(), PROVIDER) is None
    assert close.unmet_by(_profile(simulated=True), PROVIDER) is not None


def test_terms_when_there_are_too_many_words_then_refused() -> None:
    with pytest.raises(ValueError, match="at most 64 words"):
        Terms(regions=("EU",) * 65)


ASK = {
    "provider": PROVIDER, "index": 0, "seq": 1, "product": 1,
    "min_price_per_hour": Price(1000), "min_duration": 60, "max_duration": 3600,
    "start_by": 2_000_000_000, "matcher": PROVIDER, "max_fee_bps": BasisPoints(100),
}  # fmt: skip
BID = {
    "buyer": PROVIDER, "product": 1, "count": 1, "max_price_per_hour": Price(1000),
    "duration": 60, "start_by": 1, "open_from": 1, "nonce": 0, "matcher": PROVIDER,
    "max_fee_bps": BasisPoints(0), "terms": Digest(bytes(32)),
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 0}, {"index": -1}, {"index": 2**32}, {"max_duration": 59}, {"flags": 4},
        {"matcher": ZERO_ADDRESS}, {"min_price_per_hour": Price(0)}, {"seq": 2**24},
    ],
)  # fmt: skip
def test_ask_when_a_field_breaks_its_rule_then_the_field_is_named(
    change: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match=f"ask.{next(iter(change))}"):
        Ask(**(ASK | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [{"count": 0}, {"count": 65_536}, {"duration": 0}, {"nonce": 2**32}, {"matcher": ZERO_ADDRESS},
     {"flags": 8}, {"max_price_per_hour": Price(0)}],
)  # fmt: skip
def test_bid_when_a_field_breaks_its_rule_then_the_field_is_named(
    change: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match=f"bid.{next(iter(change))}"):
        Bid(**(BID | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../../b", "a\\b", "a\0b", "x" * 513]
)
def test_job_path_when_it_leaves_the_folder_then_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"file\.path"):
        FileRef(path=path, sha256=SHA, size=1)


def _spec(**changes: object) -> JobSpec:
    fields: dict[str, object] = {
        "lease": LEASE, "number": 1, "command": ("true",), "runtime_s_max": 60,
    }  # fmt: skip
    return JobSpec(**(fields | changes))  # type: ignore[arg-type]


def test_job_when_any_field_changes_then_its_id_changes() -> None:
    ids = {
        _spec(**change).id
        for change in (
            {},
            {"number": 2},
            {"command": ("false",)},
            {"seed": 1},
            {"environment": {"A": "1"}},
            {"inputs": (FileRef(path="a", sha256=SHA, size=1),)},
        )
    }
    assert len(ids) == 6
    assert _spec().id == _spec().id


@pytest.mark.parametrize(
    "change",
    [
        {"command": ()},
        {"command": ("a\0",)},
        {"environment": {"1A": ""}},
        {"runtime_s_max": 0},
        {"outputs": ("../out",)},
        {"inputs": (FileRef(path="a", sha256=SHA, size=1),) * 2},
    ],
)
def test_job_when_malformed_then_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"job\."):
        _spec(**change)


def test_machine_key_when_packed_then_provider_leads_and_it_unpacks() -> None:
    key = MachineKey(provider=PROVIDER, index=7)
    assert key.word.raw == PROVIDER.raw + (7).to_bytes(12, "big")
    assert MachineKey.from_word(key.word.raw) == key


@pytest.mark.parametrize("state", list(LeaseState))
@pytest.mark.parametrize("step", list(LeaseStep))
def test_lease_table_when_asked_for_any_pair_then_answers_or_refuses(
    state: LeaseState, step: LeaseStep
) -> None:
    found = next_state(state, step)
    assert (found is None) == ((state, step) not in LEASE_TABLE)
    if state is LeaseState.CLOSED:
        assert found is None
    elif step is LeaseStep.CLOSE:
        assert found is LeaseState.CLOSED


def test_json_when_written_then_canonical_and_read_back() -> None:
    asked: Message = JobAsked(lease=LEASE, job=Digest(b"\x07" * 32))
    raw = codec.to_json(asked)
    assert raw.startswith(b'{"job":"0x0707')
    assert codec.from_json(raw, Message) == asked


_texts = st.text(max_size=8)
_leaves = st.one_of(
    *(st.none(), st.booleans(), _texts, st.sampled_from((2**53, 10**15, 1e21, 1.0, 0.1))),
    *(st.integers(), st.floats(), st.sampled_from(("é", "\x7f", "\u2028", ":1.5", "a,12e3"))),
)
_documents = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=12,
)


@given(_documents)
def test_json_of_anything_is_what_rfc8785_writes(document: Any) -> None:
    try:
        wanted = rfc8785.dumps(document)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            codec.to_json(document)
    else:
        assert codec.to_json(document) == wanted


@pytest.mark.parametrize(
    ("raw", "hint"),
    [
        (b"", "truncated|empty|Input"),
        (b"[]", "Expected `object`"),
        (b'{"type":"JobAsked"}', "missing required field"),
        (b'{"type":"Nonsense"}', "Invalid value"),
        (b"\xff\xfe", "invalid|malformed"),
    ],
)
def test_json_when_malformed_then_says_what(raw: bytes, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        codec.from_json(raw, Message)


def test_json_when_a_field_is_unknown_then_refused() -> None:
    raw = codec.to_json(JobAsked(lease=LEASE, job=Digest(bytes(32)))).replace(b"{", b'{"x":1,', 1)
    with pytest.raises(ValueError, match="unknown field `x`"):
        codec.from_json(raw, Message)


@given(st.binary(max_size=400))
def test_json_when_given_any_bytes_then_only_value_errors(raw: bytes) -> None:
    for kind in (Message, MarketEvent, ProviderEvent, Bid):
        with pytest.raises(ValueError, match=r"."):
            codec.from_json(raw, kind)


def test_json_when_nested_too_deep_then_value_error() -> None:
    deep = b'{"type":"JobAsked","lease":' + b"[" * 100_000
    with pytest.raises(ValueError, match=r"."):
        codec.from_json(deep, Message)


def test_limits_when_compared_then_fit_their_words() -> None:
    assert limits.PRICE_MAX < 2**53
    assert limits.LEASE_CAP_MAX < limits.AMOUNT_MAX


@pytest.mark.parametrize(
    "text",
    [
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
        "0xde709f2102306220921060314715629080e2fb77",
        "0x27b1fdb04752bbc536007a920d24acb045561c26",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
        "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
    ],
)
def test_address_is_written_as_in_the_test_vectors_of_eip_55(text: str) -> None:
    assert str(Address.parse(text)) == text


@given(st.binary(min_size=20, max_size=20))
def test_address_is_written_as_other_tools_write_it(raw: bytes) -> None:
    assert str(Address(raw)) == to_checksum_address(raw)


@pytest.mark.parametrize(
    ("raw", "digest"),
    [
        (b"", "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"),
        (b"abc", "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"),
    ],
)
def test_keccak256_is_the_chains_and_not_sha3(raw: bytes, digest: str) -> None:
    assert str(keccak256(raw)) == "0x" + digest
