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


def imported(reference: object) -> Any:
    """Return the object `module:name`, importing the module; raise a ConfigError if that fails."""
    found = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
    if found is None:
        raise ConfigError(f"{reference!r} is no reference to Python", hint='write "my_module:name"')
    module, name = found[1], found[2]
    try:
        there = importlib.import_module(module)
    except Exception as error:
        said = mask(f"{type(error).__name__}: {error}")
        raise ConfigError(
            f"the module {module} of {reference!r} cannot be imported: {said}",
            hint="start in its folder, or install it",
        ) from None
    if not hasattr(there, name):
        public = [known for known in vars(there) if not known.startswith("_")]
        raise ConfigError(f"the module {module} has no {name}", hint=did_you_mean(name, public))
    return getattr(there, name)


def reference_to(thing: Any, *, what: str) -> str:
    """Return `module:name` of an object defined in a module: the inverse of `imported`."""
    home = str(getattr(thing, "__module__", "") or "")
    wrapped = getattr(thing, "__wrapped__", None)
    for module in dict.fromkeys((home, str(getattr(wrapped, "__module__", "") or ""))):
        there = sys.modules.get(module)
        if there is None or module == "__main__":
            continue
        for name, value in vars(there).items():
            if value is thing and _REFERENCE.fullmatch(f"{module}:{name}"):
                return f"{module}:{name}"
    raise DeclarationError(
        f"{what} cannot be named in TOML", hint="define it at the top of a module that can be imported"
    )
