"""Header lines of CSV files: Spark reads several files together correctly only where their headers are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.storage.paths import LakePath

_AT_ONCE = 8
_LONGEST_HEADER = 65_536
_MOST_LINES = 1_000
"""Most comment and empty lines before a header."""


def plain_header(path: LakePath, options: Mapping[str, Any]) -> list[str] | None:
    """Return the column names of one plain local file; None where Spark's own parser is needed to find them."""
    if not isinstance(path, Path) or path.suffix not in (".csv", ".tsv", ".txt") or not path.is_file():
        return None
    if not options.get("has_header", True) or options.get("terminator") or options.get("comment"):
        return None
    with path.open("rb") as file:
        line = file.readline(_LONGEST_HEADER)
    if not line.endswith(b"\n"):
        return None
    try:
        text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return None
    special = {str(options.get("quote") or '"'), str(options.get("escape") or '"'), "\r", "\ufeff", "\0"}
    names = text.split(str(options.get("delimiter") or ","))
    distinct = {name.casefold() for name in names}
    plain = not any(sign in text for sign in special) and all(name.strip() == name and name for name in names)
    return names if plain and len(distinct) == len(names) else None


def by_header(files: Sequence[str], options: Mapping[str, Any]) -> list[list[str]]:
    """Return the files in groups with equal headers; in one group where they have no header."""
    if len(files) < 2 or not options.get("has_header", True):
        return [list(files)]
    comment = str(options.get("comment") or "")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        first_lines = list(pool.map(lambda file: _first_line(file, comment), files))
    groups: dict[str, list[str]] = {}
    for file, line in zip(files, first_lines, strict=True):
        groups.setdefault(line, []).append(file)
    return list(groups.values())


def _first_line(file: str, comment: str) -> str:
    """Return the first line, read through Hadoop, which supports every store and decompresses files."""
    spark: Any = active_session()
    jvm, settings = spark._jvm, spark._jsparkSession.sessionState().newHadoopConf()
    path = jvm.org.apache.hadoop.fs.Path(file)
    with closing(path.getFileSystem(settings).open(path)) as stream:
        codec = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(settings).getCodec(path)
        plain = codec.createInputStream(stream) if codec is not None else stream
        lines = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(plain, "UTF-8"))
        for _ in range(_MOST_LINES):
            line = lines.readLine()
            if line is None:
                return ""
            if line.strip() and not (comment and line.startswith(comment)):
                return str(line)
        return ""
