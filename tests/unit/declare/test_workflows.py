"""The jobs of a workflow: named by text or by their pipeline."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, ematix, pk
from ematix_flow.foundation.errors import DeclarationError


@ematix.table(schema="raw")
class Ids:
    id: Annotated[BigInt, pk()]


def declare(name: str) -> Any:
    return ematix.pipeline(target=Ids, mode="append", name=name)(lambda conn: "SELECT 1 AS id")


def test_one_pipeline_alone_counts_as_a_list_of_one() -> None:
    orders = declare("orders")
    assert ematix.workflow(name="nightly", jobs=orders, schedule="0 3 * * *").jobs == ("orders",)
    assert ematix.workflow(name="nightly", jobs="orders", schedule="0 3 * * *").jobs == ("orders",)


def test_a_pipeline_and_its_own_name_are_one_job() -> None:
    orders = declare("orders")
    with pytest.raises(DeclarationError, match="workflow nightly names the job orders twice"):
        ematix.workflow(name="nightly", jobs=[orders, "orders"], schedule="0 3 * * *")


@pytest.mark.parametrize("jobs", [[3], 3, [None], [""]], ids=repr)
def test_what_is_no_job_is_refused_with_an_example(jobs: Any) -> None:
    with pytest.raises(DeclarationError, match="workflow nightly: a job is a pipeline or its name") as caught:
        ematix.workflow(name="nightly", jobs=jobs, schedule="0 3 * * *")
    assert caught.value.hint == 'for example jobs=["orders", "customers"]'
