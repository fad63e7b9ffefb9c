"""Grids of requests, models and variants as one batch, told beforehand; whole sessions once more."""

import json
import re

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.lab.resample import service
from flightlog.lab.resample.layout import JOURNAL
from flightlog.lab.resample.plan import Sweep, SweepVariant, parse_sweep
from flightlog.lab.resample.samples import list_samples
from flightlog.model.errors import Misconfigured, NotFound
from support.labs import rewrite_config
from support.paying import paying
from support.sampled import SONNET, ask, book


def test_a_grid_is_one_batch_with_one_budget(run):
    text = f"""
    turns: [1, 2]
    models: [claude-opus-5-5, {SONNET}]
    variants:
      - {{label: cold, set: {{temperature: 0}}}}
      - {{label: quiet, drop_thinking: true, set: {{messages.0.content: do nothing}}}}
    count: 2
    max_budget_usd: 3
    """

    with paying() as till:
        batch = ask(run, till.url, sweep=parse_sweep(text))

    assert (batch["samples"], len(batch["targets"])) == (24, 12)
    assert {(request.body["model"], request.body.get("temperature")) for request in till.came} == {
        (model, heat) for model in ("claude-opus-5-5", SONNET) for heat in (None, 0)
    }
    by_cell = {}
    for sample in list_samples(run):
        by_cell.setdefault((sample.request, sample.variant, sample.model), []).append(sample.number)
    assert len(by_cell) == 12
    assert all(len(numbers) == 2 for numbers in by_cell.values())
    assert by_cell[2, 1, SONNET] == [3, 4]
    assert len((run / JOURNAL).read_text().split('"batch_begun"')) == 2


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("turns: [1]\nmodls: [x]", "models"),
        ("models: [x]", "turns"),
        ("turns: [1]\nvariants: [{label: x}]", "drop_thinking"),
        ("turns: [1]\ncount: 0", "max_budget_usd"),
        ("turns: [1]\ncount: 1000000", "max_budget_usd"),
        ("- 1", "max_budget_usd"),
        ("turns: [", "line"),
    ],
)
def test_invalid_sweep_is_refused_with_a_hint(text, hint):
    with pytest.raises(Misconfigured) as refused:
        parse_sweep(text)

    assert hint in refused.value.hint


def test_a_dry_run_sends_nothing_and_says_about_what_it_costs(run):
    with paying() as till:
        sweep = Sweep(requests=(2,), variants=(SweepVariant("cold", {"temperature": 0}),), count=10)
        batch = ask(run, till.url, sweep=sweep, dry_run=True)

    assert batch["expected_cost_usd"] > 0
    assert [target["path"] for target in batch["targets"]] == [
        "session_01/resamples/request_002",
        "session_01/resamples/request_002_v01",
    ]
    assert not (run / "session_01/resamples").exists()
    assert (till.came, (run / JOURNAL).exists()) == ([], False)


def test_rerunning_a_session_adds_replicates_and_updates_totals(run, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "mine").write_text("since then")
    config = run / "config.yaml"
    rewrite_config(run, re.sub(r"(?m)^work_dir: .*", f"work_dir: {work}", config.read_text()))
    before = json.loads((run / "run_meta.json").read_text())

    service.rerun_session(open_runtime(), book(run), 1, 2, budget_usd=None, tell=lambda *_: None)
    again = service.rerun_session(
        open_runtime(), book(run), 1, 1, budget_usd=None, tell=lambda *_: None
    )

    meta = json.loads((run / "run_meta.json").read_text())
    names = ["session_01", "session_01_r02", "session_01_r03", "session_01_r04"]
    assert [session["session_dir"] for session in meta["sessions"]] == names
    assert [session["replicate"] for session in meta["sessions"]] == [1, 2, 3, 4]
    assert [session["stop_reason"] for session in meta["sessions"]] == ["completed"] * 4
    assert meta["total_steps"] == 4 * before["total_steps"]
    assert meta["total_file_writes"] == 4 * before["total_file_writes"]
    assert meta["total_cost_usd"] == pytest.approx(4 * before["total_cost_usd"], rel=0.01)
    assert [path.name for path in work.iterdir()] == ["mine"], "the directory is the person's again"
    assert {
        name: (run / name / "session_diff.patch").read_bytes() for name in names[1:]
    } == dict.fromkeys(names[1:], (run / "session_01/session_diff.patch").read_bytes())
    assert again.state.end.stop_reason == "completed"


def test_replicates_of_a_session_stop_at_their_budget(run, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    config = run / "config.yaml"
    rewrite_config(run, re.sub(r"(?m)^work_dir: .*", f"work_dir: {work}", config.read_text()))

    again = service.rerun_session(
        open_runtime(), book(run), 1, 3, budget_usd=0.000001, tell=lambda *_: None
    )

    assert "budget_exhausted" in {
        attempt.stop_reason for tries in again.state.attempts.values() for attempt in tries
    }
    with pytest.raises(NotFound, match="no session 9"):
        service.rerun_session(
            open_runtime(), book(run), 9, 1, budget_usd=None, tell=lambda *_: None
        )
