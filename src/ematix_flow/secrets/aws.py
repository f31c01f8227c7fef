"""Secrets in AWS Secrets Manager: `${aws:shop/db#password}`."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from ematix_flow.foundation.packages import require_package
from ematix_flow.secrets.store_answers import chosen_value, secret_absent, split_reference, store_unreachable

STORE = "AWS Secrets Manager"
_SECONDS = 10
_REFUSED = ("AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException",
            "ExpiredTokenException", "InvalidClientTokenId", "AccessDenied")  # fmt: skip


class AWSSecretsManagerResolver:
    """A resolver of `id#field`, or of the whole secret without a field. The client is boto3's."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def resolve(self, reference: str) -> str:
        """Return the secret, or one field of a secret that is JSON."""
        name, key = split_reference(reference)
        shown = f"aws:{reference}"
        text = _text(self._request(name, shown))
        if key is None:
            return text
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if not isinstance(document, Mapping):
            raise secret_absent(
                shown, STORE, "the secret is no JSON object, so it has no field", hint=f"write ${{aws:{name}}}"
            )
        return chosen_value(document, key, reference=shown, store=STORE)

    def _request(self, name: str, shown: str) -> Mapping[str, Any]:
        if not name:
            raise secret_absent(shown, STORE, "it names no secret", hint="write ${aws:name#field}")
        try:
            answer: Mapping[str, Any] = self._client.get_secret_value(SecretId=name)
            return answer
        except Exception as error:
            raise _translated(error, shown) from None


def from_settings(fields: Mapping[str, str]) -> AWSSecretsManagerResolver:
    """Return a resolver with boto3's default login; `region`, `profile` and `endpoint_url` are optional."""
    boto3 = require_package("boto3", what="${aws:…}", extra="secrets-aws")
    config = require_package("botocore.config", what="${aws:…}", extra="secrets-aws")
    session = boto3.session.Session(profile_name=fields.get("profile"), region_name=fields.get("region"))
    client = session.client(
        "secretsmanager",
        endpoint_url=fields.get("endpoint_url"),
        config=config.Config(connect_timeout=_SECONDS, read_timeout=_SECONDS, retries={"max_attempts": 2}),
    )
    return AWSSecretsManagerResolver(client)


def _text(answer: Mapping[str, Any]) -> str:
    if answer.get("SecretString") is not None:
        return str(answer["SecretString"])
    data = answer.get("SecretBinary") or b""
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return base64.b64encode(bytes(data)).decode()


def _translated(error: Exception, shown: str) -> Exception:
    response = getattr(error, "response", None)
    code = str(response.get("Error", {}).get("Code", "")) if isinstance(response, Mapping) else ""
    if code == "ResourceNotFoundException":
        return secret_absent(shown, STORE, "there is no such secret", hint="aws secretsmanager list-secrets")
    if code in _REFUSED:
        return secret_absent(shown, STORE, f"the login may not read it ({code})", hint="aws sts get-caller-identity")
    if type(error).__name__ in ("NoCredentialsError", "NoRegionError", "ProfileNotFound"):
        return secret_absent(
            shown, STORE, "there is no login or no region", hint="set AWS_REGION and a login, or [secrets.aws] region"
        )
    return store_unreachable(shown, STORE, code or type(error).__name__, hint="check the network and the region")
