#!/usr/bin/env bash
# Install the pinned Claude Code clients the tests run into .tools/agents/VERSION/claude. Does nothing when they are there.
#
# The lock files hold checksums and no addresses; to pin again, in a directory below tools/agents:
#   npm install --package-lock-only --omit-lockfile-registry-resolved
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .tools/agents
exec 9>.tools/agents/.lock
flock 9

install_one() {
  local version=$1 from=tools/agents/$1 to=.tools/agents/$1 entry
  if cmp --silent "$from/package-lock.json" "$to/.installed"; then return; fi
  rm -rf "$to"
  mkdir -p "$to"
  cp "$from/package.json" "$from/package-lock.json" "$to/"
  # No install scripts and no optional image library: the clients run without both.
  npm ci --prefix "$to" --ignore-scripts --omit=optional --no-audit --no-fund --loglevel=error >/dev/null
  for entry in claude-code-linux-x64/claude claude-code/cli.js; do
    if [ -f "$to/node_modules/@anthropic-ai/$entry" ]; then
      chmod +x "$to/node_modules/@anthropic-ai/$entry"
      ln -sf "node_modules/@anthropic-ai/$entry" "$to/claude"
    fi
  done
  # A client writes to its home even when asked for its version: give it one of its own.
  mkdir -p "$to/home"
  env -i PATH="$PATH" HOME="$PWD/$to/home" DISABLE_AUTOUPDATER=1 DISABLE_TELEMETRY=1 "$to/claude" --version | grep -qF "$version"
  rm -rf "$to/home"
  cp "$from/package-lock.json" "$to/.installed"
}

for version in ${*:-$(ls tools/agents)}; do install_one "$version"; done
