import re

import msgspec
import pytest

from flightlog.model.damage import Damage, Incident


def test_damage_stands_in_the_order_of_its_place():
    spans = [Damage("b", 0, 1, "x"), Damage("a", 9, 1, "x"), Damage("a", 2, 1, "x")]

    assert [(span.path, span.offset) for span in sorted(spans)] == [("a", 2), ("a", 9), ("b", 0)]
    assert len({*spans, Damage("b", 0, 1, "x")}) == 3


def test_an_incident_names_its_room_and_its_evidence():
    assert Incident("breaker trip", 1, "loop").evidence == ()


def test_an_incident_has_no_field_that_holds_text_of_a_file():
    kinds = {field.name: field.type for field in msgspec.structs.fields(Incident)}

    assert {name for name, kind in kinds.items() if kind is str} == set()
    assert msgspec.convert({"kind": "secret", "at_ms": 1, "room": "lab"}, Incident).kind == "secret"
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"kind": "How do I tell her", "at_ms": 1, "room": "lab"}, Incident)


def test_evidence_that_is_no_place_becomes_a_digest():
    said = "How do I tell my wife that I was diagnosed"

    found = Incident("corrupt state", 1, "retro", ("state/analysis.json.corrupt-1", said))

    assert found.evidence[0] == "state/analysis.json.corrupt-1"
    assert re.fullmatch("place-[0-9a-f]{12}", found.evidence[1])
