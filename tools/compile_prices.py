"""Compile the prices of `genai-prices` into the small tables the package ships.

The library's import costs 180 ms and its data holds every provider; a ledger needs a few
hundred rows. Anthropic's prices are a table of their own, because most reports need no other.
"""

import datetime as dt
import importlib.metadata
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from genai_prices.data import providers

from flightlog.usage.price_table import PRICES_FROM
from flightlog.usage.prices import matches_pattern

OWN = "anthropic"
# A model's own maker comes before the resellers: the first provider that has a name wins.
OTHERS = (
    *("openai", "google", "x-ai", "moonshotai", "zai", "deepseek", "mistral", "minimax"),
    *("github-copilot", "openrouter"),
)
# Of providers with models of other makers, those that have no price list of their own here.
TAKEN_MODELS = {"google": ("gemini-",), "openrouter": ("qwen/",)}
# Names with a date need no pattern: the date is taken off a name that is not in the table.
DATED = re.compile(r"-\\d\{(8\}|4\}-\\d\{2\}-\\d\{2\})\$$")
TARGET = Path(__file__).parent.parent / "src/flightlog/usage"
# A class without a price of its own costs what the wider class costs.
CLASSES = {
    "input_mtok": ("input_mtok",),
    "output_mtok": ("output_mtok",),
    "cache_read_mtok": ("cache_read_mtok", "input_mtok"),
    "cache_write_mtok": ("cache_write_mtok", "input_mtok"),
    "cache_write_1h_mtok": ("cache_write_1h_mtok", "cache_write_mtok", "input_mtok"),
}
# A model with one of these prices bills tokens that no agent records apart.
UNRECORDED = (
    *("output_audio_mtok", "output_image_mtok", "output_video_mtok", "output_reasoning_mtok"),
    *("requests_kcount", "output_citation_mtok"),
)
QUARTER_MINUTES = 15  # a report sums the responses of a quarter of an hour at one price
FORMAT = """\
A row: (patterns of model names, price lists, the one to try first ahead). A pattern is a name, a
prefix `name*`, a part `*name*`, or a regular expression that begins with `^`. A price list: (the
day it began, or the hours of each day (UTC) it applies to, or ""; the prompt tokens above which
each next band of prices applies; the bands; USD per thousand web searches). The order of prices
is input, output, cache read, cache write for 5 minutes, cache write for 1 hour.
"""
HEAD = f'''"""Anthropic's prices in USD per million tokens; written by `make prices`, not by hand.

{FORMAT}"""

# ruff: noqa: E501 - a row is one line

PriceList = tuple[str, tuple[int, ...], tuple[tuple[float, ...], ...], float]
PriceRow = tuple[str, tuple[PriceList, ...]]

'''


def patterns(match: Any) -> list[str]:  # noqa: PLR0911 - one for each kind
    """Return the patterns of model names, any of which may match."""
    match type(match).__name__:
        case "ClauseOr":
            return [pattern for part in match.or_ for pattern in patterns(part)]
        case "ClauseAnd":
            # `name*`, but no speech: both conditions become one regular expression.
            start, rule = match.and_
            rest = rule.regex.removeprefix("^").replace("[tT][tT][sS]", "tts")
            return [f"^{re.escape(start.starts_with)}{rest}".replace(r"\-", "-")]
        case "ClauseStartsWith":
            return [f"{match.starts_with}*"]
        case "ClauseContains":
            return [f"*{match.contains}*"]
        case "ClauseEndsWith":
            return [f"^.*{re.escape(match.ends_with)}$".replace(r"\-", "-")]
        case "ClauseEquals":
            return [match.equals]
        case "ClauseRegex":
            assert match.regex.startswith("^"), (
                "the table tells regular expressions by their first character"
            )
            assert " " not in match.regex, "patterns are separated by spaces"
            return [match.regex]
        case kind:
            raise ValueError(f"unknown kind of match: {kind}")


def price_list(since: str, prices: Any) -> tuple:
    """Turn one price list into plain numbers."""
    by_class = [
        next(price for name in names if (price := getattr(prices, name)) is not None)
        for names in CLASSES.values()
    ]
    starts = sorted({tier.start for price in by_class for tier in getattr(price, "tiers", ())})
    bands = tuple(tuple(price_above(price, start) for price in by_class) for start in [-1, *starts])
    searches = float(getattr(prices, "web_searches_kcount", None) or 0)
    return (since, tuple(starts), bands, searches)


