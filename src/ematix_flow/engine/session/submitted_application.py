"""The session of a process started by spark-submit: that of its application, with the submitted settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.engine import DISTRIBUTED, LOCAL
from ematix_flow.engine.cluster import master_urls, shipping
from ematix_flow.engine.session.engine_choice import EngineChoice, use_application
from ematix_flow.foundation.errors import RunFailed
from ematix_flow.foundation.redact import mask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REASON = "spark-submit"


def describe_submission(choice: EngineChoice, shown: Mapping[str, str]) -> dict[str, Any]:
    """Return the submission for the driver's command line, without secrets; `shown` are the settings, masked."""
    return {
        "engine": choice.engine,
        "master": choice.address,
        "settings": dict(shown),
        "jars": sorted(choice.submitted_with or ()),
        "wait": choice.wait_seconds,
    }


def enter_application(described: Mapping[str, Any]) -> None:
    """Make this process the driver of the described application, which executes all its runs."""
    use_application(
        EngineChoice(
            engine=DISTRIBUTED if described["engine"] == DISTRIBUTED else LOCAL,
            address=described["master"],
            may_join=False,
            settings=described["settings"],
            reason=f"{REASON} says so",
            origin=REASON,
            wait_seconds=float(described["wait"]),
            submitted_with=frozenset(described["jars"]),
        )
    )


def application_session(wanted: set[str], choice: EngineChoice) -> SparkSession:
    """Return the application's session, whose JVM already runs; raise RunFailed without the needed jars."""
    from pyspark.sql import SparkSession

    missing = sorted(wanted - (choice.submitted_with or frozenset()))
    if missing:
        raise RunFailed(
            f"this application was submitted without the jars of {', '.join(missing)}",
            hint="let the scheduler load the same module as the worker, and run it again",
        )
    try:
        session = SparkSession.builder.getOrCreate()
    except Exception as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise RunFailed(
            f"no session on {master_urls.shown_address(choice.address)}: {mask(first[:300])}",
            hint="Spark's own words are in the output of spark-submit",
        ) from None
    if choice.engine == DISTRIBUTED:
        shipping.ship_package(session)
    return session
