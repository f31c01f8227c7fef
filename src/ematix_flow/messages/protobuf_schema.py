"""`.proto` texts: compiled to descriptors by the protoc inside grpcio-tools, and generated from Spark's types."""

from __future__ import annotations

import importlib.resources
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.errors import PlanError
from ematix_flow.foundation.lazy_imports import t
from ematix_flow.messages.registries.registry import GLUE_WIRE, RegisteredSchema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

MAIN = "ematix_flow_main.proto"
_SECONDS = 60
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class NotCompiled(Exception):
    """The error of a text that is no valid .proto file, with the reason."""


@lru_cache(maxsize=256)
def compile_schema(schema: RegisteredSchema) -> bytes:
    """Return the text and all its imports as a serialized FileDescriptorSet; raise NotCompiled for an invalid text."""
    require_driver("grpc_tools", needed_by="a Protobuf message", package="grpcio-tools", extra="protobuf")
    known = str(importlib.resources.files("grpc_tools") / "_proto")
    with tempfile.TemporaryDirectory(prefix="flow-proto-") as name:
        folder = Path(name)
        for file, text in {**dict(_files(schema)), MAIN: schema.text}.items():
            _write(folder, file, text)
        command = [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{known}", "--include_imports",
            f"--descriptor_set_out={folder / 'out.bin'}", MAIN,
        ]  # fmt: skip
        done = subprocess.run(  # noqa: S603 - a fixed program; the texts are input files, not arguments
            command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
        if done.returncode != 0:
            raise NotCompiled(done.stderr.replace(f"{folder}/", "").replace(MAIN, "the schema").strip()[:200])
        return (folder / "out.bin").read_bytes()


def _files(schema: RegisteredSchema) -> Iterator[tuple[str, str]]:
    for reference in schema.references:
        yield from _files(reference.schema)
        yield reference.name, reference.schema.text


def _write(folder: Path, file: str, text: str) -> None:
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise NotCompiled(f"it imports {file!r}, which is outside of its folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main_file(descriptors: bytes) -> Any:
    """Return the FileDescriptorProto of the schema itself."""
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    return next(file for file in files if file.name == MAIN)


def message_name(descriptors: bytes, indexes: tuple[int, ...], *, wire: str) -> str:
    """Return the full name of the message that a prefix refers to: by Confluent's path, or by Glue's number."""
    file = main_file(descriptors)
    package = f"{file.package}." if file.package else ""
    if wire == GLUE_WIRE:
        if not indexes:
            raise NotCompiled("the bytes behind its id do not say which of its messages follows")
        names = sorted(_all_names(file.message_type, package))
        if indexes[0] >= len(names):
            raise NotCompiled(f"it has no message number {indexes[0]}")
        return names[indexes[0]]
    name, level = package, file.message_type
    for depth, index in enumerate(indexes or (0,)):
        if index >= len(level):
            raise NotCompiled(f"it has no message {'.'.join(map(str, indexes))}")
        name += ("." if depth else "") + level[index].name
        level = level[index].nested_type
    return name


def _all_names(messages: Any, before: str) -> Iterator[str]:
    for message in messages:
        yield f"{before}{message.name}"
        yield from _all_names(message.nested_type, f"{before}{message.name}.")


def proto_text_of(columns: StructType, *, name: str, former: bytes | None) -> str:
    """Return the .proto text of a message with these columns; fields of the former schema keep their numbers."""
    old = main_file(former) if former is not None else None
    kept = next((one for one in old.message_type), None) if old is not None else None
    word = kept.name if kept is not None else _proto_name(name)
    lines = ['syntax = "proto3";']
    if old is not None and old.package:
        lines.append(f"package {old.package};")
    if _has_moments(columns):
        lines.append('import "google/protobuf/timestamp.proto";')
    return "\n".join([*lines, *_message(columns, word, kept, "")]) + "\n"


def _message(columns: StructType, name: str, former: Any, indent: str) -> list[str]:
    numbers = {field.name: field.number for field in former.field} if former is not None else {}
    nested = {one.name: one for one in former.nested_type} if former is not None else {}
    reserved = _reserved(former)
    highest = max([*numbers.values(), *(last for _, last in reserved)], default=0)
    lines = [f"{indent}message {name} {{"]
    reserved += [(number, number) for field, number in numbers.items() if field not in columns.fieldNames()]
    if reserved:
        spans = (str(first) if first == last else f"{first} to {last}" for first, last in sorted(reserved))
        lines.append(f"{indent}  reserved {', '.join(spans)};")
    for field in columns.fields:
        if not _NAME.fullmatch(field.name):
            raise PlanError(
                f"the column {field.name!r} cannot be a field of a Protobuf message",
                hint="name it with letters, digits and _, a letter first",
            )
        if field.name not in numbers:
            highest = numbers[field.name] = highest + 1
        inner = f"{field.name.title().replace('_', '')}Row"
        label, kind, record = _kind(field.dataType, inner)
        if record is not None:
            lines += _message(record, inner, nested.get(inner), f"{indent}  ")
        lines.append(f"{indent}  {label}{kind} {field.name} = {numbers[field.name]};")
    return [*lines, f"{indent}}}"]


def _reserved(former: Any) -> list[tuple[int, int]]:
    """Return the first and the last of each range of numbers that the former schema reserves."""
    return [(span.start, span.end - 1) for span in former.reserved_range] if former is not None else []


def _kind(kind: DataType, inner: str) -> tuple[str, str, StructType | None]:
    """Return a field's label and type, and the nested record that it needs."""
    if isinstance(kind, t.ArrayType) and not isinstance(kind.elementType, (t.ArrayType, t.MapType)):
        _, element, record = _kind(kind.elementType, inner)
        return "repeated ", element, record
    keys = (t.StringType, t.IntegerType, t.LongType)
    if isinstance(kind, t.MapType) and isinstance(kind.keyType, keys):
        _, key, _ = _kind(kind.keyType, inner)
        label, value, record = _kind(kind.valueType, inner)
        if label == "optional ":
            return "", f"map<{key}, {value}>", record
    if isinstance(kind, t.StructType):
        return "optional ", inner, kind
    simple = {
        "boolean": "bool", "byte": "int32", "short": "int32", "integer": "int32", "long": "int64", "float": "float",
        "double": "double", "string": "string", "binary": "bytes", "void": "string",
        "timestamp": "google.protobuf.Timestamp",
        # Protobuf lacks these types; text represents their values exactly.
        "date": "string", "decimal": "string", "timestamp_ntz": "string",
    }  # fmt: skip
    scalar = simple.get(kind.typeName())
    if scalar is None:
        raise PlanError(
            f"Protobuf has no type for {kind.simpleString()}", hint="cast the column in the SQL, to STRING say"
        )
    return "optional ", scalar, None


def _has_moments(kind: DataType) -> bool:
    if isinstance(kind, t.StructType):
        return any(_has_moments(field.dataType) for field in kind.fields)
    if isinstance(kind, t.ArrayType):
        return _has_moments(kind.elementType)
    return _has_moments(kind.valueType) if isinstance(kind, t.MapType) else isinstance(kind, t.TimestampType)


def _proto_name(name: str) -> str:
    word = "".join(part.title() for part in re.split(r"[^A-Za-z0-9]+", name))
    return word if _NAME.fullmatch(word) else f"Row{word}"
