#!/usr/bin/env bash
# Build the wheel, install it into an empty environment as a stranger would, and use it.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
.venv/bin/python -m build --wheel --no-isolation --outdir "$root/dist" . >/dev/null
.venv/bin/python -m build --sdist --no-isolation --outdir "$root/dist" . >/dev/null
python3 -m tarfile --list "$root"/dist/flightlog-*.tar.gz >"$root/sources"
# Into a file: a search that ends early would break the pipe, and with it the listing.
python3 -m zipfile --list "$root"/dist/flightlog-*.whl >"$root/listing"
for name in htmx.js d3.js plot.js; do
  grep -q "web/static/vendor/$name" "$root/listing" || { echo "the wheel lacks $name" >&2; exit 1; }
  grep -q "web/static/vendor/$name" "$root/sources" || { echo "the source archive lacks $name" >&2; exit 1; }
done
python3 -m venv "$root/venv"
"$root/venv/bin/python" -m pip --quiet install --no-input "$root"/dist/flightlog-*.whl
mkdir "$root/home"
stranger() { env -i PATH="$root/venv/bin:$PATH" HOME="$root/home" LANG=C.UTF-8 "$@"; }
cd "$root"
stranger flightlog --version
stranger flightlog up >"$root/up.txt"
grep -q "each response counted once" "$root/up.txt"
stranger flightlog demo --json >"$root/demo.json"
stranger python -c 'import json, sys; told = json.load(open(sys.argv[1])); assert told["session"]["turns"]' "$root/demo.json"
stranger python -c 'from ralph_runtime import RalphRuntime; RalphRuntime("session-001", max_iterations=50, confidence_threshold=0.7)'
for name in ralph-runtime harness chat-retro issue-workflow ml-data-collector; do stranger "$name" --help >/dev/null; done
stranger python -c "import ml_data_collector; ml_data_collector.append_chat_to_jsonl"
test -z "$(find "$root/home" -type f)" || { echo "a report wrote into the home directory" >&2; exit 1; }
stranger timeout --signal=INT 5 flightlog serve --no-open >"$root/serve.txt" 2>&1 || true
grep -q "^http://127.0.0.1:" "$root/serve.txt"
echo "the wheel installs and works"
