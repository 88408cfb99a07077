"""Locate tables by path or object-store address; secrets in an address are refused, never stored or shown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from securevfl.errors import InputError

__all__ = ["FileLocation", "is_address", "place_of"]


def is_address(text: str) -> bool:
    """Return True if a text is an address (``s3://bucket/table.parquet``), not a path."""
    return "://" in text


@dataclass(frozen=True)
class FileLocation:
    """A file or folder in a file system.

    Attributes:
        filesystem: a `pyarrow.fs.FileSystem`.
        path: within it.
        where: for messages: the path, or the address without its query, which may contain settings.
    """

    filesystem: Any = field(repr=False)
    path: str
    where: str

    @property
    def suffix(self) -> str:
        """The ending of the file name."""
        return PurePosixPath(self.path).suffix

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self._file_info().size or 0

    @property
    def is_folder(self) -> bool:
        """Return True if it is a folder."""
        import pyarrow.fs as pa_fs

        return bool(self._file_info().type == pa_fs.FileType.Directory)

    def require_exists(self, *, folder: bool) -> None:
        """Check that the file, or with `folder` the folder, exists.

        Raises:
            InputError: it does not exist.
        """
        import pyarrow.fs as pa_fs

        kinds = [pa_fs.FileType.File, *([pa_fs.FileType.Directory] if folder else [])]
        if self._file_info().type not in kinds:
            raise InputError(f"{self.where} does not exist or is not a file: name the party's table")

    def with_path(self, path: str) -> FileLocation:
        """Return another file of the same file system."""
        inside = path.removeprefix(self.path).lstrip("/")
        return replace(self, path=path, where=f"{self.where.rstrip('/')}/{inside}")

    def list_files(self, endings: tuple[str, ...]) -> list[str]:
        """Return the sorted paths of all files with these endings in the folder and its subfolders. Names that begin
        with ``_`` or ``.`` are skipped, because the programs that write such folders use them for metadata.
        """
        import pyarrow.fs as pa_fs

        found = self.filesystem.get_file_info(pa_fs.FileSelector(self.path, recursive=True))
        return sorted(
            one.path
            for one in found
            if one.type == pa_fs.FileType.File
            and one.path.endswith(endings)
            and not any(part[0] in "._" for part in PurePosixPath(one.path).relative_to(self.path).parts)
        )

    def open_file(self) -> Any:
        """Open the file for random access."""
        return self.filesystem.open_input_file(self.path)

    def open_stream(self) -> Any:
        """Open the file as a stream, decompressed if its ending is that of a compressed file."""
        return self.filesystem.open_input_stream(self.path)

    def open_parquet(self, **options: Any) -> Any:
        """Open the file as Parquet; the ``with`` statement closes it."""
        import pyarrow.parquet as pa_parquet

        return pa_parquet.ParquetFile(self.path, filesystem=self.filesystem, **options)

    def _file_info(self) -> Any:
        try:
            return self.filesystem.get_file_info(self.path)
        except OSError as error:
            raise InputError(f"{self.where} cannot be reached: {str(error).splitlines()[0]}") from None


def place_of(place: str | Path, filesystem: Any = None) -> FileLocation:
    """Resolve a path or an address to a place.

    Args:
        place: a path; or an address that `pyarrow.fs` supports, ``s3://bucket/folder``, ``gs://…``, ``abfs://…``,
            ``hdfs://…``.
        filesystem: the `pyarrow.fs.FileSystem` of the path, if an address is not enough.

    Raises:
        InputError: an unsupported kind of address, or one that contains a user name, a password or a key. Others read
            the job file, and the stores' libraries find credentials in the environment.
    """
    import pyarrow as pa
    import pyarrow.fs as pa_fs

    text = str(place)
    if filesystem is not None:
        return FileLocation(filesystem, text, text)
    if not is_address(text):
        return FileLocation(pa_fs.LocalFileSystem(), str(Path(text).absolute()), text)
    parts = urlsplit(text)
    host = parts.netloc.rpartition("@")[2]
    shown = f"{parts.scheme}://{host}{parts.path}"
    # In abfs://container@account the part before the @ is not a user name.
    user = parts.netloc.rpartition("@")[0]
    secret = ":" in user or (user and parts.scheme not in ("abfs", "abfss"))
    words = ("key", "secret", "token", "password", "signature", "sig=", "credential")
    if secret or any(word in parts.query.lower() for word in words):
        raise InputError(
            f"{shown}: the address contains a user name, a password or a key, which do not belong in a job "
            "file: leave them out, and put them where the store's library looks (AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, ~/.aws, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_KEY …)"
        )
    try:
        found, path = pa_fs.FileSystem.from_uri(text)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{shown} is not an address of a supported store: {str(error).splitlines()[0]}") from None
    where = shown if not user else f"{parts.scheme}://{parts.netloc}{parts.path}"
    return FileLocation(found, path, where)
