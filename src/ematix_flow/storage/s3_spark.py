"""Access to buckets for Spark: Hadoop S3A settings per bucket, set on the session when the bucket is first used."""

from __future__ import annotations

import sys
import threading
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.storage.s3_bucket import S3Bucket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ematix_flow.storage.s3_path import S3Path

_SIMPLE_LOGIN = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_configured: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()
_configuring = threading.Lock()


def spark_address(path: S3Path) -> str:
    """Return the path as an s3a URI; configure the session of this process for the bucket."""
    register_bucket(path.bucket, active_session())
    return f"s3a://{path.bucket.name}/{path.key}"


def register_bucket(bucket: S3Bucket, spark: SparkSession | None) -> None:
    """Set the credentials of a bucket on a session, or on that of this process if it runs, once.

    A running streaming query keeps the settings its session had when it started. Two sets of credentials for one bucket
    raise `ConfigError`, because Hadoop keeps the first.
    """
    spark = spark or _running()
    if spark is None:
        return
    settings = hadoop_settings(bucket)
    seen = sha256(repr(sorted(settings.items())).encode()).hexdigest()
    with _configuring:
        known = _configured.setdefault(spark, {})
        if known.get(bucket.name) == seen:
            return
        if bucket.name in known:
            raise ConfigError(
                f"one Spark session cannot reach the bucket {bucket.name!r} by two logins or at two endpoints",
                hint="use one connection's login for both, or run the pipelines apart",
            )
        for name, value in settings.items():
            spark.conf.set(name, value)
        known[bucket.name] = seen


def sail_limitation(connection: Any, load: Any) -> str:
    """Return why the Sail engine does not support buckets."""
    return "it has no way into a bucket here"


def _running() -> SparkSession | None:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def hadoop_settings(bucket: S3Bucket) -> dict[str, str]:
    """Return the S3A settings of one bucket; they contain its secret and must not be logged."""
    settings = {
        "endpoint.region": bucket.region,
        "access.key": bucket.access_key_id,
        "secret.key": bucket.secret_access_key,
        "aws.credentials.provider": _SIMPLE_LOGIN,
    }
    if not bucket.is_amazons:  # Amazon's endpoints follow from the region
        settings |= {
            "endpoint": bucket.endpoint,
            "path.style.access": "true",
            "connection.ssl.enabled": str(urlsplit(bucket.endpoint).scheme == "https").lower(),
        }
    return {f"fs.s3a.bucket.{bucket.name}.{name}": value for name, value in settings.items()}
