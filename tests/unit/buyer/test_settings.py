"""Settings: which source wins, what each says of itself, and what is refused."""

from typing import Any

import pytest

from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.settings import Settings, SettingsFile, chosen_context, read_settings


def read(
    *,
    flags: dict[str, str | None] | None = None,
    environment: dict[str, str] | None = None,
    project: str | None = None,
    contexts: dict[str, str] | None = None,
    chosen: str = "",
) -> Settings:
    held = contexts or {}
    return read_settings(
        flags=flags or {},
        environment=environment or {},
        project=SettingsFile(path="./cloud-gpu.toml", text=project) if project else None,
        context=lambda name: (
            SettingsFile(path=f"contexts/{name}.toml", text=held[name]) if name in held else None
        ),
        contexts="contexts",
        chosen=chosen,
    )


SOURCES: list[tuple[dict[str, Any], str, str]] = [
    ({"flags": {"max_price": "1.00"}}, "1.00", "flag"),
    ({"environment": {"CLOUD_GPU_MAX_PRICE": "2.00"}}, "2.00", "CLOUD_GPU_MAX_PRICE"),
    ({"project": 'max_price = "3.00"'}, "3.00", "./cloud-gpu.toml"),
    ({"contexts": {"devnet": 'max_price = "4.00"'}}, "4.00", "contexts/devnet.toml"),
    ({}, "", "default"),
]


@pytest.mark.parametrize("first", range(len(SOURCES)))
def test_of_all_sources_the_nearest_wins_and_says_so(first: int) -> None:
    given: dict[str, Any] = {}
    for words, _, _ in SOURCES[first:]:
        given |= words
    found = read(**given)
    _, value, origin = SOURCES[first]
    assert (found.max_price, found.origin("max_price")) == (value, origin)


def test_a_flag_that_was_not_given_hides_nothing() -> None:
    assert read(flags={"market": None}, project='market = "http://m"').market == "http://m"


def test_the_devnets_context_is_used_without_being_named() -> None:
    found = read(contexts={"devnet": 'market = "http://m"'})
    assert (found.context, found.market) == ("devnet", "http://m")


def test_without_any_context_none_is_used() -> None:
    assert read().context == ""


@pytest.mark.parametrize(
    "words",
    [
        {"flags": {"context": "lab"}},
        {"environment": {"CLOUD_GPU_CONTEXT": "lab"}},
        {"project": 'context = "lab"'},
        {"chosen": "lab"},
    ],
)
def test_a_named_context_replaces_the_devnets(words: dict[str, object]) -> None:
    contexts = {"devnet": 'market = "http://devnet"', "lab": 'market = "http://lab"'}
    assert read(contexts=contexts, **words).market == "http://lab"  # type: ignore[arg-type]


def test_a_named_context_that_is_not_there_is_an_error() -> None:
    with pytest.raises(SettingsInvalid, match=r"context \(CLOUD_GPU_CONTEXT\): found 'lab'"):
        read(environment={"CLOUD_GPU_CONTEXT": "lab"})


def test_a_context_names_no_other() -> None:
    with pytest.raises(SettingsInvalid, match="does not name another"):
        read(contexts={"devnet": 'context = "lab"'})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("markett = 'x'", "markett: no such setting"),
        ("max_price = 1.2", "needed text in quotes"),
        ("market = [", "not TOML"),
        ('market = "ftp://x"', "http://"),
        ('max_price = "cheap"', r"max_price \(\./cloud-gpu.toml\)"),
        ('output = "xml"', "table, json"),
        ('log_level = "loud"', "error, warning"),
    ],
)
def test_what_a_file_has_wrong_is_named_with_the_file(text: str, said: str) -> None:
    with pytest.raises(SettingsInvalid, match=said) as caught:
        read(project=text)
    assert "cloud-gpu.toml" in str(caught.value)


def test_an_unknown_environment_variable_is_not_ours() -> None:
    assert read(environment={"CLOUD_GPU_NONSENSE": "1", "CLOUD_GPU_MARKET": ""}).market == ""


def test_a_missing_setting_says_how_to_set_it() -> None:
    with pytest.raises(SettingsInvalid, match="CLOUD_GPU_MARKET"):
        read().need("market")


def test_the_price_limit_is_obligatory() -> None:
    with pytest.raises(SettingsInvalid, match="max_price"):
        read().price_limit  # noqa: B018


def test_the_usual_context_is_read_and_checked() -> None:
    assert chosen_context(None) == ""
    assert chosen_context(SettingsFile(path="c", text='context = "lab"')) == "lab"
    for wrong in ("context = 3", "colour = 'red'", "context ="):
        with pytest.raises(SettingsInvalid, match=r"^c: "):
            chosen_context(SettingsFile(path="c", text=wrong))
