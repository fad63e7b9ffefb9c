"""Compile the prices of `genai-prices` into the small table the package ships.

The library's import costs 180 ms and its data holds every provider; a ledger needs a few
dozen rows. The table keeps the source and the day it was taken.
"""

import datetime as dt
import importlib.metadata
import pprint
from pathlib import Path
from typing import Any

from genai_prices.data import providers

PROVIDERS = ("anthropic",)
TARGET = Path(__file__).parent.parent / "src/flightlog/usage/price_table.py"
# A class without a price of its own costs what the wider class costs.
CLASSES = {
    "input_mtok": ("input_mtok",),
    "output_mtok": ("output_mtok",),
    "cache_read_mtok": ("cache_read_mtok", "input_mtok"),
    "cache_write_mtok": ("cache_write_mtok", "input_mtok"),
    "cache_write_1h_mtok": ("cache_write_1h_mtok", "cache_write_mtok", "input_mtok"),
}
HEAD = '''"""Prices in USD per million tokens; written by `make prices`, not by hand.

A row: (patterns of model names, price lists, newest first). A pattern is a name, a prefix
`name*`, a part `*name*`, or a regular expression that begins with `^`. A price list: (the day it
began or "", the long-context threshold in prompt tokens or 0, prices below it, prices above it,
USD per thousand web searches). The order of prices is input, output, cache read, cache write for
5 minutes, cache write for 1 hour.
"""

# ruff: noqa: ISC004 - long patterns take two lines

'''


def patterns(match: Any) -> list[str]:
    """Return the patterns of model names, any of which may match."""
    match type(match).__name__:
        case "ClauseOr":
            return [pattern for part in match.or_ for pattern in patterns(part)]
        case "ClauseStartsWith":
            return [f"{match.starts_with}*"]
        case "ClauseContains":
            return [f"*{match.contains}*"]
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


def price_list(began: str, prices: Any) -> tuple:
    """Turn one price list into plain numbers."""
    base, above, threshold = [], [], 0
    for names in CLASSES.values():
        price = next(filter(None, (getattr(prices, name) for name in names)), 0)
        if hasattr(price, "tiers"):
            (tier,) = price.tiers
            threshold = tier.start
            base.append(float(price.base))
            above.append(float(tier.price))
        else:
            base.append(float(price))
            above.append(float(price))
    searches = float(getattr(prices, "web_searches_kcount", None) or 0)
    return (began, threshold, tuple(base), tuple(above), searches)


def lists(prices: Any) -> list[tuple]:
    """Turn a model's prices into dated price lists, newest first."""
    if not isinstance(prices, list):
        return [price_list("", prices)]
    dated = []
    for conditional in prices:
        began = getattr(conditional.constraint, "start_date", None)
        dated.append(price_list(began.isoformat() if began else "", conditional.prices))
    return sorted(dated, reverse=True)


def main() -> None:
    """Write the table."""
    version = importlib.metadata.version("genai-prices")
    rows = [
        (" ".join(patterns(model.match)), tuple(lists(model.prices)))
        for provider in providers
        if provider.id in PROVIDERS
        for model in provider.models
    ]
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    body = pprint.pformat(tuple(rows), width=92, compact=True).replace("'", '"')
    kind = "tuple[tuple[str, tuple[PriceList, ...]], ...]"
    TARGET.write_text(
        f"{HEAD}PriceList = tuple[str, int, tuple[float, ...], tuple[float, ...], float]\n\n"
        f'SOURCE = "genai-prices {version}"\nTAKEN = "{today}"\nROWS: {kind} = {body}\n'
    )


if __name__ == "__main__":
    main()
