"""What Spark says by itself."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException


def test_a_mistake_in_sql_is_not_printed_with_the_stack_of_the_jvm(
    spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AnalysisException):
        spark.sql("SELECT nope")
    assert capfd.readouterr() == ("", "")
