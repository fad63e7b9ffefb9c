from flightlog.model.damage import Damage, Incident


def test_damage_stands_in_the_order_of_its_place():
    spans = [Damage("b", 0, 1, "x"), Damage("a", 9, 1, "x"), Damage("a", 2, 1, "x")]

    assert [(span.path, span.offset) for span in sorted(spans)] == [("a", 2), ("a", 9), ("b", 0)]
    assert len({*spans, Damage("b", 0, 1, "x")}) == 3


def test_an_incident_names_its_room_and_its_evidence():
    assert Incident("breaker", 1, "loop", "three failures in a row").evidence == ()
