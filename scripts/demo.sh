#!/usr/bin/env bash
# The demo is an example project of its own; this only starts it.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -e examples/shop/run_demo.sh ]; then
  echo "demo: examples/shop/run_demo.sh is missing" >&2
  exit 1
fi
exec bash examples/shop/run_demo.sh
