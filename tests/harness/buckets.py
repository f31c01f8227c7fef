"""Buckets by their own client: connections, keys and bytes of lakes on S3."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config

from tests.services.object_stores import PLACE, S3_ACCESS

REGION = "us-east-1"


@dataclass(frozen=True)
class TestBucket:
    """A prefix of its own in the bucket of the tests."""

    __test__ = False

    url: str
    prefix: str

    @classmethod
    def at(cls, url: str, name: str) -> TestBucket:
        """A prefix that nobody else has."""
        return cls(url, f"{name}-{secrets.token_hex(4)}")

    @property
    def fields(self) -> dict[str, str]:
        """The fields of a connection."""
        return {
            "endpoint": self.url, "bucket": PLACE, "region": REGION, "prefix": self.prefix,
            "access_key_id": S3_ACCESS["AWS_ACCESS_KEY_ID"], "secret_access_key": S3_ACCESS["AWS_SECRET_ACCESS_KEY"],
        }  # fmt: skip

    @property
    def client(self) -> Any:
        """The plain client."""
        return boto3.client(
            "s3", endpoint_url=self.url, region_name=REGION, aws_access_key_id=S3_ACCESS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=S3_ACCESS["AWS_SECRET_ACCESS_KEY"], config=Config(s3={"addressing_style": "path"}),
        )  # fmt: skip

    @property
    def storage_options(self) -> dict[str, str]:
        """The same for the deltalake package."""
        return {**S3_ACCESS, "AWS_ENDPOINT_URL": self.url, "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true"}

    def keys(self, below: str = "") -> list[str]:
        """Keys without the prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=PLACE, Prefix=f"{self.prefix}/{below}")
        found = [item["Key"] for page in pages for item in page.get("Contents", ())]
        return [key[len(self.prefix) + 1 :] for key in found if not key.endswith("/")]

    def get(self, key: str) -> bytes:
        """The bytes of an object."""
        return bytes(self.client.get_object(Bucket=PLACE, Key=f"{self.prefix}/{key}")["Body"].read())

    def put(self, key: str, body: bytes) -> None:
        """Write an object."""
        self.client.put_object(Bucket=PLACE, Key=f"{self.prefix}/{key}", Body=body)

    def delete(self, below: str = "") -> None:
        """Delete what is below."""
        for key in self.keys(below):
            self.client.delete_object(Bucket=PLACE, Key=f"{self.prefix}/{key}")
