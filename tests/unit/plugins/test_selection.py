"""What the markers leave out, and in which order the rest runs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ("pytester",)
ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import pytest

def test_new(): pass

@pytest.mark.full("long")
def test_long(): pass

@pytest.mark.parametrize("system", ["first", pytest.param("twin", marks=pytest.mark.full)])
def test_each(system): pass
"""
MANY = "\n".join(f"def test_{number}(): pass" for number in range(20))


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite of its own, run by processes that know the plugin."""
    monkeypatch.delenv("CONTRACT_FULL", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\naddopts = -p tests.plugins.selection\nmarkers =\n  full\n  slow\n")
    return pytester


def ran(suite: pytest.Pytester, *words: str) -> list[str]:
    lines = suite.runpytest_subprocess("-v", *words).outlines
    return [line.split(" PASSED")[0] for line in lines if " PASSED" in line]


def test_a_new_test_runs_by_default_and_what_is_marked_full_when_it_is_asked_for(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.makepyfile(test_some=TESTS)
    default = ["test_some.py::test_new", "test_some.py::test_each[first]"]
    whole = [default[0], "test_some.py::test_long", default[1], "test_some.py::test_each[twin]"]
    assert ran(suite) == default
    assert ran(suite, "--full") == whole
    assert ran(suite, "-m", "full") == [whole[1], whole[3]]
    monkeypatch.setenv("CONTRACT_FULL", "1")
    assert ran(suite) == whole


def test_an_order_is_random_within_and_between_files_and_can_be_repeated(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_a=MANY, test_b=MANY, test_c=MANY)
    first = ran(suite, "--shuffle", "1")
    assert first == ran(suite, "--shuffle", "1")
    assert first != sorted(first)
    assert sorted(first) == sorted(ran(suite))
    files = [name.partition("::")[0] for name in first]
    assert len([file for file, before in zip(files, ["", *files], strict=False) if file != before]) == 3


def test_a_file_with_a_slow_test_is_begun_first(suite: pytest.Pytester) -> None:
    slow = "import pytest\n@pytest.mark.slow\ndef test_slow(): pass\n"
    suite.makepyfile(test_a="def test_quick(): pass", test_b=slow)
    assert ran(suite) == ["test_b.py::test_slow", "test_a.py::test_quick"]


def test_workers_run_an_order_that_was_not_named(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_a=MANY, test_b=MANY)
    done = suite.runpytest_subprocess("-p", "xdist", "-n", "2", "--dist", "loadfile", "--shuffle")
    done.assert_outcomes(passed=40)
