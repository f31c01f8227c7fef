#!/usr/bin/env bash
# Choose the packages of requirements.lock anew; further words (--upgrade, --upgrade-package NAME) go to the resolver.
set -euo pipefail
cd "$(dirname "$0")/.."

.venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==0.13.7"
.venv/bin/uv pip compile pyproject.toml --all-extras --group dev --group build \
  --universal --python-version 3.10 --generate-hashes --no-header --no-annotate --no-emit-index-url \
  --quiet --output-file requirements.lock "$@"

if grep -n "://" requirements.lock; then
  echo "lock: requirements.lock names a host (above): it has to work with any index" >&2
  exit 1
fi
echo "lock: $(grep -c '^[a-z]' requirements.lock) packages in requirements.lock; make setup installs them"
