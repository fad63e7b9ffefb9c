#!/usr/bin/env bash
# What the tests of the status line need: a terminal that can be looked at (Debian's tmux).
set -euo pipefail
if ! command -v tmux >/dev/null; then
  as_root=$([ "$(id -u)" = 0 ] || echo sudo)
  $as_root apt-get update -qq
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends tmux >/dev/null
fi
