#!/bin/sh
# Say which Python .venv is made from: the first that is new enough and whole (docs/decisions/0014).
for each in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do
  if "$each" -c 'import ensurepip, sqlite3, ssl, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "$each"
    exit
  fi
done
echo "flightlog needs Python 3.11 or newer, with venv: install it (apt install python3-venv), or name one: make PYTHON=…" >&2
exit 1
