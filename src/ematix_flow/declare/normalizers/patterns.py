"""Regular expressions that every engine interprets alike: parsed once, written for each engine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ematix_flow.foundation.errors import DeclarationError

Flavour = Literal["python", "java", "icu_pcre", "re2", "postgres"]

_SETS = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \t\n\r\f\v"}
_POSIX = {
    "alpha": "A-Za-z", "digit": "0-9", "alnum": "A-Za-z0-9", "upper": "A-Z", "lower": "a-z",
    "space": " \t\n\r\f\v", "blank": " \t", "xdigit": "0-9A-Fa-f", "word": "A-Za-z0-9_",
}  # fmt: skip
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_SPECIAL = frozenset(".^$*+?()[]{}|\\")
_CLASS_SPECIAL = frozenset("[]\\^-&~|#")
_WORD = "[A-Za-z0-9_]"
_EDGE = f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))"
_NO_EDGE = f"(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))"
_GROUPS = ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(")
_LOOKING = ("(?=", "(?!", "(?<=", "(?<!")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})[?+]?")


@dataclass(frozen=True)
class PatternAtom:
    """One element of a pattern; `what` determines how an engine writes `text`."""

    what: Literal["char", "class", "any", "start", "end", "edge", "no_edge", "open", "close", "or", "repeat"]
    text: str


@dataclass(frozen=True)
class Pattern:
    """A parsed regular expression: `^` and `$` are the ends of the text, `.` is any character, `\\d` is ASCII."""

    source: str
    atoms: tuple[PatternAtom, ...]

    @property
    def groups(self) -> int:
        """The number of capturing groups."""
        return sum(atom == PatternAtom("open", "(") for atom in self.atoms)

    @property
    def looks_around(self) -> bool:
        """Whether it contains a lookahead or lookbehind."""
        return any(atom.what == "open" and atom.text in _LOOKING for atom in self.atoms)

    @property
    def depends_on_order(self) -> bool:
        """Whether the longest match may differ from the first match in the order of the alternatives."""
        repeats = [atom.text for atom in self.atoms if atom.what == "repeat"]
        lazy = [text.endswith("?") and len(text) > 1 for text in repeats]
        return (any(lazy) and not all(lazy)) or _earlier_is_prefix(self.atoms)

    def write(self, flavour: Flavour) -> str:
        """Return the pattern in an engine's own notation."""
        return "".join(_write(atom, flavour) for atom in self.atoms)


@dataclass(frozen=True)
class Replacement:
    """The replacement of a match: text, and numbers of groups (0 is the whole match)."""

    parts: tuple[str | int, ...]

    @property
    def takes_groups(self) -> bool:
        """Whether it refers to a group or to the whole match."""
        return any(isinstance(part, int) for part in self.parts)


@lru_cache(maxsize=256)
def parse_pattern(source: str, *, ignore_case: bool = False, may_match_empty: bool = False) -> Pattern:
    """Parse a pattern; raise DeclarationError for one that not every engine supports alike.

    >>> parse_pattern(r"\\d+$").write("java")
    '[0-9]+\\\\z'
    """
    atoms: list[PatternAtom] = []
    position = 0
    body = source
    if body.startswith("(?i)"):
        body, ignore_case = body[4:], True
    while position < len(body):
        atom, position = _read(source, body, position)
        atoms.append(_any_case(atom) if ignore_case else atom)
    pattern = Pattern(source, tuple(atoms))
    try:
        compiled = re.compile(pattern.write("python"))
    except re.error as exc:
        raise _refusal(source, str(exc)) from exc
    if not may_match_empty and (compiled.search("") or compiled.fullmatch("")):
        raise _refusal(source, "it also matches the empty text")
    return pattern


def parse_replacement(text: str, *, pattern: Pattern) -> Replacement:
    """Parse a replacement: `\\1` to `\\9` are groups, `\\&` the whole match, `\\\\` a backslash.

    >>> parse_replacement(r"<\\1>", pattern=parse_pattern("(a)")).parts
    ('<', 1, '>')
    """
    parts: list[str | int] = []
    for piece in re.findall(r"\\.|\\$|[^\\]+", text, flags=re.DOTALL):
        if not piece.startswith("\\"):
            parts.append(piece)
        elif piece == "\\\\":
            parts.append("\\")
        elif piece == "\\&":
            parts.append(0)
        elif piece[1:].isdigit() and 0 < int(piece[1:]) <= pattern.groups:
            parts.append(int(piece[1:]))
        else:
            raise DeclarationError(
                f"the replacement {text!r} cannot be used: {piece} names no group of {pattern.source!r}",
                hint=r"use \1 to \9 for groups, \& for the whole match and \\ for a backslash",
            )
    return Replacement(tuple(parts))


def _read(source: str, body: str, position: int) -> tuple[PatternAtom, int]:
    character = body[position]
    if character == "\\":
        return _escape(source, body, position)
    if character == "[":
        return _bracket(source, body, position)
    if character == "(":
        opening = next(group for group in _GROUPS if body.startswith(group, position))
        if opening == "(" and body.startswith("(?", position):
            raise _refusal(source, f"{body[position : position + 4]!r} is not a group every engine knows")
        return PatternAtom("open", opening), position + len(opening)
    repeat = _QUANTIFIER.match(body, position)
    if repeat:
        if repeat.group().endswith("+") and len(repeat.group()) > 1:
            raise _refusal(source, "not every engine has possessive repetition")
        return PatternAtom("repeat", repeat.group()), repeat.end()
    if character in "{}]":
        raise _refusal(source, f"write \\{character} for the character itself")
    simple: dict[str, PatternAtom] = {
        ")": PatternAtom("close", ")"), "|": PatternAtom("or", "|"), ".": PatternAtom("any", "."),
        "^": PatternAtom("start", "^"), "$": PatternAtom("end", "$"),
    }  # fmt: skip
    return simple.get(character, PatternAtom("char", character)), position + 1


