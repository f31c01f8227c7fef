"""Secrets in files: `${file:/run/secrets/db_password}`."""

from __future__ import annotations

from pathlib import Path

from ematix_flow.secrets.store_answers import secret_absent

_LARGEST = 1_048_576


class FileResolver:
    """A resolver that reads the file on each call, without a newline at its end.

    `folder` is the base of relative paths, by default the working directory.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = Path(folder).expanduser() if folder else None

    def resolve(self, reference: str) -> str:
        """Return the text of the file."""
        path = Path(reference).expanduser()
        if self._folder is not None:
            path = self._folder / path
        shown = f"file:{reference}"
        try:
            data = path.read_bytes()
        except OSError as error:
            raise secret_absent(
                shown, "the file system", error.strerror or "it cannot be read", hint=f"ls -l {path}"
            ) from None
        if len(data) > _LARGEST:
            raise secret_absent(
                shown, "the file system", "the file is larger than a secret can be", hint=f"ls -l {path}"
            )
        try:
            return data.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise secret_absent(shown, "the file system", "the file is not UTF-8 text", hint=f"file {path}") from None
