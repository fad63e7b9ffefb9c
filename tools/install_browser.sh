#!/usr/bin/env bash
# What the tests of the pages need: a Chromium (Debian's) and the accessibility judge in .tools/web.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
  as_root=$([ "$(id -u)" = 0 ] || echo sudo)
  $as_root apt-get update -qq
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
fi
mkdir -p .tools/web
exec 9>.tools/web/.lock
flock 9
if cmp --silent tools/web/package-lock.json .tools/web/.installed; then exit 0; fi
cp tools/web/package.json tools/web/package-lock.json .tools/web/
npm ci --prefix .tools/web --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
cp tools/web/package-lock.json .tools/web/.installed
