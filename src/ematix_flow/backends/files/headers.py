"""The first lines of CSV files: Spark reads files together only where they are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ematix_flow.families.lake.session import active

_AT_ONCE = 8
_MOST_LINES = 1_000
"""Comments and empty lines that may stand before a header."""


def by_header(files: Sequence[str], options: Mapping[str, Any]) -> list[list[str]]:
    """The files in groups of one header each; all together where they have none."""
    if len(files) < 2 or not options.get("has_header", True):
        return [list(files)]
    comment = str(options.get("comment") or "")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda file: _first_line(file, comment), files))
    groups: dict[str, list[str]] = {}
    for file, line in zip(files, found, strict=True):
        groups.setdefault(line, []).append(file)
    return list(groups.values())


def _first_line(file: str, comment: str) -> str:
    """Through Hadoop, which knows every store and unpacks what is compressed."""
    spark: Any = active()
    jvm, settings = spark._jvm, spark._jsparkSession.sessionState().newHadoopConf()
    path = jvm.org.apache.hadoop.fs.Path(file)
    stream = path.getFileSystem(settings).open(path)
    try:
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
    finally:
        stream.close()
