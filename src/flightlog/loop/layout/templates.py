"""What stands beside the sessions: a README, and templates of every file of a session.

The templates are what the pages look like before anything happened, made by the same code,
so that they cannot differ from what is written.
"""

import json

from flightlog.loop.core.state import LoopState
from flightlog.loop.layout import pages
from flightlog.loop.layout.errors import ErrorLog
from flightlog.loop.layout.yaml import dump_yaml
from flightlog.loop.plan.schema import Plan, Task, TaskRun

_SESSION = "session-XXX"


def build_templates() -> dict[str, str]:
    """Every template by its name."""
    plan = Plan("Phase name", (Task("001", "First task", TaskRun(command="true")),))
    state = LoopState(session_id=_SESSION, session_name="Brief session name", last_at=0.0)
    return {
        "session-metadata.yaml": dump_yaml(pages.build_metadata(state, plan, 0.0)),
        "execution-log.json": _to_json({"session_id": _SESSION, "events": []}),
        "progress-tracking.yaml": dump_yaml(pages.build_progress(state, plan)),
        "decision-history.json": _to_json({"session_id": _SESSION, "decisions": []}),
        "feature-inventory.json": _to_json(pages.feature_inventory(state)),
        "feature-docs-generated.json": _to_json(pages.feature_docs(state)),
        "quality-metrics.json": _to_json(pages.quality_metrics(state, plan)),
        "errors-and-retries.json": _to_json(ErrorLog().build_page(_SESSION)),
    }


def readme_text() -> str:
    """The README beside the sessions."""
    return """# Loop sessions

One directory for each run of a plan. `journal.jsonl` is the record; every other file is a view of
it and is written again when it is damaged or missing.

| file | what it shows |
|---|---|
| session-metadata.yaml | status, phase, settings, context variables, figures |
| execution-log.json | every event |
| progress-tracking.yaml | tasks, milestones, quality gates |
| decision-history.json | every decision with its risks, alternatives and outcome |
| errors-and-retries.json | errors, what was done about them, the breaker |
| feature-inventory.json, feature-docs-generated.json, quality-metrics.json | what tasks reported |
| final-report.md | the report |
| question.yaml | the question that waits for an answer: write it there and save |

    ralph-runtime status --session session-001
    ralph-runtime monitor --session session-001
    ralph-runtime logs --session session-001

`templates/` holds an empty copy of each file: a directory `session-004-name/` made of them by hand
can be run with `ralph-runtime run --plan PLAN --session session-004`. `archive/` and `summaries/`
are kept by `ralph-runtime retain`.
"""


def _to_json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
