"""The contestants that many cases share."""

from __future__ import annotations

from dataclasses import replace

from bench.model import PRODUCT, SAIL, STOCK, WARM, Contestant


def product(pipeline: str) -> Contestant:
    """The product: `flow run` of a module in bench/pipelines, whose pipeline has the same name."""
    return Contestant(
        name=PRODUCT,
        label="this product",
        command=("{bin}/flow", "run", pipeline, "--module", f"{{pipelines}}/{pipeline}.py"),
        marks_rows=True,
    )


def on_warm_engine(ours: Contestant, *, warmups: int = 1) -> Contestant:
    """The same command as a client of an engine that `flow engine start` has started before the first run."""
    return replace(
        ours,
        name=WARM,
        label="this product, warm engine",
        opens=("{bin}/flow", "engine", "start"),
        closes=("{bin}/flow", "engine", "stop"),
        warmups=warmups,
    )


def cold_and_warm(pipeline: str, *, warmups: int = 1) -> tuple[Contestant, Contestant]:
    """The product twice: with a Spark process of its own, and on a warm engine."""
    ours = product(pipeline)
    return ours, on_warm_engine(ours, warmups=warmups)


def product_stream(pipeline: str) -> Contestant:
    """The product: `flow consume` of a stream in bench/pipelines, until everything is read."""
    return replace(product(pipeline), command=(*consume(pipeline), "--once"))


def consume(pipeline: str) -> tuple[str, ...]:
    """The command that runs a stream of bench/pipelines."""
    return ("{bin}/flow", "consume", pipeline, "--module", f"{{pipelines}}/{pipeline}.py")


def on_sail(ours: Contestant) -> Contestant:
    """The same command on the native engine, with no Java to be found."""
    variables = (*ours.variables, ("EMATIX_FLOW_ENGINE", SAIL), ("JAVA_HOME", ""), ("PATH", "{bin}"))
    return replace(ours, name=SAIL, label="this product, engine sail", variables=variables)


def stock(script: str, *jars: str) -> Contestant:
    """PySpark as it comes: the script that is written by hand, with default settings and the jars it needs."""
    return Contestant(
        name=STOCK,
        label="stock PySpark",
        command=("{bin}/python", f"{{peers}}/stock/{script}.py"),
        jars=jars,
    )


def bare(script: str, *jars: str) -> Contestant:
    """Structured Streaming without anything around it: the job that is written by hand."""
    return replace(stock(script, *jars), label="bare Structured Streaming")


def connectorx(script: str) -> Contestant:
    """connectorx and pyarrow, without Spark."""
    return _peer("connectorx", "connectorx + pyarrow", script)


def polars(script: str) -> Contestant:
    """Polars."""
    return _peer("polars", "Polars", script)


def dlt(script: str) -> Contestant:
    """dlt, reading with connectorx."""
    quiet = (("RUNTIME__DLTHUB_TELEMETRY", "false"), ("RUNTIME__LOG_LEVEL", "ERROR"))
    return replace(_peer("dlt", "dlt (connectorx)", script), variables=quiet)


def duckdb(script: str, *, environment: str = "duckdb") -> Contestant:
    """DuckDB alone."""
    return replace(_peer("duckdb", "DuckDB", script), environment=environment)


def original(pipeline: str) -> Contestant:
    """ematix-flow 1.0.0, whose batch path knows PostgreSQL only."""
    return Contestant(
        name="original",
        label="ematix-flow 1.0.0",
        command=("{bin}/flow", "run", pipeline, "--module", "orders_of_the_original"),
        variables=(("PYTHONPATH", "{peers}/original"),),
        marks_rows=True,
    )


def _peer(name: str, label: str, script: str) -> Contestant:
    return Contestant(name=name, label=label, command=("{bin}/python", f"{{peers}}/{name}/{script}.py"))
