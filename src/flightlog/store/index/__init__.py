"""The index: a disposable file of answers; `database` opens it, `usage`, `lines` and `text` are its three levels."""
