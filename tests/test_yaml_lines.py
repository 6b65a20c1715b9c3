"""YAML read strictly: every value with its line, and what no reader wants is refused."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import yaml
from drivetrain.errors import BuildError, InputError
from drivetrain.yaml_lines import YamlValue, compose, load_documents, read_yaml
from hypothesis import given
from hypothesis import strategies as st


def read(text: str) -> YamlValue:
    root = read_yaml(text, "a.yaml", name="it")
    assert root is not None
    return root


def test_values_know_their_names_and_lines() -> None:
    entries = read("a: 1\nb:\n  c:\n  - x\n  - y\n").mapping()
    item = entries["b"].mapping()["c"].items()[1]
    assert (item.name, item.where, item.text()) == ("b.c[1]", "a.yaml:5", "y")
    assert read_yaml("# nothing\n", "a.yaml", name="it") is None


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: {c: 1, c: 2}", 2, "b: 'c' appears twice"),
        ("? [a, b]\n: 1", 1, "a key of it is not text"),
        ("a: &a\n  b: *a", 1, r"a\.b holds itself"),
        ("- &a [*a]", 1, r"it\[0\]\[0\] holds itself"),
        (LAUGHS, 5, "the aliases in a4 stand for too much"),
        ("a: " + "[" * 250 + "]" * 250, 1, "nested too deeply"),
        ("a: [1", 1, "not YAML"),
        ("a: 1\n---\nb: 1", 2, "not YAML"),
        ('a: "\\ud800"', 1, "half a character"),
    ],
)
def test_what_no_reader_wants_is_refused_at_its_line(text: str, line: int, message: str) -> None:
    for error_class in (InputError, BuildError):
        with pytest.raises(error_class, match=message) as caught:
            read_yaml(text, "a.yaml", name="it", error_class=error_class)
        assert caught.value.where == f"a.yaml:{line}"


def test_an_alias_stands_for_its_value() -> None:
    assert read("a: &a {x: [1, NO]}\nb: *a").json() == {"a": {"x": [1, "NO"]}, "b": {"x": [1, "NO"]}}


def test_a_mapping_names_unknown_and_missing_keys() -> None:
    root = read("a: {b: 1,\n  colour: 2}")
    with pytest.raises(InputError, match="a: unknown key 'colour'") as caught:
        root.mapping()["a"].mapping(("b", "color"))
    assert (caught.value.where, caught.value.fix) == ("a.yaml:2", "did you mean 'color'?")
    with pytest.raises(InputError, match="it has no b:"):
        root.mapping(required=("b",))


def test_scalars() -> None:
    plain = read("[1, 1.5, 010, 1e3, yes, true, ~, '1', .inf, 12:30, 2013-01-01, NO]")
    assert plain.json() == [1, 1.5, 10, 1000.0, "yes", True, None, "1", float("inf"), "12:30", "2013-01-01", "NO"]
    assert [value.boolean() for value in read("[yes, off, TRUE, false]").items()] == [True, False, True, False]
    for text in ("'true'", "1", "[true]", "maybe"):
        with pytest.raises(InputError, match="neither true nor false"):
            read(f"a: {text}").mapping()["a"].boolean()
    for text in ("3", "yes", "[x]", "2013-01-01"):
        with pytest.raises(InputError, match="a is not text"):
            read(f"a: {text}").mapping()["a"].string()
    with pytest.raises(InputError, match="a is empty"):
        read("a: ''").mapping()["a"].string()
    assert read("a: ''").mapping()["a"].string(empty=True) == ""


@pytest.mark.parametrize("text", ["!!python/object/apply:os.system [id]", "2020-13-45"])
def test_what_the_older_yaml_cannot_make_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(InputError, match="a cannot be read") as caught:
        read(f"\na: {text}").mapping()["a"].yaml_1_1()
    assert caught.value.where == "a.yaml:2"


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc #:", max_size=4), inner, max_size=4),
    max_leaves=12,
)


def marks(node: yaml.Node) -> list[Any]:
    if isinstance(node, yaml.ScalarNode):
        inner = [node.value, node.tag, bool(getattr(node, "style", None))]
    else:
        below = [part for pair in node.value for part in (pair if isinstance(node, yaml.MappingNode) else [pair])]
        inner = [type(node).__name__, *map(marks, below)]
    return [node.start_mark.line, node.start_mark.index, node.start_mark.column, node.end_mark.index, *inner]


@given(JSON, st.booleans())
def test_libyaml_and_pyyaml_give_the_same_nodes(value: Any, flow: bool) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)
    slow, fast = yaml.compose(text, Loader=yaml.SafeLoader), compose(text)
    assert slow is not None
    assert fast is not None
    assert marks(fast) == marks(slow)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LAUGHS, "stand for too much"),
        ("a: &a [*a]", "holds itself"),
        ("a: &a {b: *a}", "holds itself"),
        ("[" * 500 + "]" * 500, "nested too deeply"),
        ("[" * 100_000, "nested too deeply|not YAML"),
        ("a: 1\na: 2", "'a' appears twice"),
    ],
    ids=["laughs", "a list in itself", "a map in itself", "deep", "deeper", "twice"],
)
def test_documents_are_bounded_as_values_are(text: str, says: str) -> None:
    for reader in (read_yaml, load_documents):
        with pytest.raises(InputError, match=says):
            reader(text, "f.yaml", name="the file")
    with pytest.raises(InputError, match=says):
        load_documents(f"x: 1\n---\n{text}", "f.yaml", name="the file")


def test_documents() -> None:
    assert load_documents("a: 2013-01-01\n---\n---\n1\n", "f", name="f") == [{"a": datetime.date(2013, 1, 1)}, 1]
    with pytest.raises(InputError, match="but found another document"):
        read_yaml("a: 1\n---\nb: 1", "f", name="f")


def test_a_bracket_that_is_not_closed_is_named_where_it_opens() -> None:
    with pytest.raises(
        InputError, match=r"not YAML: .*\n  fix: correct the line, or line 2, where this began"
    ) as caught:
        read("x: 1\na: {type: int\nb: {type: int}\n")
    assert caught.value.where == "a.yaml:3"
