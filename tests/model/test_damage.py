import re

import msgspec
import pytest
from yaml import YAMLError

from flightlog.model.errors import (
    DEPTH_MAX,
    VALUES_MAX,
    Damage,
    Incident,
    check_depth,
    check_json_size,
    read_yaml,
)

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))


def test_damage_is_in_the_order_of_its_location():
    spans = [Damage("b", 0, 1, "x"), Damage("a", 9, 1, "x"), Damage("a", 2, 1, "x")]

    assert [(span.path, span.offset) for span in sorted(spans)] == [("a", 2), ("a", 9), ("b", 0)]
    assert len({*spans, Damage("b", 0, 1, "x")}) == 3


def test_an_incident_names_its_feature_and_its_evidence():
    assert Incident("breaker trip", 1, "loop").evidence == ()


def test_an_incident_has_no_field_that_holds_text_of_a_file():
    kinds = {field.name: field.type for field in msgspec.structs.fields(Incident)}

    assert {name for name, kind in kinds.items() if kind is str} == {"subject"}
    text = "How do I tell her"
    assert text not in Incident("secret", 1, "lab", subject=text).subject
    assert Incident("secret", 1, "loop", subject="session-001/T1").subject == "session-001/T1"
    assert (
        msgspec.convert({"kind": "secret", "at_ms": 1, "feature": "lab"}, Incident).kind == "secret"
    )
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"kind": "How do I tell her", "at_ms": 1, "feature": "lab"}, Incident)


def test_evidence_that_is_no_place_becomes_a_digest():
    text = "How do I tell my wife that I was diagnosed"

    incident = Incident("corrupt state", 1, "retro", ("state/analysis.json.corrupt-1", text))

    assert incident.evidence[0] == "state/analysis.json.corrupt-1"
    assert re.fullmatch("place-[0-9a-f]{12}", incident.evidence[1])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested deeper"),
        ("- " * 100_000, "nested deeper"),
        ("{a: " * 100_000, "nested deeper"),
        ("? " * 100_000, "a key is a word"),
        (LAUGHS, "with aliases expanded"),
        ("a: &a [*a]", "with aliases expanded"),
        ("- x\n" * 500_000, "more than 400,000 values"),
        ("a: " + "x" * (8 << 20), "longer than 8.4 MB"),
        ("- '\\ud83d'\n" * 50_000, "more than 40,000 values"),  # by the slow parser
        ("%TAG !a! x\n" * 500_000, "more than 100 tag directives"),
        ("a: " + "9" * 5000, "integer string conversion"),
        ("a: !!python/object:os.system x", "there is no tag"),
        ("? [a]\n: b", "a key is a word"),
        ("a: 1\na: 2", "duplicate key 'a'"),
        ("a\n---\nb", "one document"),
        ("<<: x", "only maps can be merged"),
    ],
)
def test_yaml_beyond_a_limit_is_refused_with_the_reason(text, why):
    with pytest.raises(YAMLError, match=why):
        read_yaml(text)


def test_yaml_within_the_limits_is_read_with_its_aliases():
    depth = DEPTH_MAX - 1
    shared = "base: &base {a: 1}\none:\n  <<: *base\n  b: 2\ntwo: *base\n"

    assert read_yaml(shared) == {"base": {"a": 1}, "one": {"a": 1, "b": 2}, "two": {"a": 1}}
    assert read_yaml("a: {1: no, b: 010, c: 2026-01-01, d: [Bash(git:*), 1e3]}") == {
        "a": {"1": "no", "b": 10, "c": "2026-01-01", "d": ["Bash(git:*)", 1000.0]}
    }
    assert read_yaml("- 001\n- id: 002\n  on: 003", {"id"}) == [1, {"id": "002", "on": 3}]
    assert str(read_yaml("[" * depth + "]" * depth)) == "[" * depth + "]" * depth


def test_json_beyond_a_limit_is_refused():
    document = []
    for _ in range(DEPTH_MAX - 1):
        document = {"a": document}

    check_depth(document)
    check_json_size(b"," * VALUES_MAX)
    with pytest.raises(ValueError, match="nested deeper than 200 levels"):
        check_depth([document])
    with pytest.raises(ValueError, match="more than 2,000,000 values"):
        check_json_size(b"," * VALUES_MAX + b"[")
