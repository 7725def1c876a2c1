import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eagletui.agent.patch import apply, diff

SCALARS = st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=3) | st.lists(st.integers(0, 3), max_size=3)
KEYS = st.sampled_from("abcd")
DOCS = st.recursive(
    st.dictionaries(KEYS, SCALARS, max_size=4),
    lambda inner: st.dictionaries(KEYS, SCALARS | inner, max_size=4),
    max_leaves=8,
)
WITH_NONE = st.recursive(
    st.dictionaries(KEYS, SCALARS | st.none(), max_size=4),
    lambda inner: st.dictionaries(KEYS, SCALARS | st.none() | inner, max_size=4),
    max_leaves=8,
)


def without_none(doc: dict[str, Any]) -> dict[str, Any]:
    return {k: without_none(v) if isinstance(v, dict) else v for k, v in doc.items() if v is not None}


@given(DOCS, DOCS)
def test_the_patch_leads_from_the_one_to_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    before = copy.deepcopy(old), copy.deepcopy(new)
    result = apply(old, diff(old, new))
    assert result == new
    assert (old, new) == before


@given(WITH_NONE, WITH_NONE)
def test_none_in_a_document_means_absent(old: dict[str, Any], new: dict[str, Any]) -> None:
    held = apply({}, diff({}, old))
    assert held == without_none(old)
    assert apply(held, diff(old, new)) == without_none(new)


@given(DOCS)
def test_equal_documents_give_an_empty_patch(doc: dict[str, Any]) -> None:
    assert diff(doc, copy.deepcopy(doc)) == {}


def test_a_number_that_changes_its_kind_is_a_change() -> None:
    assert diff({"a": 1, "b": 0}, {"a": True, "b": 0.0}) == {"a": True, "b": 0.0}


def test_lists_are_replaced_whole() -> None:
    assert diff({"a": [1, 2, 3]}, {"a": [1, 2]}) == {"a": [1, 2]}
