"""Python objects that the configuration names as `module:name`."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

from ematix_flow.foundation.errors import ConfigError, DeclarationError
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.redact import mask

_REFERENCE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def import_object(reference: object) -> Any:
    """Return the object `module:name`, importing the module; raise a ConfigError if that fails."""
    match = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
    if match is None:
        raise ConfigError(f"{reference!r} is no reference to Python", hint='write "my_module:name"')
    module, name = match[1], match[2]
    try:
        imported_module = importlib.import_module(module)
    except Exception as error:
        message = mask(f"{type(error).__name__}: {error}")
        raise ConfigError(
            f"the module {module} of {reference!r} cannot be imported: {message}",
            hint="start in its folder, or install it",
        ) from None
    if not hasattr(imported_module, name):
        public = [known for known in vars(imported_module) if not known.startswith("_")]
        raise ConfigError(f"the module {module} has no {name}", hint=did_you_mean(name, public))
    return getattr(imported_module, name)


def object_reference(thing: Any, *, what: str) -> str:
    """Return `module:name` of an object defined in a module: the inverse of `imported`."""
    home = str(getattr(thing, "__module__", "") or "")
    wrapped = getattr(thing, "__wrapped__", None)
    for module in dict.fromkeys((home, str(getattr(wrapped, "__module__", "") or ""))):
        loaded = sys.modules.get(module)
        if loaded is None or module == "__main__":
            continue
        for name, value in vars(loaded).items():
            if value is thing and _REFERENCE.fullmatch(f"{module}:{name}"):
                return f"{module}:{name}"
    raise DeclarationError(
        f"{what} cannot be named in TOML", hint="define it at the top of a module that can be imported"
    )
