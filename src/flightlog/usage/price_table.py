"""Prices in USD per million tokens; written by `make prices`, not by hand.

A row: (how a model's name matches, its prices by the day they began). A price list:
(the day it began or "", the long-context threshold in prompt tokens or 0, prices below it,
prices above it, USD per thousand web searches). Prices stand in the order input, output,
cache read, cache write for 5 minutes, cache write for 1 hour.
"""

PriceList = tuple[str, int, tuple[float, ...], tuple[float, ...], float]

SOURCE = "genai-prices 0.2.1"
TAKEN = "2026-11-15"
ROWS: tuple[tuple[tuple[tuple[str, str], ...], tuple[PriceList, ...]], ...] = (
    (
        (("starts_with", "claude-2"), ("contains", "claude-v2")),
        (("", 0, (8.0, 24.0, 8.0, 8.0, 8.0), (8.0, 24.0, 8.0, 8.0, 8.0), 0.0),),
    ),
    (
        (("starts_with", "claude-3-5-haiku"), ("starts_with", "claude-3.5-haiku")),
        (("", 0, (0.8, 4.0, 0.08, 1.0, 1.6), (0.8, 4.0, 0.08, 1.0, 1.6), 10.0),),
    ),
    (
        (("starts_with", "claude-3-5-sonnet"), ("starts_with", "claude-3.5-sonnet")),
        (("", 0, (3.0, 15.0, 0.3, 3.75, 6.0), (3.0, 15.0, 0.3, 3.75, 6.0), 10.0),),
    ),
    (
        (
            ("starts_with", "claude-3-7-sonnet"),
            ("starts_with", "claude-3.7-sonnet"),
            ("starts_with", "claude-sonnet-3.7"),
            ("starts_with", "claude-sonnet-3-7"),
        ),
        (("", 0, (3.0, 15.0, 0.3, 3.75, 6.0), (3.0, 15.0, 0.3, 3.75, 6.0), 10.0),),
    ),
    ((("starts_with", "claude-3-haiku"),), (("", 0, (0.25, 1.25, 0.03, 0.3, 0.5), (0.25, 1.25, 0.03, 0.3, 0.5), 0.0),)),
    (
        (("starts_with", "claude-3-opus"),),
        (("", 0, (15.0, 75.0, 1.5, 18.75, 30.0), (15.0, 75.0, 1.5, 18.75, 30.0), 0.0),),
    ),
    ((("starts_with", "claude-3-sonnet"),), (("", 0, (3.0, 15.0, 0.3, 3.75, 6.0), (3.0, 15.0, 0.3, 3.75, 6.0), 0.0),)),
    (
        (("equals", "claude-fable-5"), ("regex", "^claude-fable-5-\\d{8}$")),
        (("", 0, (10.0, 50.0, 1.0, 12.5, 20.0), (10.0, 50.0, 1.0, 12.5, 20.0), 10.0),),
    ),
    (
        (("equals", "claude-fable-5-1"), ("regex", "^claude-fable-5-1-\\d{8}$")),
        (("", 0, (10.0, 50.0, 0.25, 12.5, 20.0), (10.0, 50.0, 0.25, 12.5, 20.0), 10.0),),
    ),
    (
        (
            ("starts_with", "claude-haiku-4-5"),
            ("starts_with", "claude-haiku-4.5"),
            ("starts_with", "claude-4-5-haiku"),
            ("starts_with", "claude-4.5-haiku"),
        ),
        (("", 0, (1.0, 5.0, 0.1, 1.25, 2.0), (1.0, 5.0, 0.1, 1.25, 2.0), 10.0),),
    ),
    (
        (
            ("equals", "claude-haiku-5-5"),
            ("regex", "^claude-haiku-5-5-\\d{8}$"),
            ("starts_with", "claude-haiku-5-5@"),
            ("starts_with", "claude-haiku-5.5"),
            ("starts_with", "claude-5-5-haiku"),
            ("starts_with", "claude-5.5-haiku"),
        ),
        (("", 100000, (0.1, 0.5, 0.01, 0.125, 0.2), (0.5, 2.5, 0.05, 0.625, 1.0), 10.0),),
    ),
    (
        (
            ("starts_with", "claude-opus-4-0"),
            ("starts_with", "claude-4-opus"),
            ("equals", "claude-opus-4"),
            ("equals", "claude-opus-4-20250514"),
        ),
        (("", 0, (15.0, 75.0, 1.5, 18.75, 30.0), (15.0, 75.0, 1.5, 18.75, 30.0), 10.0),),
    ),
    (
        (("starts_with", "claude-opus-4-1"), ("starts_with", "claude-opus-4.1")),
        (("", 0, (15.0, 75.0, 1.5, 18.75, 30.0), (15.0, 75.0, 1.5, 18.75, 30.0), 10.0),),
    ),
    (
        (
            ("starts_with", "claude-opus-4-5"),
            ("starts_with", "claude-opus-4.5"),
            ("starts_with", "claude-4-5-opus"),
            ("starts_with", "claude-4.5-opus"),
        ),
        (("", 0, (5.0, 25.0, 0.5, 6.25, 10.0), (5.0, 25.0, 0.5, 6.25, 10.0), 10.0),),
    ),
    (
        (
            ("starts_with", "claude-opus-4-6"),
            ("starts_with", "claude-opus-4.6"),
            ("starts_with", "claude-4-6-opus"),
            ("starts_with", "claude-4.6-opus"),
        ),
        (
            ("2026-03-13", 0, (5.0, 25.0, 0.5, 6.25, 10.0), (5.0, 25.0, 0.5, 6.25, 10.0), 10.0),
            ("", 200000, (5.0, 25.0, 0.5, 6.25, 10.0), (10.0, 37.5, 1.0, 12.5, 20.0), 10.0),
        ),
    ),
    (
        (
            ("starts_with", "claude-opus-4-7"),
            ("starts_with", "claude-opus-4.7"),
            ("starts_with", "claude-4-7-opus"),
            ("starts_with", "claude-4.7-opus"),
        ),
        (("", 0, (5.0, 25.0, 0.5, 6.25, 10.0), (5.0, 25.0, 0.5, 6.25, 10.0), 10.0),),
    ),
    (
        (
            ("starts_with", "claude-opus-4-8"),
            ("starts_with", "claude-opus-4.8"),
            ("starts_with", "claude-4-8-opus"),
            ("starts_with", "claude-4.8-opus"),
        ),
        (("", 0, (5.0, 25.0, 0.5, 6.25, 10.0), (5.0, 25.0, 0.5, 6.25, 10.0), 10.0),),
    ),
    (
        (
            ("equals", "claude-opus-5"),
            ("equals", "claude-opus-5-latest"),
            ("regex", "^claude-opus-5[-@]\\d{8}$"),
            ("regex", "^claude-opus-5-\\d{4}-\\d{2}-\\d{2}$"),
            ("starts_with", "claude-opus-5.0"),
            ("starts_with", "claude-5-opus"),
            ("starts_with", "claude-5.0-opus"),
        ),
        (("", 0, (5.0, 25.0, 0.5, 6.25, 10.0), (5.0, 25.0, 0.5, 6.25, 10.0), 10.0),),
    ),
    (
        (
            ("equals", "claude-opus-5-5"),
            ("regex", "^claude-opus-5-5-\\d{8}$"),
            ("starts_with", "claude-opus-5.5"),
            ("starts_with", "claude-5-5-opus"),
            ("starts_with", "claude-5.5-opus"),
        ),
        (("", 0, (4.0, 20.0, 0.2, 5.0, 8.0), (4.0, 20.0, 0.2, 5.0, 8.0), 10.0),),
    ),
    (
        (
            ("starts_with", "claude-sonnet-4-2025"),
            ("starts_with", "claude-sonnet-4-0"),
            ("starts_with", "claude-sonnet-4@"),
            ("equals", "claude-sonnet-4"),
            ("starts_with", "claude-4-sonnet"),
        ),
        (("", 0, (3.0, 15.0, 0.3, 3.75, 6.0), (3.0, 15.0, 0.3, 3.75, 6.0), 10.0),),
    ),
    (
        (("starts_with", "claude-sonnet-4-5"), ("starts_with", "claude-sonnet-4.5")),
        (("", 200000, (3.0, 15.0, 0.3, 3.75, 6.0), (6.0, 22.5, 0.6, 7.5, 12.0), 10.0),),
    ),
    (
        (("starts_with", "claude-sonnet-4-6"), ("starts_with", "claude-sonnet-4.6")),
        (
            ("2026-03-13", 0, (3.0, 15.0, 0.3, 3.75, 6.0), (3.0, 15.0, 0.3, 3.75, 6.0), 10.0),
            ("", 200000, (3.0, 15.0, 0.3, 3.75, 6.0), (6.0, 22.5, 0.6, 7.5, 12.0), 10.0),
        ),
    ),
    (
        (
            ("equals", "claude-sonnet-5"),
            ("regex", "^claude-sonnet-5-\\d{8}$"),
            ("starts_with", "claude-sonnet-5@"),
            ("starts_with", "claude-sonnet-5.0"),
            ("starts_with", "claude-5-sonnet"),
            ("starts_with", "claude-5.0-sonnet"),
        ),
        (("", 0, (2.0, 10.0, 0.2, 2.5, 4.0), (2.0, 10.0, 0.2, 2.5, 4.0), 10.0),),
    ),
    (
        (
            ("equals", "claude-sonnet-5-5"),
            ("regex", "^claude-sonnet-5-5-\\d{8}$"),
            ("starts_with", "claude-sonnet-5-5@"),
            ("starts_with", "claude-sonnet-5.5"),
            ("starts_with", "claude-5-5-sonnet"),
            ("starts_with", "claude-5.5-sonnet"),
        ),
        (("", 0, (2.0, 10.0, 0.1, 2.5, 4.0), (2.0, 10.0, 0.1, 2.5, 4.0), 10.0),),
    ),
    ((("equals", "claude-v1"),), (("", 0, (8.0, 24.0, 8.0, 8.0, 8.0), (8.0, 24.0, 8.0, 8.0, 8.0), 0.0),)),
)
