"""Secrets by reference, `${VAR}` and `${prefix:reference}`, and the resolvers that provide their values."""

from ematix_flow.foundation.errors import MissingSecret
from ematix_flow.foundation.errors import MissingSecret as MissingSecretError
from ematix_flow.foundation.secrets import EnvResolver, SecretResolver, expand, register_resolver, unregister_resolver
from ematix_flow.secrets.aws import AWSSecretsManagerResolver
from ematix_flow.secrets.files import FileResolver
from ematix_flow.secrets.gcp import GCPSecretManagerResolver
from ematix_flow.secrets.vault import VaultResolver
from ematix_flow.secrets.vault_client import VaultClient

__all__ = [
    "AWSSecretsManagerResolver",
    "EnvResolver",
    "FileResolver",
    "GCPSecretManagerResolver",
    "MissingSecret",
    "MissingSecretError",
    "SecretResolver",
    "VaultClient",
    "VaultResolver",
    "expand",
    "register_resolver",
    "unregister_resolver",
]
