"""Render `analysis.md`: the results in sentences, each with a footnote to its samples. Pure.

Text from samples is foreign: it is shown in code spans, on one line.
"""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from flightlog.lab.statistics.analysis import (
    DIFFERS,
    FEW,
    Comparison,
    ExperimentAnalysis,
    GroupComparison,
    GroupSummary,
    QuestionResult,
    ShareEstimate,
)
from flightlog.lab.statistics.divergence import PathNode, draw_share_bar, iter_path_lines
from flightlog.lab.statistics.inference import ConfidenceInterval, MeanEstimate
from flightlog.model.text import one_line

NAME = "analysis.md"
MARK = "<!-- made by flightlog from the samples; `harness compare RUN --write` makes it again -->"
_LABEL_CHARS_MAX = 120
_SHARES_MAX = 12
AMOUNT_NAMES = {
    "output_tokens": "output tokens",
    "input_tokens": "input tokens",
    "cost_usd": "US dollars",
}


class _Footnotes:
    """Footnotes that list the samples behind a sentence, each set once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}

    def __call__(self, sentence: str, places: Sequence[str]) -> str:
        assert places, "a sentence needs samples"
        number = self._numbers.setdefault(tuple(places), len(self._numbers) + 1)
        return f"{sentence}[^{number}]"

    def render_lines(self) -> Iterator[str]:
        for places, number in self._numbers.items():
            yield f"[^{number}]: " + ", ".join(
                f"[{place.removesuffix('.json')}](<{quote(place)}>)" for place in places
            )


def render_analysis(name: str, analysis: ExperimentAnalysis, root: PathNode | None = None) -> str:
    """Return the page; `root` is the tree of the sessions' actions."""
    notes = _Footnotes()
    body = [line for answer in analysis.questions for line in _render_answer(answer, notes)]
    sample_count = sum(group.n for answer in analysis.questions for group in answer.groups)
    groups = (group for answer in analysis.questions for group in answer.groups)
    places = [place for group in groups for place in group.addresses]
    rules = (
        f"{sample_count} samples: intervals hold with {analysis.confidence_level:.0%}, "
        f"{analysis.test_count} comparisons were made, "
        f"a finding is one that {analysis.correction}'s rule over all of them leaves at or below "
        f"{analysis.significance_level:g}, "
        f"and groups with fewer than {analysis.min_samples} samples are not compared (seed {analysis.seed})."
    )
    head = [f"# Analysis of {escape_markdown(name)}", "", MARK, "", notes(rules, places), ""]
    divergence = (
        list(_render_paths(root, notes)) if root is not None and len(root.addresses) > 1 else []
    )
    return "\n".join([*head, *body, *divergence, "## Samples", "", *notes.render_lines(), ""])


def _render_answer(answer: QuestionResult, notes: _Footnotes) -> Iterator[str]:
    yield f"## {escape_markdown(answer.name)}"
    yield ""
    for against in answer.comparisons:
        yield from (f"- {line}" for line in _render_comparison(against, answer, notes))
    for group in answer.groups:
        if group.n:
            yield from (f"- {line}" for line in _render_group(group, notes))
            yield from _render_bars(group)
        if group.failures:
            yield "- " + notes(
                f"{len(group.failures)} of {_group_title(group)} gave no answer and are not counted.",
                group.failures,
            )
    yield ""


def _render_bars(group: GroupSummary) -> Iterator[str]:
    """Yield shares as bars, indented so that Markdown shows text of samples verbatim."""
    shown = (*group.actions[:_SHARES_MAX], *group.outcomes)
    if shown:
        yield ""
        yield from (
            f"      {draw_share_bar(share)}  {share.count:>3}  {one_line(share.label or share.name, 60)}"
            for share in shown
        )
        yield ""


def _render_paths(root: PathNode, notes: _Footnotes) -> Iterator[str]:
    sentence = f"{len(root.addresses)} sessions in one tree: they diverge after each line that has lines below it."
    places = [f"../{place}" for place in root.addresses]
    yield from ("## Divergence", "", notes(sentence, places), "")
    yield from (f"    {line}" for line in iter_path_lines(root))
    yield ""


