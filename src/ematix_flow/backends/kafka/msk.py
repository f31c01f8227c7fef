"""The IAM login to Amazon MSK: jars for Spark, and a token for librdkafka, signed with the machine's AWS login."""

from __future__ import annotations

import base64
import time

from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.foundation.errors import ConnectionFailed, MissingDriver

_SECONDS = 900
_SERVICE = "kafka-cluster"


def jars_for(connection: KafkaConnection) -> tuple[str, ...]:
    """Return the jars of Amazon's login, which needs the parts of the AWS SDK that S3 brings; none without IAM."""
    return ("s3a", "msk") if connection.msk_iam_region else ()


def token(region: str, _asked: str | None = None) -> tuple[str, float]:
    """Return a new token and its expiry in seconds since 1970; the client requests the next one in time."""
    try:
        from botocore.auth import SigV4QueryAuth
        from botocore.awsrequest import AWSRequest
        from botocore.session import Session
    except ImportError as exc:
        raise MissingDriver("msk_iam_region needs boto3", hint="pip install boto3") from exc
    credentials = Session().get_credentials()
    if credentials is None:
        raise ConnectionFailed(
            "msk_iam_region is set, and this machine has no AWS login",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role",
        )
    ends = time.time() + _SECONDS
    request = AWSRequest(
        method="GET", url=f"https://kafka.{region}.amazonaws.com/", params={"Action": f"{_SERVICE}:Connect"}
    )
    SigV4QueryAuth(credentials.get_frozen_credentials(), _SERVICE, region, expires=_SECONDS).add_auth(request)
    signed = f"{request.url}&User-Agent=ematix-flow"
    return base64.urlsafe_b64encode(signed.encode()).decode().rstrip("="), ends
