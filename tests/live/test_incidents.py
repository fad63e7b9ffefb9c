"""What is critical is an incident, what is only a warning is not."""

from flightlog.live.health import find_incidents
from flightlog.live.state import RuntimeSession, SessionHealth


def session(name, status, *issues):
    return RuntimeSession(name, health=SessionHealth(status, list(issues)))


def test_only_critical_facts_are_shown_and_secrets_by_name():
    seen = [
        session("a", "critical", "Transcript missing", "Hooks missing"),
        session("b", "warning", "Context near compaction"),
        session("c", "critical", "Secrets detected"),
    ]

    incidents = list(find_incidents(seen, "line 3: bad", 7))

    assert [(incident.kind, incident.evidence) for incident in incidents] == [
        ("session health", ("a",)),
        ("secret", ("c",)),
        ("corrupt state", ("runtime-state.yaml",)),
    ]
    assert incidents[0].counts == {"issues": 2}
    assert "line 3" not in str(incidents)
