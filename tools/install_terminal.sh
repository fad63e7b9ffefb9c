#!/usr/bin/env bash
# What tests of what people see need: a terminal that can be looked at (tmux), and what man pages are set with (groff).
set -euo pipefail
if ! command -v tmux >/dev/null || ! command -v groff >/dev/null; then
  as_root=$([ "$(id -u)" = 0 ] || echo sudo)
  $as_root apt-get update -qq
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends tmux groff-base >/dev/null
fi
