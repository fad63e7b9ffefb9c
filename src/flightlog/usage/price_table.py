"""Anthropic's prices in USD per million tokens; written by `make prices`, not by hand.

A row: (patterns of model names, price lists, the one to try first ahead). A pattern is a name, a
prefix `name*`, a part `*name*`, or a regular expression that begins with `^`. A price list: (the
day it began, or the hours of each day (UTC) it applies to, or ""; the prompt tokens above which
each next band of prices applies; the bands; USD per thousand web searches). The order of prices
is input, output, cache read, cache write for 5 minutes, cache write for 1 hour.
"""

# ruff: noqa: E501 - a row is one line

PriceList = tuple[str, tuple[int, ...], tuple[tuple[float, ...], ...], float]
PriceRow = tuple[str, tuple[PriceList, ...]]

PRICES_FROM = {"source": "genai-prices 0.2.1", "date": "2026-11-15"}
# fmt: off
ROWS: tuple[PriceRow, ...] = (
    ("claude-2* *claude-v2*", (("", (), ((8.0, 24.0, 8.0, 8.0, 8.0),), 0.0),)),
    ("claude-3-5-haiku* claude-3.5-haiku*", (("", (), ((0.8, 4.0, 0.08, 1.0, 1.6),), 10.0),)),
    ("claude-3-5-sonnet* claude-3.5-sonnet*", (("", (), ((3.0, 15.0, 0.3, 3.75, 6.0),), 10.0),)),
    ("claude-3-7-sonnet* claude-3.7-sonnet* claude-sonnet-3.7* claude-sonnet-3-7*", (("", (), ((3.0, 15.0, 0.3, 3.75, 6.0),), 10.0),)),
    ("claude-3-haiku*", (("", (), ((0.25, 1.25, 0.03, 0.3, 0.5),), 0.0),)),
    ("claude-3-opus*", (("", (), ((15.0, 75.0, 1.5, 18.75, 30.0),), 0.0),)),
    ("claude-3-sonnet*", (("", (), ((3.0, 15.0, 0.3, 3.75, 6.0),), 0.0),)),
    ("claude-fable-5 ^claude-fable-5-\\d{8}$", (("", (), ((10.0, 50.0, 1.0, 12.5, 20.0),), 10.0),)),
    ("claude-fable-5-1 ^claude-fable-5-1-\\d{8}$", (("", (), ((10.0, 50.0, 0.25, 12.5, 20.0),), 10.0),)),
    ("claude-haiku-4-5* claude-haiku-4.5* claude-4-5-haiku* claude-4.5-haiku*", (("", (), ((1.0, 5.0, 0.1, 1.25, 2.0),), 10.0),)),
    ("claude-haiku-5-5 ^claude-haiku-5-5-\\d{8}$ claude-haiku-5-5@* claude-haiku-5.5* claude-5-5-haiku* claude-5.5-haiku*", (("", (100000,), ((0.1, 0.5, 0.01, 0.125, 0.2), (0.5, 2.5, 0.05, 0.625, 1.0)), 10.0),)),
    ("claude-opus-4-0* claude-4-opus* claude-opus-4 claude-opus-4-20250514", (("", (), ((15.0, 75.0, 1.5, 18.75, 30.0),), 10.0),)),
    ("claude-opus-4-1* claude-opus-4.1*", (("", (), ((15.0, 75.0, 1.5, 18.75, 30.0),), 10.0),)),
    ("claude-opus-4-5* claude-opus-4.5* claude-4-5-opus* claude-4.5-opus*", (("", (), ((5.0, 25.0, 0.5, 6.25, 10.0),), 10.0),)),
    ("claude-opus-4-6* claude-opus-4.6* claude-4-6-opus* claude-4.6-opus*", (("2026-03-13", (), ((5.0, 25.0, 0.5, 6.25, 10.0),), 10.0), ("", (200000,), ((5.0, 25.0, 0.5, 6.25, 10.0), (10.0, 37.5, 1.0, 12.5, 20.0)), 10.0))),
    ("claude-opus-4-7* claude-opus-4.7* claude-4-7-opus* claude-4.7-opus*", (("", (), ((5.0, 25.0, 0.5, 6.25, 10.0),), 10.0),)),
    ("claude-opus-4-8* claude-opus-4.8* claude-4-8-opus* claude-4.8-opus*", (("", (), ((5.0, 25.0, 0.5, 6.25, 10.0),), 10.0),)),
    ("claude-opus-5 claude-opus-5-latest ^claude-opus-5[-@]\\d{8}$ ^claude-opus-5-\\d{4}-\\d{2}-\\d{2}$ claude-opus-5.0* claude-5-opus* claude-5.0-opus*", (("", (), ((5.0, 25.0, 0.5, 6.25, 10.0),), 10.0),)),
    ("claude-opus-5-5 ^claude-opus-5-5-\\d{8}$ claude-opus-5.5* claude-5-5-opus* claude-5.5-opus*", (("", (), ((4.0, 20.0, 0.2, 5.0, 8.0),), 10.0),)),
    ("claude-sonnet-4-2025* claude-sonnet-4-0* claude-sonnet-4@* claude-sonnet-4 claude-4-sonnet*", (("", (), ((3.0, 15.0, 0.3, 3.75, 6.0),), 10.0),)),
    ("claude-sonnet-4-5* claude-sonnet-4.5*", (("", (200000,), ((3.0, 15.0, 0.3, 3.75, 6.0), (6.0, 22.5, 0.6, 7.5, 12.0)), 10.0),)),
    ("claude-sonnet-4-6* claude-sonnet-4.6*", (("2026-03-13", (), ((3.0, 15.0, 0.3, 3.75, 6.0),), 10.0), ("", (200000,), ((3.0, 15.0, 0.3, 3.75, 6.0), (6.0, 22.5, 0.6, 7.5, 12.0)), 10.0))),
    ("claude-sonnet-5 ^claude-sonnet-5-\\d{8}$ claude-sonnet-5@* claude-sonnet-5.0* claude-5-sonnet* claude-5.0-sonnet*", (("", (), ((2.0, 10.0, 0.2, 2.5, 4.0),), 10.0),)),
    ("claude-sonnet-5-5 ^claude-sonnet-5-5-\\d{8}$ claude-sonnet-5-5@* claude-sonnet-5.5* claude-5-5-sonnet* claude-5.5-sonnet*", (("", (), ((2.0, 10.0, 0.1, 2.5, 4.0),), 10.0),)),
    ("claude-v1", (("", (), ((8.0, 24.0, 8.0, 8.0, 8.0),), 0.0),)),
)
