"""OpenLineage run events: the inputs and outputs of a pipeline as JSON for data catalogs."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.strategy import Truncate
from ematix_flow.foundation.packages import __version__
from ematix_flow.foundation.redact import mask
from ematix_flow.lineage.declared import InputColumn, Lineage, OutputTable, target_connection, target_dataset
from ematix_flow.run_log.records import RunRecord

START, COMPLETE, FAIL, ABORT = "START", "COMPLETE", "FAIL", "ABORT"
NAMESPACE = "ematix-flow"
PRODUCER = f"urn:ematix-flow:{__version__}"
_SPEC = "https://openlineage.io/spec"
SCHEMA = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS = {
    "schema": ("1-2-0", "SchemaDatasetFacet"),
    "columnLineage": ("1-2-0", "ColumnLineageDatasetFacet"),
    "lifecycleStateChange": ("1-0-1", "LifecycleStateChangeDatasetFacet"),
    "outputStatistics": ("1-0-2", "OutputStatisticsOutputDatasetFacet"),
    "inputStatistics": ("1-0-0", "InputStatisticsInputDatasetFacet"),
    "jobType": ("2-0-4", "JobTypeJobFacet"),
    "sql": ("1-1-0", "SQLJobFacet"),
    "documentation": ("1-1-0", "DocumentationJobFacet"),
    "errorMessage": ("1-0-1", "ErrorMessageRunFacet"),
    "processing_engine": ("1-1-1", "ProcessingEngineRunFacet"),
    "nominalTime": ("1-0-1", "NominalTimeRunFacet"),
}
"""Version and name of every facet that is sent."""


def run_event(
    kind: str,
    spec: PipelineSpec,
    lineage: Lineage,
    *,
    run_id: str,
    at: datetime,
    record: RunRecord | None = None,
    namespace: str = NAMESPACE,
    scheduled_for: datetime | None = None,
) -> dict[str, Any]:
    """Return one event of a run, ready for JSON; `record` adds the counts of the run or its error."""
    listed = record.extras.get("targets") if record is not None else None
    targets = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, Sequence) else []
    return {
        "eventType": kind,
        "eventTime": at.isoformat(),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": run_id, "facets": _run_facets(record, scheduled_for)},
        "job": {"namespace": namespace, "name": spec.name, "facets": _job_facets(spec, lineage)},
        "inputs": _inputs(lineage, targets),
        "outputs": [_output(spec, output, targets) for output in lineage.outputs],
    }


def facet(kind: str, /, **content: Any) -> dict[str, Any]:
    """Return a facet with the two fields that every facet has."""
    version, title = FACETS[kind]
    return {
        "_producer": PRODUCER,
        "_schemaURL": f"{_SPEC}/facets/{version}/{title}.json#/$defs/{title}",
        **content,
    }


def _run_facets(record: RunRecord | None, scheduled_for: datetime | None) -> dict[str, Any]:
    facets = {
        "processing_engine": facet(
            "processing_engine", version=_version_of("pyspark"), name="spark", openlineageAdapterVersion=__version__
        )
    }
    if scheduled_for is not None:
        facets["nominalTime"] = facet("nominalTime", nominalStartTime=scheduled_for.isoformat())
    if record is not None and record.status == "failed":
        message = record.error_summary or "it failed"
        facets["errorMessage"] = facet("errorMessage", message=mask(message), programmingLanguage="PYTHON")
    return facets


def _job_facets(spec: PipelineSpec, lineage: Lineage) -> dict[str, Any]:
    facets = {
        "jobType": facet("jobType", processingType="BATCH", integration="EMATIX_FLOW", jobType="PIPELINE"),
    }
    if lineage.query:
        facets["sql"] = facet("sql", query=mask(lineage.query), dialect=lineage.dialect)
    docstring = getattr(spec.function, "__doc__", None)
    if docstring:
        facets["documentation"] = facet("documentation", description=mask(docstring.strip()), contentType="text/plain")
    return facets


def _inputs(lineage: Lineage, targets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    inputs: list[dict[str, Any]] = [
        {"namespace": one.namespace, "name": one.name, "facets": {}} for one in lineage.inputs
    ]
    read = [target["rows_read"] for target in targets if isinstance(target.get("rows_read"), int)]
    if len(inputs) == 1 and read:
        inputs[0]["inputFacets"] = {"inputStatistics": facet("inputStatistics", rowCount=max(read))}
    return inputs


def _output(spec: PipelineSpec, output: OutputTable, targets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    facets = {
        "schema": facet("schema", fields=[{"name": name, "type": kind} for name, kind in output.columns]),
    }
    if output.origins or output.conditions:
        facets["columnLineage"] = facet(
            "columnLineage",
            fields={name: {"inputFields": _fields(columns)} for name, columns in output.origins.items()},
            **({"dataset": _fields(output.conditions)} if output.conditions else {}),
        )
    load = next((one for one in spec.loads if target_dataset(one) == output.dataset), None)
    if load is not None and isinstance(load.strategy, Truncate):
        facets["lifecycleStateChange"] = facet("lifecycleStateChange", lifecycleStateChange="OVERWRITE")
    counted = _counts_of(load, targets) if load is not None else None
    statistics = _statistics(counted) if counted is not None else {}
    return {"namespace": output.dataset.namespace, "name": output.dataset.name, "facets": facets, **statistics}


def _counts_of(load: LoadSpec, targets: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the counts of a load; targets on several connections may have tables of one name."""
    places = (None, target_connection(load))
    found = (one for one in targets if one.get("table") == load.table.qualified and one.get("connection") in places)
    return next(found, None)


def _statistics(target: Mapping[str, Any]) -> dict[str, Any]:
    words = ("rows_inserted", "rows_updated", "rows_closed")
    rows = sum(int(target.get(word) or 0) for word in words)
    # The size of batches in memory differs from that of their stored form.
    size = target.get("bytes_staged") if target.get("bytes_of") == "files" else None
    more = {"size": size} if isinstance(size, int) else {}
    return {"outputFacets": {"outputStatistics": facet("outputStatistics", rowCount=rows, **more)}}


def _fields(columns: Sequence[InputColumn]) -> list[dict[str, Any]]:
    """Return each input column once, with all its transformations."""
    fields: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for one in columns:
        key = (one.dataset.namespace, one.dataset.name, one.column)
        fields.setdefault(key, []).append(
            {"type": one.type, "subtype": one.subtype, "description": "", "masking": one.masking}
        )
    return [
        {"namespace": namespace, "name": name, "field": column, "transformations": transformations}
        for (namespace, name, column), transformations in fields.items()
    ]


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
