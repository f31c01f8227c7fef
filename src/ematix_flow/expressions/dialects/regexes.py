"""Regular expressions and replacements as the engines' functions take them."""

from __future__ import annotations

from ematix_flow.declare.patterns import Flavour, Pattern, Replacement

_ANYTHING_LAZY = "(?s:.*?)"
_ANYTHING = "(?s:.*)"


def whole(pattern: str) -> str:
    """A pattern that has to match the whole text; `$` would also match before a line end."""
    return f"^(?:{pattern})\\z"


def first_only(pattern: Pattern, replacement: Replacement, *, flavour: Flavour) -> tuple[str, Replacement]:
    """The same replacement of the first match, for engines that can only replace all of them."""
    searched = f"^({_ANYTHING_LAZY})({pattern.write(flavour)})({_ANYTHING})\\z"
    moved = tuple(part if isinstance(part, str) else part + 2 for part in replacement.parts)
    return searched, Replacement((1, *moved, pattern.groups + 3))


def with_dollars(replacement: Replacement) -> str:
    """The notation of Java and ICU: `$1`, and a backslash before `$`, a backslash and a digit after a group."""
    written = ""
    after_group = False
    for part in replacement.parts:
        if isinstance(part, int):
            written += f"${part}"
        else:
            text = part.replace("\\", "\\\\").replace("$", "\\$")
            written += f"\\{text}" if after_group and text[:1].isdigit() else text
        after_group = isinstance(part, int)
    return written


def with_backslashes(replacement: Replacement, *, match: str = "\\0") -> str:
    """The notation of PostgreSQL, RE2 and MariaDB: `\\1`; `match` is how the whole match is written."""
    return "".join(
        part.replace("\\", "\\\\") if isinstance(part, str) else f"\\{part}" if part else match
        for part in replacement.parts
    )
