"""How Spark gets at a bucket: settings of Hadoop's S3A for that bucket alone, given to the session when it is first used."""

from __future__ import annotations

import sys
import threading
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from ematix_flow.families.lake.s3.bucket import Bucket
from ematix_flow.families.lake.session import active
from ematix_flow.foundation.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ematix_flow.families.lake.s3.path import S3Path

_SIMPLE_LOGIN = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_told: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()
_telling = threading.Lock()


def address(path: S3Path) -> str:
    """The path as Spark must be told; the session of this process learns how to get there."""
    introduce(path.bucket, active())
    return f"s3a://{path.bucket.name}/{path.key}"


def introduce(bucket: Bucket, spark: SparkSession | None) -> None:
    """Give a session, or that of this process if it runs, the login of a bucket, once.

    A query that streams goes on with the settings its session had when it began. Two logins for one bucket cannot both
    be meant, because Hadoop keeps the first.
    """
    spark = spark or _running()
    if spark is None:
        return
    settings = hadoop_settings(bucket)
    seen = sha256(repr(sorted(settings.items())).encode()).hexdigest()
    with _telling:
        known = _told.setdefault(spark, {})
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


def lacks_on_sail(connection: Any, load: Any) -> str:
    """Why the native engine has nothing to do with buckets."""
    return "it has no way into a bucket here"


def _running() -> SparkSession | None:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def hadoop_settings(bucket: Bucket) -> dict[str, str]:
    """S3A's settings for one bucket; they hold its secret, and belong in no log."""
    made = {
        "endpoint.region": bucket.region,
        "access.key": bucket.access_key_id,
        "secret.key": bucket.secret_access_key,
        "aws.credentials.provider": _SIMPLE_LOGIN,
    }
    if not bucket.is_amazons:  # whose own endpoints are found by their region
        made |= {
            "endpoint": bucket.endpoint,
            "path.style.access": "true",
            "connection.ssl.enabled": str(urlsplit(bucket.endpoint).scheme == "https").lower(),
        }
    return {f"fs.s3a.bucket.{bucket.name}.{name}": value for name, value in made.items()}
