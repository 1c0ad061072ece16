"""`ls --gpu`: which asks a query lets through."""

import pytest

from cloud_gpu.cli.asks import _wanted
from cloud_gpu.query_text import parse_query
from tests.unit.market.builders import advert

ASK = advert("ada")
GPUS = len(ASK.body.profile.gpus)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", True),
        (f"count={GPUS}", True),
        (f"count={GPUS + 1}", False),
        (f"count={GPUS}..{GPUS + 7}", True),
        (f"count={8 * GPUS}..{16 * GPUS}", False),
        (f"count={8 * GPUS}..{16 * GPUS} scope=fabric", True),
        ("need=1GB", True),
        ("need=500GB", False),
    ],
)
def test_a_machine_is_listed_where_it_is_enough_or_a_part_of_what_is(
    query: str, shown: bool
) -> None:
    assert _wanted(ASK, parse_query(query), None) is shown
