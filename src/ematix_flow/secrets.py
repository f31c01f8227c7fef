"""Secrets by reference: `${VAR}` and `${prefix:reference}`, and where their values come from."""

from ematix_flow.foundation.errors import MissingSecret
from ematix_flow.foundation.errors import MissingSecret as MissingSecretError
from ematix_flow.foundation.secrets import EnvResolver, SecretResolver, expand, register_resolver, unregister_resolver

__all__ = [
    "EnvResolver",
    "MissingSecret",
    "MissingSecretError",
    "SecretResolver",
    "expand",
    "register_resolver",
    "unregister_resolver",
]
