import pytest
from msgspec.structs import replace

from flightlog.lab.replay.branch_points import estimate_branch
from flightlog.lab.replay.source import ReplaySource
from flightlog.model.usage import CostSource, Usage
from flightlog.usage.prices import price
from support.labs import bash, config, run, script

MODEL = "claude-opus-5-5"


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    root = tmp_path_factory.mktemp("estimate")
    given = config(root, script([bash("ls")], [bash("pwd")], "done"), "go", engine="scripted")
    book = run(root, given, env={"PATH": "/usr/bin:/bin", "HOME": str(root)})
    return ReplaySource(book, 1, 0, "/usr/bin:/bin").read.own_steps()


def test_a_branch_costs_as_much_as_its_source_or_more_without_cache(steps):
    estimate = estimate_branch(steps, 2)

    assert estimate.steps == 2
    assert estimate.cached_cost_usd == pytest.approx(sum(step.cost.usd for step in steps[1:]))
    first = steps[1]
    uncached = price(
        MODEL,
        Usage(
            cache_write_tokens=first.usage.prompt_tokens, output_tokens=first.usage.output_tokens
        ),
    ).usd
    assert estimate.uncached_cost_usd - estimate.cached_cost_usd == pytest.approx(
        uncached - first.cost.usd
    )
    assert estimate.context_tokens == first.usage.prompt_tokens > 0


def test_an_unknown_price_is_not_guessed(steps):
    unknown = replace(steps[2], cost_usd=None, cost_source=CostSource.UNKNOWN)

    assert estimate_branch([*steps[:2], unknown], 1).cached_cost_usd is None
    assert estimate_branch([*steps[:2], unknown], 1).uncached_cost_usd is None
    assert estimate_branch(steps, 9).cached_cost_usd is None
