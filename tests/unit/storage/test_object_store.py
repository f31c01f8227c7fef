"""Object stores: one table of errors for every library, and a conditional write that recognises its own first try."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from azure.core import exceptions as azure
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from google.api_core import exceptions as google

from ematix_flow.foundation.errors import ConnectionFailed, FlowError, PermissionDenied, StorageFull, Unreachable
from ematix_flow.storage import azure_objects, gcs_objects, s3_objects
from ematix_flow.storage.object_store import (
    ABSENT,
    ConditionFailed,
    Failure,
    ObjectMissing,
    StoredObject,
    StoreErrors,
    put_if,
)

ERRORS = StoreErrors(
    "s3://shop", "bucket 'shop'", {Failure.REFUSED: "check the login"}, used_for="the run log", endpoint="http://e"
)


def s3(code: str, status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


def azures(code: str, kind: type[azure.HttpResponseError] = azure.HttpResponseError, status: int = 400) -> Exception:
    error = kind("no")
    error.error_code, error.status_code = code, status  # type: ignore[attr-defined]
    return error


CASES = [
    (s3_objects._failure_of, s3("NoSuchKey", 404), ObjectMissing),
    (s3_objects._failure_of, s3("PreconditionFailed", 412), ConditionFailed),
    (s3_objects._failure_of, s3("ConditionalRequestConflict", 409), ConditionFailed),
    (s3_objects._failure_of, s3("Unheard", 412), ConditionFailed),
    (s3_objects._failure_of, s3("SignatureDoesNotMatch", 403), PermissionDenied),
    (s3_objects._failure_of, s3("Unheard", 403), PermissionDenied),
    (s3_objects._failure_of, NoCredentialsError(), PermissionDenied),
    (s3_objects._failure_of, s3("NoSuchBucket", 404), ConnectionFailed),
    (s3_objects._failure_of, s3("SlowDown", 503), Unreachable),
    (s3_objects._failure_of, s3("QuotaExceeded"), StorageFull),
    (s3_objects._failure_of, s3("Unheard"), ConnectionFailed),
    (s3_objects._failure_of, EndpointConnectionError(endpoint_url="http://e"), Unreachable),
    (azure_objects._failure_of, azures("BlobNotFound", azure.ResourceNotFoundError, 404), ObjectMissing),
    (azure_objects._failure_of, azures("ContainerNotFound", azure.ResourceNotFoundError, 404), ConnectionFailed),
    (azure_objects._failure_of, azures("BlobAlreadyExists", azure.ResourceExistsError, 409), ConditionFailed),
    (azure_objects._failure_of, azures("ConditionNotMet", azure.ResourceModifiedError, 412), ConditionFailed),
    (azure_objects._failure_of, azures("AuthenticationFailed", status=403), PermissionDenied),
    (azure_objects._failure_of, azures("ServerBusy", status=503), Unreachable),
    (azure_objects._failure_of, azures("Unheard"), ConnectionFailed),
    (azure_objects._failure_of, azure.ServiceRequestError("away"), Unreachable),
    (gcs_objects._failure_of, google.PreconditionFailed("no"), ConditionFailed),
    (gcs_objects._failure_of, google.Forbidden("no"), PermissionDenied),
    (gcs_objects._failure_of, google.NotFound("no"), ConnectionFailed),
    (gcs_objects._failure_of, google.TooManyRequests("no"), Unreachable),
    (gcs_objects._failure_of, google.RetryError("timeout", google.ServiceUnavailable("away")), Unreachable),
    (gcs_objects._failure_of, google.BadRequest("no"), ConnectionFailed),
]


@pytest.mark.parametrize(("failure_of", "error", "expected"), CASES)
def test_an_error_of_a_library_is_translated_by_one_table(
    failure_of: Callable[[Exception], Failure | None], error: Exception, expected: type[FlowError]
) -> None:
    with pytest.raises(FlowError) as raised, ERRORS.translated(failure_of, "key"):
        raise error
    assert type(raised.value) is expected


@pytest.mark.parametrize("failure_of", [s3_objects._failure_of, azure_objects._failure_of, gcs_objects._failure_of])
def test_errors_of_other_origin_pass(failure_of: Callable[[Exception], Failure | None]) -> None:
    for error in (KeyError("x"), StorageFull("full")):
        with pytest.raises(type(error)) as raised, ERRORS.translated(failure_of):
            raise error
        assert raised.value is error


def test_a_message_names_the_use_the_address_and_what_to_do() -> None:
    refused = ERRORS.error(Failure.REFUSED, "", "signature")
    assert (refused.what, refused.hint) == ("the run log s3://shop refused: signature", "check the login")
    assert ERRORS.error(Failure.NO_BUCKET, "", "").what == "there is no bucket 'shop' at http://e for the run log"
    away = ERRORS.error(Failure.UNREACHABLE, "", "timeout").what
    assert away == "the run log s3://shop cannot be reached at http://e: timeout"


class LosesResponses:
    """A store whose writes succeed, are repeated by its client, and then conflict with themselves."""

    label = "store"

    def __init__(self, others: bytes | None = None) -> None:
        self.body: bytes | None = None
        self.others = others

    def put(self, key: str, body: bytes, *, match: str | None = None) -> str:
        self.body = self.others or body
        raise ConditionFailed(key)

    def get(self, key: str) -> StoredObject | None:
        return StoredObject(self.body, "tag") if self.body is not None else None


def test_a_conditional_write_whose_response_was_lost_is_recognised_by_its_text() -> None:
    assert put_if(LosesResponses(), "key", b"ours", match=ABSENT) == "tag"  # type: ignore[arg-type]
    assert put_if(LosesResponses(others=b"theirs"), "key", b"ours", match=ABSENT) is None  # type: ignore[arg-type]
