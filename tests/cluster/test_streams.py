"""Streams whose tasks run on the workers of a cluster, and whose driver is the process of `flow consume`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.places import TestCluster
from tests.crash.test_kill_streams import Route

pytestmark = pytest.mark.full("the cluster runs loads by default, and streams are loads")


@pytest.mark.parametrize("way", ["kafka-postgres", "files-delta", "kafka-kafka", "rabbitmq-postgres"])
def test_a_stream_runs_on_the_cluster_and_goes_on_where_it_was(
    way: str, cluster: TestCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    route = Route(*way.split("-"), tmp_path, request)
    there = ("HOME", "EMATIX_FLOW_MASTER", "EMATIX_FLOW_ENGINE", "EMATIX_FLOW_CLUSTER_DIR", "EMATIX_FLOW_STAGE_DIR")
    route.environment |= {name: cluster.environment[name] for name in there}
    for _ in range(2):
        route.send()
        done = route.consume()
        assert done.returncode == 0, done.stderr
        assert route.found() == Counter(range(route.sent))
