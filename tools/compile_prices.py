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

A row: (how a model's name matches, its prices by the day they began). A price list:
(the day it began or "", the long-context threshold in prompt tokens or 0, prices below it,
prices above it, USD per thousand web searches). Prices stand in the order input, output,
cache read, cache write for 5 minutes, cache write for 1 hour.
"""

'''


def clause(match: Any) -> list[tuple[str, str]]:
    """Flatten a match clause into (kind, word) pairs, any of which may hold."""
    kind = type(match).__name__
    if kind == "ClauseOr":
        return [pair for part in match.or_ for pair in clause(part)]
    names = {
        "ClauseStartsWith": "starts_with",
        "ClauseEquals": "equals",
        "ClauseRegex": "regex",
        "ClauseContains": "contains",
    }
    return [(names[kind], getattr(match, names[kind]))]


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
        (tuple(clause(model.match)), tuple(lists(model.prices)))
        for provider in providers
        if provider.id in PROVIDERS
        for model in provider.models
    ]
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    body = pprint.pformat(tuple(rows), width=118, compact=True).replace("'", '"')
    kind = "tuple[tuple[tuple[tuple[str, str], ...], tuple[PriceList, ...]], ...]"
    TARGET.write_text(
        f"{HEAD}PriceList = tuple[str, int, tuple[float, ...], tuple[float, ...], float]\n\n"
        f'SOURCE = "genai-prices {version}"\nTAKEN = "{today}"\nROWS: {kind} = {body}\n'
    )


if __name__ == "__main__":
    main()
