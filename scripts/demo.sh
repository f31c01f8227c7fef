#!/usr/bin/env bash
# A small shop in SQLite, CSV and JSON lines goes into DuckDB and Delta Lake, twice, with changes in between.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export PATH="$root/.venv/bin:$PATH"
shop="$root/.demo/shop"
export EMATIX_FLOW_RUN_LOG_PATH="$root/.demo/run_log.db" EMATIX_FLOW_LOGS_DIR="$root/.demo/logs"
# One engine for both days, beside any that the user keeps; the socket in its folder needs a short path.
EMATIX_FLOW_ENGINE_DIR=$(mktemp -d "${TMPDIR:-/tmp}/flow-demo-XXXXXX")
export EMATIX_FLOW_ENGINE_DIR EMATIX_FLOW_KEEP_WARM=1
trap 'flow engine stop >/dev/null 2>&1 || true; rm -rf "$EMATIX_FLOW_ENGINE_DIR"' EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
now() { python -c 'import time; print(time.monotonic())'; }
since() { python -c 'import sys, time; print(f"{time.monotonic() - float(sys.argv[1]):.1f} s")' "$1"; }

began=$(now)
rm -rf "$root/.demo"
say "A small shop"
flow init "$shop" 2>/dev/null
cp "$root"/examples/shop/*.py "$shop/"
cd "$shop"

say "Day one: everything is new"
day=$(now)
flow run --module reviews --all
printf '  day one: %s, with the start of Spark\n' "$(since "$day")"

say "Day two: $(python next_day.py)"
day=$(now)
flow run --module reviews --all
printf '  day two: %s\n' "$(since "$day")"

say "What happened"
flow runs list

say "Where the data is"
python show.py

say "The same 4,000 orders, CSV into DuckDB"
flow init "$root/.demo/again" >/dev/null 2>&1
cd "$root/.demo/again"
load=$(now)
flow run --module pipelines load_orders
printf '  flow run, from start to end of the command                       %s\n' "$(since "$load")"
flow engine stop >/dev/null 2>&1
load=$(now)
python "$shop/by_hand.py" >/dev/null 2>&1
printf '  plain PySpark written by hand (by_hand.py), starts its own Spark %s\n' "$(since "$load")"

printf '\n  after set-up the demo took %s; no engine is left running\n' "$(since "$began")"
printf '  try: cd %s && flow preview --module reviews sync_customers --rows 5\n' "${shop#"$root/"}"