def price_above(price: Any, start: int) -> float:
    """Return the price of a class for prompts just above `start` tokens."""
    if not hasattr(price, "tiers"):
        return float(price)
    reached = [tier.price for tier in price.tiers if tier.start <= start]
    return float(reached[-1] if reached else price.base)


def condition(constraint: Any) -> str:
    """Return when a price list applies, as the table writes it."""
    match type(constraint).__name__:
        case "NoneType":
            return ""
        case "StartDateConstraint":
            return constraint.start_date.isoformat()
        case "TimeOfDateConstraint":
            hours = (constraint.start_time, constraint.end_time)
            assert hours[0] < hours[1], "the hours do not span midnight"
            assert not any(time.minute % QUARTER_MINUTES for time in hours)
            return "-".join(time.strftime("%H:%M") for time in hours)
        case kind:
            raise ValueError(f"unknown kind of condition: {kind}")


def lists(prices: Any) -> tuple[tuple, ...]:
    """Turn a model's prices into price lists, the one to try first ahead."""
    if not isinstance(prices, list):
        return (price_list("", prices),)
    return tuple(price_list(condition(item.constraint), item.prices) for item in reversed(prices))


def is_priced_by_token(model: Any) -> bool:
    """Return whether input and output tokens are all that the model bills."""
    all_prices = model.prices if isinstance(model.prices, list) else [model]
    return all(
        item.prices.input_mtok
        and item.prices.output_mtok
        and not any(getattr(item.prices, name) is not None for name in UNRECORDED)
        for item in all_prices
    )


def rows(provider: Any) -> Iterator[tuple[str, tuple[tuple, ...]]]:
    """Yield the rows of one provider."""
    taken = TAKEN_MODELS.get(provider.id, "")
    for model in provider.models:
        if model.id.startswith(taken) and is_priced_by_token(model):
            yield " ".join(patterns(model.match)), lists(model.prices)


def other_tables() -> Iterator[tuple[str, list[tuple[str, tuple[tuple, ...]]]]]:
    """Yield the rows of each other provider, without names that a provider before it has."""
    by_id = {provider.id: provider for provider in providers}
    known = {pattern for row in rows(by_id[OWN]) for pattern in row[0].split()}
    for provider in OTHERS:
        table = []
        for names, prices in rows(by_id[provider]):
            plain = {
                name if name[0] == "^" else name.lower().rpartition("/")[2]: None
                for name in names.split()
                if not DATED.search(name)
            }
            new = [name for name in plain if not is_known(name, known)]
            if new:
                table.append((" ".join(new), prices))
        known.update(pattern for row in table for pattern in row[0].split())
        yield provider, table


def is_known(pattern: str, known: set[str]) -> bool:
    """Return whether another provider has the name or the very pattern."""
    return pattern in known or any(matches_pattern(other, pattern) for other in known)


def main() -> None:
    """Write the tables; the date changes with the library's version."""
    source = f"genai-prices {importlib.metadata.version('genai-prices')}"
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    taken = PRICES_FROM["date"] if source == PRICES_FROM["source"] else today
    own = next(provider for provider in providers if provider.id == OWN)
    (TARGET / "price_table.py").write_text(
        f'{HEAD}PRICES_FROM = {{"source": "{source}", "date": "{taken}"}}\n# fmt: off\n'
        f"ROWS: tuple[PriceRow, ...] = (\n{format_rows(list(rows(own)))}\n)\n"
    )
    tables = []
    for name, table in other_tables():
        lines = ",\n".join(map(json.dumps, table))
        tables.append(f"{json.dumps(name)}: [\n{lines}\n]")
    (TARGET / "other_prices.json").write_text("{\n" + ",\n".join(tables) + "\n}\n")


def format_rows(table: list[tuple[str, tuple[tuple, ...]]]) -> str:
    """Return the rows as Python, one a line."""
    return "\n".join(f"    {row!r},".replace("'", '"') for row in table)


if __name__ == "__main__":
    main()
