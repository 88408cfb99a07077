"""Places of tables: a path, or an address of an object store, of which nothing secret is ever kept or shown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from securevfl.errors import InputError

__all__ = ["Place", "is_address", "place_of"]


def is_address(text: str) -> bool:
    """Whether a text is an address (``s3://bucket/table.parquet``) and no path."""
    return "://" in text


@dataclass(frozen=True)
class Place:
    """A file or a folder of a file system.

    Attributes:
        filesystem: a `pyarrow.fs.FileSystem`.
        path: within it.
        where: for messages: the path, or the address without its query, in which there may be settings.
    """

    filesystem: Any = field(repr=False)
    path: str
    where: str

    @property
    def suffix(self) -> str:
        """The ending of its name."""
        return PurePosixPath(self.path).suffix

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._info().size or 0

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        import pyarrow.fs as pa_fs

        return bool(self._info().type == pa_fs.FileType.Directory)

    def require(self, *, folder: bool) -> None:
        """Do nothing where there is a file, or with `folder`, a folder.

        Raises:
            InputError: there is none.
        """
        import pyarrow.fs as pa_fs

        kinds = [pa_fs.FileType.File, *([pa_fs.FileType.Directory] if folder else [])]
        if self._info().type not in kinds:
            raise InputError(f"{self.where} does not exist or is no file: name the party's table")

    def at(self, path: str) -> Place:
        """Another file of the same file system."""
        inside = path.removeprefix(self.path).lstrip("/")
        return replace(self, path=path, where=f"{self.where.rstrip('/')}/{inside}")

    def files(self, endings: tuple[str, ...]) -> list[str]:
        """Paths of all files in the folder and those below with one of these endings, sorted; those that begin with
        ``_`` or ``.``, and those in folders that do, are left out, as programs that write such folders mean it."""
        import pyarrow.fs as pa_fs

        found = self.filesystem.get_file_info(pa_fs.FileSelector(self.path, recursive=True))
        return sorted(
            one.path
            for one in found
            if one.type == pa_fs.FileType.File
            and one.path.endswith(endings)
            and not any(part[0] in "._" for part in PurePosixPath(one.path).relative_to(self.path).parts)
        )

    def opened(self) -> Any:
        """The file, for reading anywhere in it."""
        return self.filesystem.open_input_file(self.path)

    def stream(self) -> Any:
        """The file from its beginning, unpacked where its ending says that it is packed."""
        return self.filesystem.open_input_stream(self.path)

    def parquet(self, **options: Any) -> Any:
        """The file, opened as Parquet; closed by the ``with`` statement."""
        import pyarrow.parquet as pa_parquet

        return pa_parquet.ParquetFile(self.path, filesystem=self.filesystem, **options)

    def _info(self) -> Any:
        try:
            return self.filesystem.get_file_info(self.path)
        except OSError as error:
            raise InputError(f"{self.where} cannot be reached: {str(error).splitlines()[0]}") from None


def place_of(place: str | Path, filesystem: Any = None) -> Place:
    """The place that a path or an address names.

    Args:
        place: a path; or an address that `pyarrow.fs` knows, ``s3://bucket/folder``, ``gs://…``, ``abfs://…``,
            ``hdfs://…``.
        filesystem: a `pyarrow.fs.FileSystem` that the path is in, for one that needs more than an address.

    Raises:
        InputError: no such kind of address, or one with a user's name, a password or a key in it: a job file is read by
            others, and the libraries of the stores find credentials in the environment.
    """
    import pyarrow as pa
    import pyarrow.fs as pa_fs

    text = str(place)
    if filesystem is not None:
        return Place(filesystem, text, text)
    if not is_address(text):
        return Place(pa_fs.LocalFileSystem(), str(Path(text).absolute()), text)
    parts = urlsplit(text)
    host = parts.netloc.rpartition("@")[2]
    shown = f"{parts.scheme}://{host}{parts.path}"
    # In abfs://container@account the part before the @ is no user.
    user = parts.netloc.rpartition("@")[0]
    secret = ":" in user or (user and parts.scheme not in ("abfs", "abfss"))
    words = ("key", "secret", "token", "password", "signature", "sig=", "credential")
    if secret or any(word in parts.query.lower() for word in words):
        raise InputError(
            f"{shown}: the address holds a user's name, a password or a key, and a job file is no place for them: "
            "leave them out, and put them where the store's library looks (AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, ~/.aws, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_KEY …)"
        )
    try:
        found, path = pa_fs.FileSystem.from_uri(text)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{shown} is no address of a known store: {str(error).splitlines()[0]}") from None
    where = shown if not user else f"{parts.scheme}://{parts.netloc}{parts.path}"
    return Place(found, path, where)
