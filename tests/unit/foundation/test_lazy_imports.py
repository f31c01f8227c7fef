"""Libraries that are imported when they are first used."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.errors import MissingDriver
from ematix_flow.foundation.lazy_imports import LazyModule


def test_a_module_is_imported_with_the_first_of_its_names() -> None:
    code = (
        "import sys; from ematix_flow.foundation.lazy_imports import exp, f, pa, pc, pq, sqlglot, t\n"
        "heavy = ('pyarrow', 'pyspark', 'sqlglot')\n"
        "assert not any(name in sys.modules for name in heavy)\n"
        "hasattr(pa, '__wrapped__')\n"
        "assert 'pyarrow' not in sys.modules\n"
        "assert str(pa.int64()) == 'int64' and 'pyspark' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_lazy_module_is_pickled_by_its_name() -> None:
    lazy = LazyModule("json", needed_by="nothing", package="json", extra="none")
    assert lazy.dumps([1]) == "[1]"
    assert pickle.loads(pickle.dumps(lazy)).loads("[1]") == [1]


def test_a_missing_package_names_the_command_that_installs_it() -> None:
    with pytest.raises(MissingDriver, match="SQLite needs flow-absent, which is not installed") as caught:
        require_driver("flow_absent.part", needed_by="SQLite", package="flow-absent", extra="sqlite")
    assert caught.value.hint == 'pip install "ematix-flow-spark[sqlite]"'
    with pytest.raises(MissingDriver, match="flow_absent"):
        _ = LazyModule("flow_absent", needed_by="SQLite", package="flow_absent", extra="sqlite").connect
