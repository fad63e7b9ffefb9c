"""The cost truth table, held against what real clients wrote down about themselves."""

from datetime import UTC

import pytest

from flightlog.model.usage import Breakdown, ClientTotals, ModelResponse, ModelTotal, Usage
from flightlog.usage.reconciliation import (
    GapEvidence,
    GapReason,
    SessionTotals,
    pack_reconciliation,
    reconcile,
    unpack_reconciliation,
)
from support.recordings import CASES, archive

CURRENT = [case for case in CASES if case.startswith("2.1.325/")]
EXPLAINED = {
    "compaction-auto": ("10189e1f", GapReason.COMPACTION, Usage(13823, 49)),
    "compaction-manual": ("de349ced", GapReason.COMPACTION, Usage(13877, 49)),
    "interactive-statusline": ("72a5ce76", GapReason.COMPACTION, Usage(15343, 23)),
    "stream-cut-retry": ("0c075a1c", GapReason.CUT, Usage(12107, 1)),
    "interrupted-sigint": ("f79aadd6", GapReason.INTERRUPTED, Usage(-12192, -1)),
    "interactive-permission-interrupt-rewind": (
        "28892d4e",
        GapReason.INTERRUPTED,
        Usage(-13605, -1),
    ),
    "branched-at-turn": ("92a86220", GapReason.COPY, Usage(39146, 144)),
    "resumed-mid-turn": ("200cb118", GapReason.COPY, Usage(-12116, -95)),
    "resumed-truncated-copy": ("c10e876b", GapReason.COPY, Usage(-74845, -411)),
}


def truths(where, *cases):
    return archive(where, *cases).usage_report(Breakdown.SESSION, UTC).reconciliations


def adds_up(truth):
    parts = truth.recorded + truth.inherited + sum((gap.usage for gap in truth.gaps), Usage())
    usd = truth.recorded_usd + truth.inherited_usd + sum(gap.cost_usd for gap in truth.gaps)
    return parts == truth.client.usage and round(usd, 6) == round(truth.client.cost_usd, 6)


@pytest.mark.parametrize("case", CURRENT)
def test_recorded_unrecorded_and_inherited_add_up_to_the_clients_own_total(tmp_path, case):
    by_session = truths(tmp_path, case)

    assert bool(by_session) is (case != "2.1.325/killed-sigkill")
    assert all(adds_up(truth) for truth in by_session)


@pytest.mark.parametrize("case", CURRENT)
def test_each_difference_has_the_right_reason(tmp_path, case):
    gaps = [gap for truth in truths(tmp_path, case) for gap in truth.gaps]

    expected = EXPLAINED.get(case.removeprefix("2.1.325/"))

    assert [(gap.session[:8], gap.reason, gap.usage) for gap in gaps] == (
        [expected] if expected else []
    )


def test_a_fork_inherits_and_a_copy_counts_only_its_own_beside_the_parent(tmp_path):
    by_session = {truth.session[:8]: truth for truth in truths(tmp_path, *CURRENT)}

    assert all(adds_up(truth) for truth in by_session.values())
    assert len(by_session) == 28
    for fork in ("cceeb00c", "92a86220"):
        assert by_session[fork].inherited_from.startswith("2123f2df")
        assert by_session[fork].inherited == by_session["2123f2df"].client.usage
        assert not by_session[fork].gaps
    for copy in ("c10e876b", "200cb118"):
        assert not by_session[copy].inherited
        assert by_session[copy].recorded == by_session[copy].client.usage
        assert not by_session[copy].gaps


def test_eighteen_recordings_equal_the_client_and_nine_are_explained(tmp_path):
    plain = [
        case
        for case in CURRENT
        if case.removeprefix("2.1.325/") not in {*EXPLAINED, "killed-sigkill"}
    ]
    exact = [
        truth for number, case in enumerate(plain) for truth in truths(tmp_path / str(number), case)
    ]

    for truth in exact:
        if not truth.inherited:
            assert truth.recorded == truth.client.usage
            assert round(truth.recorded_usd, 6) == round(truth.client.cost_usd, 6)
    assert len(EXPLAINED) == 9


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (GapEvidence(web_searches=1), GapReason.WEB_SEARCH),
        (GapEvidence(web_searches=1, compactions=1), GapReason.COMPACTION),
        (GapEvidence(), GapReason.UNKNOWN),
    ],
)
def test_a_web_search_explains_what_only_the_client_counted(evidence, reason):
    client = ClientTotals("s", 1.0, 0, (ModelTotal("m", 1.0, input_tokens=9),))
    totals = SessionTotals("s", Usage(input_tokens=4), 0.5, 0, (), ())

    (gap,) = reconcile(totals, {"s": [client]}, lambda *_: evidence).gaps

    assert (gap.reason, gap.usage.input_tokens) == (reason, 5)


@pytest.mark.parametrize(("recorded", "reason"), [(9, "not counted yet"), (8, "unknown")])
def test_responses_after_the_last_total_are_not_counted_yet(recorded, reason):
    """A resumed session that runs: the client writes its total only when it ends."""
    client = ClientTotals("s", 1.0, 100, (ModelTotal("m", 1.0, input_tokens=4),), as_of_ms=200)
    later = ModelResponse("r2", "s", "m", Usage(input_tokens=5), 300, "")
    totals = SessionTotals("s", Usage(input_tokens=recorded), 2.0, 100, ((later, 1.0),), ())

    (gap,) = reconcile(totals, {"s": [client]}, lambda *_: GapEvidence()).gaps

    assert (gap.reason.value, gap.usage) == (reason, Usage(input_tokens=4 - recorded))


def test_a_client_without_dollars_leaves_the_cost_of_a_gap_unknown():
    early = ClientTotals("s", None, 0, (ModelTotal("m", None, input_tokens=3),), credits=0.5)
    late = ClientTotals("s", None, 0, (ModelTotal("m", None, input_tokens=9),), credits=1.5)
    totals = SessionTotals("s", Usage(input_tokens=4), 0.5, 0, (), ())

    reconciliation = reconcile(totals, {"s": [late, early]}, lambda *_: GapEvidence())

    assert reconciliation.client == late
    assert [(gap.usage, gap.cost_usd) for gap in reconciliation.gaps] == [(Usage(5), None)]
    assert unpack_reconciliation(pack_reconciliation(reconciliation)) == reconciliation


def test_no_part_of_a_gap_has_a_cost_if_the_client_counts_no_dollars():
    client = ClientTotals("s", None, 5, (ModelTotal("m", None, input_tokens=9),))
    copied = ModelResponse("m1", "s", "m", Usage(4), 1)
    totals = SessionTotals("s", Usage(4), 0.5, 0, ((copied, 0.5),), ())

    reconciliation = reconcile(totals, {"s": [client]}, lambda *_: GapEvidence())

    assert [(gap.reason, gap.cost_usd) for gap in reconciliation.gaps] == [
        (GapReason.COPY, None),
        (GapReason.UNKNOWN, None),
    ]
