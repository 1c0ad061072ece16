"""The output contract: what goes to which stream, money as text, one schema for all formats."""

import json

import pytest

from cloud_gpu.cli.failures import Failure
from cloud_gpu.cli.output import Format, Output, money, rate
from cloud_gpu.protocol.units import Price, TokenAmount


def never_called() -> str:
    raise AssertionError("a table was drawn for a machine")


def test_money_is_a_decimal_string_with_its_unit() -> None:
    assert money(TokenAmount(1_200_000)) == {"amount": "1.20", "unit": "token"}
    assert money(-1) == {"amount": "-0.000001", "unit": "token"}
    assert rate(Price(745_000)) == {"amount": "0.745", "unit": "token/GPU-hour"}


@pytest.mark.parametrize("form", [Format.JSON, Format.JSONL])
def test_a_result_is_one_line_with_schema_and_kind(
    form: Format, capsys: pytest.CaptureFixture[str]
) -> None:
    Output(form).result("bid", {"state": "pending"}, never_called)
    out, err = capsys.readouterr()
    assert json.loads(out) == {"schema": 1, "kind": "bid", "state": "pending"}
    assert out.count("\n") == 1
    assert err == ""


def test_a_list_is_one_document_in_json_and_a_line_each_in_jsonl(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"n": 1}, {"n": 2}]
    Output(Format.JSON).results("ask", rows, never_called)
    assert json.loads(capsys.readouterr().out)["items"] == rows
    Output(Format.JSONL).results("ask", rows, never_called)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["n"] for line in lines] == [1, 2]


def test_yaml_nests_blocks_and_quotes_every_text(capsys: pytest.CaptureFixture[str]) -> None:
    payload = {"price": money(5), "items": [{"a": "yes", "b": [1, 2]}], "none": [], "flag": True}
    Output(Format.YAML).result("x", payload, never_called)
    assert capsys.readouterr().out == (
        '"schema": 1\n'
        '"kind": "x"\n'
        '"price":\n'
        '  "amount": "0.000005"\n'
        '  "unit": "token"\n'
        '"items":\n'
        '  - "a": "yes"\n'
        '    "b":\n'
        "      - 1\n"
        "      - 2\n"
        '"none": []\n'
        '"flag": true\n'
    )


def test_people_get_the_table_and_no_colour_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output(Format.TABLE).result("x", {}, lambda: "[bold]drawn[/bold]")
    assert capsys.readouterr().out == "drawn\n"


def test_progress_goes_to_standard_error_and_quiet_silences_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output(Format.TABLE).progress("starting")
    Output(Format.TABLE).next("cloud-gpu ls")
    Output(Format.TABLE, quiet=True).progress("starting")
    assert capsys.readouterr() == ("", "starting\nNext: cloud-gpu ls\n")


def test_a_failure_is_text_on_standard_error_or_json_on_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failure = Failure(code=5, reason="no-match", found="asks from 2.00", needed="1.00", next="wait")
    Output(Format.TABLE).failure(failure)
    assert capsys.readouterr() == (
        "",
        "error:  no-match\nfound:  asks from 2.00\nneeded: 1.00\nnext:   wait\n",
    )
    Output(Format.JSON).failure(failure)
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "kind": "error",
        "code": 5,
        "reason": "no-match",
        "found": "asks from 2.00",
        "needed": "1.00",
        "next": "wait",
    }
