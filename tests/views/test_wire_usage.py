from flightlog.model.usage import ClientTotals, Cost, CostSource, ModelTotal, Usage
from flightlog.views.truth import Gap, Reason, Truth
from flightlog.views.usage import UsageRow
from flightlog.views.wire_usage import truth, unrecorded, usage_row

ROW = UsageRow("k", Usage(1, 2, 3, 4, 5, 6), Cost(None, CostSource.UNKNOWN), 7, 8, ("m",), ("m",), 0, 0)
GAPS = (Gap("s", Reason.CUT, Usage(1, 1), 0.5), Gap("s", Reason.COMPACTION, Usage(2, 2), 0.25))


def test_a_row_names_its_tokens_and_an_unknown_cost_is_null():
    told = usage_row(ROW)

    assert (told["input_tokens"], told["output_tokens"], told["cache_read_tokens"], told["cache_write_tokens"]) == (
        1,
        2,
        3,
        9,
    )
    assert told["cost_usd"] is None
    assert told["unpriced_models"] == ["m"]


def test_gaps_are_summed_and_a_single_reason_is_named():
    assert unrecorded(GAPS)["cost_usd"] == 0.75
    assert unrecorded(GAPS)["input_tokens"] == 3
    assert unrecorded(GAPS)["reason"] is None
    assert unrecorded(GAPS[:1])["reason"] == "cut stream"
    assert unrecorded(())["cost_usd"] == 0.0


def test_a_truth_says_what_was_inherited_and_from_whom():
    client = ClientTotals("s", 2.0, 0, (ModelTotal("m", Usage(9), 2.0),))

    told = truth(Truth("s", client, Usage(), 0.0, Usage(3), 1.25, "p", GAPS))

    assert told["client"]["cost_usd"] == 2.0
    assert (told["inherited"]["from"], told["inherited"]["cost_usd"]) == ("p", 1.25)
    assert truth(Truth("s", client, Usage(), 0.0, Usage(), 0.0, "", ()))["inherited"]["from"] is None
