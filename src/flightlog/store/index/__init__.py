"""The index: a disposable SQLite file. `database` opens it, other modules have its levels."""
