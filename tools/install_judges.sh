#!/usr/bin/env bash
# Install the judges of trajectories into .tools/judges, apart from .venv. Does nothing when they are there.
#
# Harbor's validator needs pydantic and nothing else of what its package asks for, and it runs on Python 3.11 although
# the package says 3.12: its modules use nothing newer. Each version has a directory of its own; Inspect Scout brings
# pydantic, and imports trajectories through Harbor's newest models.
set -euo pipefail
cd "$(dirname "$0")/.."
to=.tools/judges
mkdir -p "$to"
exec 9>"$to/.lock"
flock 9
pins=$(cat requirements/judges.txt tools/judges/*.txt | sha256sum)
if [ "$(cat "$to/.installed" 2>/dev/null)" = "$pins" ]; then exit 0; fi
rm -rf "$to/scout" "$to"/harbor-* "$to/.installed"

python=.venv/bin/python
# uv links where pip copies: seconds instead of minutes. Where it finds no index, pip does.
if ! { .venv/bin/uv venv --quiet --python "$python" "$to/scout" &&
  .venv/bin/uv pip install --quiet --python "$to/scout/bin/python" --require-hashes -r requirements/judges.txt; }; then
  rm -rf "$to/scout"
  "$python" -m venv --without-pip "$to/scout"
  "$python" -m pip --python "$to/scout/bin/python" --quiet install --no-input --require-hashes -r requirements/judges.txt
fi
for pin in tools/judges/harbor-*.txt; do
  "$python" -m pip --quiet install --no-input --no-deps --ignore-requires-python --require-hashes --no-compile \
    --target "$to/$(basename "$pin" .txt)" -r "$pin"
done
for each in "$to"/harbor-*; do
  PYTHONPATH=$each "$to/scout/bin/python" -c 'import harbor.utils.trajectory_validator'
done
echo "$pins" >"$to/.installed"
