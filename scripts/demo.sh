#!/usr/bin/env bash
# A small shop in SQLite, CSV and JSON lines goes into DuckDB and Delta Lake, twice, with changes in between.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export PATH="$root/.venv/bin:$PATH"
shop="$root/.demo/shop"
export EMATIX_FLOW_RUN_LOG_PATH="$root/.demo/run_log.db" EMATIX_FLOW_LOGS_DIR="$root/.demo/logs"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

rm -rf "$root/.demo"
say "A small shop"
flow init "$shop" 2>/dev/null
cp "$root"/examples/shop/*.py "$shop/"
cd "$shop"

say "Day one: everything is new"
flow run --module reviews --all

say "Day two: $(python next_day.py)"
flow run --module reviews --all

say "What happened"
flow runs list

say "Where the data is"
python show.py
printf '\n  try: cd %s && flow preview --module reviews sync_customers --rows 5\n' "${shop#"$root/"}"