def _render_group(group: GroupSummary, notes: _Footnotes) -> Iterator[str]:
    title = _group_title(group)
    for share in group.actions[:_SHARES_MAX]:
        action = inline_code(share.label or share.name)
        sentence = f"{title}: {action} in {share.count} of {share.n} ({format_share(share)})."
        yield notes(sentence, share.addresses)
    rest = group.actions[_SHARES_MAX:]
    if rest:
        places = [place for other in rest for place in other.addresses]
        yield notes(f"{title}: {len(rest)} other actions in {len(places)} samples.", places)
    if group.agreement is not None:
        yield notes(
            f"{title}: two samples agree with a probability of {group.agreement:.0%}.",
            group.addresses,
        )
    if group.same_as_recorded is not None:
        share = group.same_as_recorded
        sentence = (
            f"{title}: {share.count} of {share.n} take the recorded action ({format_share(share)})."
        )
        yield notes(sentence, share.addresses or group.addresses)
    for share in group.outcomes:
        sentence = f"{title}: {inline_code(share.name)} passed in {share.count} of {share.n} ({format_share(share)})."
        yield notes(sentence, share.addresses or group.addresses)
    for name, amount in group.means.items():
        if amount is not None:
            yield notes(f"{title}: {format_mean(name, amount)}.", group.addresses)


def _render_comparison(
    against: GroupComparison, answer: QuestionResult, notes: _Footnotes
) -> Iterator[str]:
    groups = {group.name: group for group in answer.groups}
    base, group = groups[against.baseline], groups[against.group]
    places = (*base.addresses, *group.addresses)
    if not places:
        return
    pair = f"{_group_title(group)} against {_group_title(base)}"
    if against.verdict == FEW:
        yield notes(f"{pair}: too few samples to compare ({base.n} and {group.n}).", places)
        return
    if against.verdict != DIFFERS:
        yield notes(
            f"{pair}: no difference was found, which does not mean that there is none.", places
        )
    labels = {share.name: share.label for side in (base, group) for share in side.actions}
    for test in against.tests:
        finding = "a finding" if test.is_finding else "not a finding"
        yield notes(f"{pair}: {describe_test(test, labels)}: {finding}.", test.addresses)


def describe_test(test: Comparison, labels: dict[str, str]) -> str:
    """Return the effect of a comparison, its test and both p-values, as text."""
    p_values = f"p = {test.p_value:.3g}, {test.p_value_adjusted:.3g} after Holm"
    return f"{_describe_effect(test, labels)}; {test.test}, {p_values}"


def _describe_effect(test: Comparison, labels: dict[str, str]) -> str:
    if test.measure == "actions":
        return f"the actions as a whole are {test.effect:.0%} apart"
    span, percents = "", test.measure != "amount"
    if test.interval:
        span = f" ({_format_interval(test.interval, percents=percents)})"
    if test.measure == "amount":
        return f"{test.effect:+.4g} {AMOUNT_NAMES[test.name]}{span}"
    return f"{inline_code(labels.get(test.name) or test.name)} {100 * test.effect:+.0f} percentage points{span}"


def format_share(share: ShareEstimate) -> str:
    return f"{share.share:.0%}, {_format_interval(share.interval, percents=True)}"


def format_mean(name: str, amount: MeanEstimate) -> str:
    span = ", no interval"
    if amount.interval:
        span = f" ({_format_interval(amount.interval, percents=False)})"
    return f"{amount.mean:.4g} {AMOUNT_NAMES[name]} on average over {amount.n}{span}"


def _format_interval(interval: ConfidenceInterval, *, percents: bool) -> str:
    low, high = interval.low, interval.high
    span = f"{100 * low:.0f} to {100 * high:.0f} %" if percents else f"{low:.4g} to {high:.4g}"
    return f"{interval.confidence:.0%} {span}, {interval.method}"


def _group_title(group: GroupSummary) -> str:
    label = f" {inline_code(group.label)}" if group.label and group.label != "as recorded" else ""
    return f"{escape_markdown(group.name)}{label}"


def inline_code(text: str) -> str:
    """Return foreign text as a Markdown code span on one line."""
    line = one_line(text, _LABEL_CHARS_MAX) or " "
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def escape_markdown(name: str, width: int = 200) -> str:
    """Return one line that Markdown shows as it is."""
    return re.sub(r"([\\`*\[\]<>#&!|]|(?<!\w)_|_(?!\w))", r"\\\1", one_line(name, width))
