"""The number of waiting messages: Pub/Sub reports it only through Cloud Monitoring, a minute or two late."""

from __future__ import annotations

import time
from typing import Any

from ematix_flow.backends.pubsub.client import SECONDS, PubSubAddress

_METRIC = "pubsub.googleapis.com/subscription/num_undelivered_messages"
_LOOK_BACK_SECONDS = 600


def undelivered(address: PubSubAddress, name: str) -> int | None:
    """Return a subscription's undelivered messages; None at an emulator or without google-cloud-monitoring."""
    if address.is_open:
        return None
    try:
        from google.cloud import monitoring_v3
    except ImportError:
        return None
    _, project, _, plain = address.subscription(name).split("/", 3)
    with address.translated_errors(f"the metrics of subscription {name!r}"):
        series = monitoring_v3.MetricServiceClient().list_time_series(
            request=_request(monitoring_v3, project, plain), timeout=SECONDS
        )
        newest = [point for one in series for point in one.points[:1]]
    return int(newest[0].value.int64_value) if newest else None


def _request(monitoring_v3: Any, project: str, subscription: str) -> dict[str, Any]:
    now = int(time.time())
    return {
        "name": f"projects/{project}",
        "filter": f'metric.type="{_METRIC}" AND resource.labels.subscription_id="{subscription}"',
        "interval": {"end_time": {"seconds": now}, "start_time": {"seconds": now - _LOOK_BACK_SECONDS}},
        "view": monitoring_v3.ListTimeSeriesRequest.TimeSeriesView.FULL,
    }
