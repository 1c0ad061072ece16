"""Merkle trees: every entry has one path, and no other entry, place or length has it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol.merkle import Path, Tree, leads_to, leaf_of
from cloud_gpu.protocol.values import ZERO_DIGEST

entries = st.lists(st.binary(max_size=3), min_size=1, max_size=20)


def tree_of(found: list[bytes]) -> Tree:
    return Tree([leaf_of(each) for each in found])


@given(entries, st.data())
def test_a_path_leads_from_its_entry_alone(found: list[bytes], data: st.DataObject) -> None:
    tree = tree_of(found)
    place = data.draw(st.integers(0, len(found) - 1))
    path = tree.path(place)
    assert leads_to(tree.root, found[place], path)
    assert not leads_to(tree.root, found[place] + b"x", path)
    for other in range(len(found) + 1):
        moved = msgspec.structs.replace(path, place=other)
        if other != place:
            assert not leads_to(tree.root, found[place], moved) or found[other] == found[place]
    longer = msgspec.structs.replace(path, siblings=(*path.siblings, ZERO_DIGEST))
    assert not leads_to(tree.root, found[place], longer)
    if path.siblings:
        shorter = msgspec.structs.replace(path, siblings=path.siblings[:-1])
        assert not leads_to(tree.root, found[place], shorter)


@given(entries, st.integers(0, 40))
def test_a_list_of_another_length_has_another_root(found: list[bytes], count: int) -> None:
    tree = tree_of(found)
    path = msgspec.structs.replace(tree.path(0), count=count)
    assert leads_to(tree.root, found[0], path) is (count == len(found))


def test_an_inner_node_is_no_entry() -> None:
    left, right = leaf_of(b"a"), leaf_of(b"b")
    tree = Tree([left, right])
    assert not leads_to(tree.root, b"\1" + left.raw + right.raw, Path(place=0, count=1))


@pytest.mark.parametrize("count", [0, 1])
def test_an_empty_list_has_a_root_and_no_entry(count: int) -> None:
    assert Tree([]).root != tree_of([b""]).root
    assert not leads_to(Tree([]).root, b"", Path(place=0, count=count))