def _escape(source: str, body: str, position: int) -> tuple[PatternAtom, int]:
    letter = body[position + 1 : position + 2]
    known: dict[str, PatternAtom] = {
        "b": PatternAtom("edge", ""), "y": PatternAtom("edge", ""), "B": PatternAtom("no_edge", ""), "Y": PatternAtom("no_edge", ""),
        "A": PatternAtom("start", "^"), "Z": PatternAtom("end", "$"), "z": PatternAtom("end", "$"),
    }  # fmt: skip
    if letter in known:
        return known[letter], position + 2
    if letter.lower() in _SETS and letter:
        content = _SETS[letter.lower()]
        return PatternAtom("class", ("^" if letter.isupper() else "") + content), position + 2
    return PatternAtom("char", _escaped_character(source, letter)), position + 2


def _escaped_character(source: str, letter: str) -> str:
    if letter in _CONTROL:
        return _CONTROL[letter]
    if not letter or letter.isalnum():
        raise _refusal(source, f"\\{letter} does not mean the same in every engine")
    return letter


def _bracket(source: str, body: str, position: int) -> tuple[PatternAtom, int]:
    position += 1
    negated = body.startswith("^", position)
    position += negated
    content: list[str] = []
    first = True
    while True:
        if position >= len(body):
            raise _refusal(source, "a [ is never closed")
        if body[position] == "]" and not first:
            break
        piece, position = _class_piece(source, body, position)
        content.append(piece)
        first = False
    return PatternAtom("class", ("^" if negated else "") + "".join(content)), position + 1


def _class_piece(source: str, body: str, position: int) -> tuple[str, int]:
    posix = re.compile(r"\[:([a-z]+):\]").match(body, position)
    if posix:
        if posix.group(1) not in _POSIX:
            raise _refusal(source, f"{posix.group()} is not a known class")
        return _POSIX[posix.group(1)], posix.end()
    start, position = _class_character(source, body, position)
    if len(start) > 1:
        return start, position
    if body.startswith("-", position) and not body.startswith("-]", position):
        end, position = _class_character(source, body, position + 1)
        if len(end) > 1 or end < start:
            raise _refusal(source, f"{start}-{end} is not a range")
        return f"{_in_class(start)}-{_in_class(end)}", position
    return _in_class(start), position


def _class_character(source: str, body: str, position: int) -> tuple[str, int]:
    character = body[position : position + 1]
    if character != "\\":
        return character, position + 1
    letter = body[position + 1 : position + 2]
    if letter in _SETS:
        return _SETS[letter], position + 2
    return _escaped_character(source, letter), position + 2


def _in_class(character: str) -> str:
    return "\\" + character if character in _CLASS_SPECIAL else character


def _any_case(atom: PatternAtom) -> PatternAtom:
    if atom.what == "char":
        other = atom.text.swapcase()
        return PatternAtom("class", atom.text + other) if len(other) == 1 and other != atom.text else atom
    if atom.what != "class":
        return atom
    return PatternAtom("class", atom.text + "".join(_other_case(atom.text)))


def _other_case(content: str) -> list[str]:
    ranges: list[str] = []
    for low, high in re.findall(r"(?<!\\)([A-Za-z])-([A-Za-z])", content):
        for alphabet in ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
            inside = [letter for letter in alphabet if low <= letter <= high]
            if inside:
                ranges.append(f"{inside[0].swapcase()}-{inside[-1].swapcase()}")
    singles = re.sub(r"(?<!\\)[A-Za-z]-[A-Za-z]", "", content)
    ranges.extend(other for letter in singles if len(other := letter.swapcase()) == 1 and other != letter)
    return ranges


def _write(atom: PatternAtom, flavour: Flavour) -> str:
    if atom.what == "char":
        return "\\" + atom.text if atom.text in _SPECIAL else atom.text
    if atom.what == "class":
        return f"[{atom.text}]"
    if atom.what == "any":
        return "." if flavour == "postgres" else "(?s:.)"
    if atom.what == "end":
        return {"postgres": "$", "python": r"\Z"}.get(flavour, r"\z")
    if atom.what == "edge":
        return r"\b" if flavour == "re2" else _EDGE
    if atom.what == "no_edge":
        return r"\B" if flavour == "re2" else _NO_EDGE
    return atom.text


def _earlier_is_prefix(atoms: tuple[PatternAtom, ...]) -> bool:
    levels: list[list[str | None]] = [[""]]
    seen: list[list[str | None]] = []
    for atom in atoms:
        if atom.what == "open":
            levels[-1][-1] = None
            levels.append([""])
        elif atom.what == "close":
            if len(levels) > 1:
                seen.append(levels.pop())
        elif atom.what == "or":
            levels[-1].append("")
        elif atom.what == "char" and levels[-1][-1] is not None:
            levels[-1][-1] += atom.text
        else:
            levels[-1][-1] = None
    return any(
        earlier is not None and later is not None and later != earlier and later.startswith(earlier)
        for branches in (*seen, *levels)
        for index, earlier in enumerate(branches)
        for later in branches[index + 1 :]
    )


def _refusal(source: str, reason: str) -> DeclarationError:
    return DeclarationError(
        f"the pattern {source!r} cannot be used: {reason}",
        hint="keep to characters, [classes], groups, |, * + ? {n,m}, ^ and $, which every engine reads alike",
    )
