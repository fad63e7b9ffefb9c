"""The names source document 004 uses, one more way into the dataset: nothing is done here twice.

    from ml_data_collector import append_chat_to_jsonl
    append_chat_to_jsonl({"id": "chat-20251216-150332-abc123", "session_id": "13a84f73", "input": "…", …})

Records are redacted, words are withheld unless the project agreed to track them, and what is written
is a shard: appending to one file is what makes branches conflict.
"""

import sys
from typing import Any

from flightlog.app.collector import (
    append_chat_to_jsonl,
    append_session_to_jsonl,
    append_to_tracked_jsonl,
    end_session,
    save_chat_entry,
)

__all__ = [
    "append_chat_to_jsonl",
    "append_session_to_jsonl",
    "append_to_tracked_jsonl",
    "end_session",
    "main",
    "save_chat_entry",
]


def main(arguments: list[str] | None = None) -> Any:
    """Run `ml-data-collector`."""
    from flightlog.cli.root import run_alias  # noqa: PLC0415 - importing this module must stay quick

    sys.exit(run_alias("dataset", "ml-data-collector", sys.argv[1:] if arguments is None else arguments))


if __name__ == "__main__":
    main()
