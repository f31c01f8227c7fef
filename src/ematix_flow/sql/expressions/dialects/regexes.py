"""Regular expressions and replacements in the syntax of each engine."""

from __future__ import annotations

from ematix_flow.declare.normalizers.patterns import Flavour, Pattern, Replacement

_ANYTHING_LAZY = "(?s:.*?)"
_ANYTHING = "(?s:.*)"


def whole_match(pattern: str) -> str:
    """Return a pattern that must match the whole text; `$` would also match before a line end."""
    return f"^(?:{pattern})\\z"


def first_match_only(pattern: Pattern, replacement: Replacement, *, flavour: Flavour) -> tuple[str, Replacement]:
    """Return the same replacement for the first match only, for engines that can only replace all matches."""
    searched = f"^({_ANYTHING_LAZY})({pattern.write(flavour)})({_ANYTHING})\\z"
    moved = tuple(part if isinstance(part, str) else part + 2 for part in replacement.parts)
    return searched, Replacement((1, *moved, pattern.groups + 3))


def with_dollars(replacement: Replacement) -> str:
    """Return the replacement for Java and ICU: `$1`, escaped `$` and backslash, and an escaped digit after a group."""
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
    """Return the replacement for PostgreSQL, RE2 and MariaDB: `\\1`; `match` is the syntax of the whole match."""
    return "".join(
        part.replace("\\", "\\\\") if isinstance(part, str) else f"\\{part}" if part else match
        for part in replacement.parts
    )
