# Shared by the tools: places, progress lines, and how to become root. Source it.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The models and the tests' Python packages live here, outside every checkout.
CACHE=${SPILLWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/spillway}

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Runs a command as root: directly, or by sudo where it may.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    sudo "$@"
  else
    return 1
  fi
}
