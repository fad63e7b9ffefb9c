"""A run that failed is an incident, one that did what it should is not."""

from flightlog.lab.links import find_incidents
from support import labs


def test_a_session_that_failed_is_an_incident_with_its_place(tmp_path):
    refused = {"rules": [{"replies": [{"errors": [{"status": 401}]}]}]}
    wrong = labs.run(tmp_path, labs.config(tmp_path, refused, "go", engine="scripted"), "wrong")
    right = labs.run(
        tmp_path, labs.config(tmp_path, labs.script("done"), "go", engine="scripted"), "right"
    )

    (incident,) = find_incidents(wrong.name, wrong.state)

    assert (incident.kind, incident.feature, incident.evidence[0]) == (
        "failed run",
        "lab",
        "wrong/session_01",
    )
    assert incident.at_ms > 0
    assert list(find_incidents(right.name, right.state)) == []
