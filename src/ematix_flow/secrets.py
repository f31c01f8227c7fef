"""Secrets by reference, `${VAR}` and `${prefix:reference}`, and the resolvers that provide their values."""

from ematix_flow.foundation.errors import MissingSecret
from ematix_flow.foundation.errors import MissingSecret as MissingSecretError
from ematix_flow.foundation.secrets import EnvResolver, SecretResolver, expand, register_resolver, unregister_resolver
from ematix_flow.observe.stores.aws import AWSSecretsManagerResolver
from ematix_flow.observe.stores.files import FileResolver
from ematix_flow.observe.stores.gcp import GCPSecretManagerResolver
from ematix_flow.observe.stores.vault import VaultResolver
from ematix_flow.observe.stores.vault_client import VaultClient

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
