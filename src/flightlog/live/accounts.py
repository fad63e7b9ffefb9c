"""One account over several configuration directories: its payments everywhere, its one profile."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import NamedTuple

import msgspec

from flightlog.live.billing import Payment, newest_limits
from flightlog.live.state import AuthProfile, RuntimeState
from flightlog.live.state_file import runtime_state
from flightlog.store import files

PAYMENTS = "payments.bin"


class LedgerPlace(NamedTuple):
    """The directory of a ledger, the time, and the profiles of all other directories.

    `paid_elsewhere` are the payments of each account in those directories.
    """

    config_dir: str
    now_ms: int
    others: Sequence[AuthProfile] = ()
    paid_elsewhere: Mapping[str, Sequence[Payment]] = {}


def read_ledger_place(config_dir: str, peers: Sequence[Path], now_ms: int) -> LedgerPlace:
    """Return the place of a ledger; `peers` are the state folders of all other directories."""
    states = [runtime_state.read_state(folder, now_ms) for folder in peers]
    others = [profile for state in states for profile in state.auth_profiles]
    paid = defaultdict[str, list[Payment]](list)
    for payments in map(_load_payments, peers):
        for account, own in payments.items():
            paid[account] += own
    return LedgerPlace(config_dir, now_ms, others, paid)


def save_payments(folder: Path, payments: Mapping[str, Sequence[Payment]]) -> None:
    """Store what each account paid in this directory, for the collections of the other ones."""
    data = msgspec.msgpack.encode(payments)
    files.replace_file(folder / runtime_state.OWN / PAYMENTS, data, durable=False)


def merge_accounts(states: Iterable[RuntimeState]) -> list[AuthProfile]:
    """Return one profile per account: of its directories' figures, the newest count.

    Without a fingerprint the profiles of two directories stay two.
    """
    merged: dict[tuple[int, str], AuthProfile] = {}
    for number, state in enumerate(states):
        for profile in state.auth_profiles:
            account = profile.billing_fingerprint
            key = (-1, account) if account else (number, profile.profile_id)
            first = merged.setdefault(key, copy(profile))
            bill, newer = first.billing, profile.billing
            # Of two that were collected together, the later one knows the payments of the other.
            if newer.last_fetched >= bill.last_fetched:
                first.billing = copy(newer)
            limits = [bill.limits, newer.limits]
            first.billing.limits = newest_limits(limits, first.billing.last_fetched)
    return list(merged.values())


def _load_payments(folder: Path) -> dict[str, list[Payment]]:
    try:
        data = (folder / runtime_state.OWN / PAYMENTS).read_bytes()
        return msgspec.msgpack.decode(data, type=dict[str, list[Payment]])
    except (OSError, msgspec.MsgspecError):
        return {}
