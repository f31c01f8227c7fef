#!/usr/bin/env bash
# Choose the packages of the lock files anew; further words (--upgrade, --upgrade-package NAME) go to the resolver.
#
# uv.lock would name the index and the address of every file; these files have hashes only and work with any index.
set -euo pipefail
cd "$(dirname "$0")/.."

locked() {
  local file=$1
  shift
  ${UV:-.venv/bin/uv} pip compile pyproject.toml --universal --python-version 3.10 --generate-hashes --no-header --no-annotate \
    --no-emit-index-url --quiet --output-file "$file" "$@"
}

locked requirements.lock --extra all --extra native --group dev --group build "$@"
# Installed by make setup only where there is no Java and no root.
locked requirements-java.lock --extra java --constraint requirements.lock
# What the demo uses, and what installs and builds packages: parts of the same choice.
locked requirements-demo.lock --extra sqlite --extra duckdb --extra delta --extra engine --group build --constraint requirements.lock
${UV:-.venv/bin/uv} pip compile --group build --universal --python-version 3.10 --generate-hashes --no-header --no-annotate \
  --no-emit-index-url --quiet --constraint requirements.lock --output-file requirements-build.lock

if grep -n "://" requirements*.lock; then
  echo "lock: a lock file names a host (above): it has to work with any index" >&2
  exit 1
fi
echo "lock: $(grep -c '^[a-z]' requirements.lock) packages in requirements.lock; make setup installs them"
