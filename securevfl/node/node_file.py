"""A node's folder: ``node.toml``, and ``agreements/NAME.toml``, an entry for each agreement.

```toml
organisation = "bank"
listen = "0.0.0.0:7443"

[limits]
jobs = 2
```
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from securevfl_net.durable import lock_folder, make_folder, write_atomic
from securevfl_net.fields.names import explain_bad_name

from securevfl.agreement import Address, Agreement, PartyFile, read_agreement, read_party_file
from securevfl.config import Config
from securevfl.errors import InputError
from securevfl.jobfile.toml_text import raise_all, read_sections, read_toml

__all__ = ["NodeEntry", "NodeFile", "NodeLimits", "init_node", "lock_node", "read_entries", "read_node", "write_entry"]

Word = Annotated[str, Meta(min_length=1, max_length=4096)]
_PAGE = 'the page "Run one daemon for all agreements"'
_NAME = 64

TEMPLATE = """\
# A node: one daemon that takes part in all agreements of an organisation. `securevfl node run` reads this file at its
# start; agreements come and go with `securevfl node add` and `remove`, while it runs.

organisation = {organisation}

# The one address at which all peers of all agreements call; their party files dial it. The node holds no key: it reads
# which agreement a caller names, and hands the connection over to the party's own process. Certificates, keys, tables
# and policies are those of the party files.
listen = {listen}

# Metrics for Prometheus, on loopback; leave it out for none.
# metrics = "127.0.0.1:9465"

[limits]
# Trainings at once; further agreements wait in the queue, first come, first served. Served models do not count.
jobs = 2
# Gigabytes that all running agreements may need together, by what their entries say (`add --memory`).
# memory = 64.0
# Seconds that a training may wait for its peers while other agreements wait for its place.
turn = 120.0
"""


class NodeLimits(Config):
    """``[limits]``.

    Attributes:
        jobs: trainings at once.
        memory: gigabytes that all running agreements may need together, by what their entries say; None for no limit.
        turn: seconds that a training may wait for its peers while others wait for its place.
    """

    jobs: Annotated[int, Meta(ge=1, le=1024)] = 2
    memory: Annotated[float, Meta(gt=0)] | None = None
    turn: Annotated[float, Meta(ge=1)] = 120.0

    @classmethod
    def section_path(cls) -> str:
        return "limits"


class _NodeSections(Config):
    organisation: Annotated[str, Meta(max_length=256)] = ""
    listen: Word | None = None
    metrics: Word | None = None
    limits: NodeLimits = msgspec.field(default_factory=NodeLimits)


@dataclass(frozen=True, kw_only=True)
class NodeFile:
    """Content of ``node.toml``."""

    folder: Path
    organisation: str
    listen: Address
    metrics: Address | None
    limits: NodeLimits


class _EntrySections(Config):
    agreement: Annotated[str, Meta(max_length=4096)] = ""
    file: Annotated[str, Meta(max_length=4096)] = ""
    serve: bool = False
    serving: Word | None = None
    memory: Annotated[float, Meta(ge=0)] = 0.0
    paused: bool = False
    resumed: Annotated[int, Meta(ge=0)] = 0


@dataclass(frozen=True, kw_only=True)
class NodeEntry:
    """An agreement in a node's folder.

    Attributes:
        name: of its file.
        agreement: the agreement's file, with approvals beside it.
        file: the party's own file.
        serve: whether to serve the model once it is trained.
        serving: the party's serving file.
        memory: gigabytes that it needs, as the operator says.
        paused: whether it must not run.
        resumed: how often a person said to try again.
    """

    name: str
    agreement: Path
    file: Path
    serve: bool = False
    serving: Path | None = None
    memory: float = 0.0
    paused: bool = False
    resumed: int = 0

    def read_files(self) -> tuple[Agreement, PartyFile]:
        """The agreement and the party's file.

        Raises:
            InputError: one cannot be used, or this party has not approved.
            AuditError: an approval that does not verify.
        """
        found, own = read_agreement(self.agreement), read_party_file(self.file)
        if own.party not in found.approvals:
            raise InputError(f"{own.party!r} has not approved {self.agreement}: run `securevfl approve` first")
        return found, own


def init_node(folder: Path, organisation: str, listen: str) -> Path:
    """Make a node's folder; returns its ``node.toml``.

    Raises:
        InputError: there is one, or `listen` is no address.
    """
    Address.parse(listen)
    path = folder / "node.toml"
    if path.exists():
        raise InputError(f"{path} is there already: edit it, or choose another folder")
    make_folder(folder, private=True)
    make_folder(folder / "agreements", private=True)
    text = TEMPLATE.format(organisation=json.dumps(organisation, ensure_ascii=False), listen=json.dumps(listen))
    write_atomic(path, text.encode())
    return path


def read_node(folder: Path) -> NodeFile:
    """Read ``node.toml``.

    Raises:
        InputError: no such file, not TOML, or mistakes, all of them in one message.
    """
    path = folder / "node.toml"
    if not path.exists():
        raise InputError(f"{path} does not exist: make a node with `securevfl node init {folder}`")
    content = read_toml(path, "node", _PAGE)
    sections, broken, found = read_sections(_NodeSections, content, [])
    if sections.listen is None and "listen" not in broken:
        found.append('it does not say where peers call: give listen = "host:port"')
    for name, text in (("listen", sections.listen), ("metrics", sections.metrics)):
        try:
            _ = None if text is None else Address.parse(text)
        except InputError as error:
            found.append(f"{name}: {error}")
    raise_all(path, found)
    return NodeFile(
        folder=folder,
        organisation=sections.organisation,
        listen=Address.parse(sections.listen or ""),
        metrics=None if sections.metrics is None else Address.parse(sections.metrics),
        limits=sections.limits,
    )


def read_entry(path: Path) -> NodeEntry:
    """Read an entry; relative paths in it are relative to its folder.

    Raises:
        InputError: it cannot be used.
    """
    if path.exists() and not path.is_file():  # reading a pipe would wait
        raise InputError(f"{path} is no file: name a node's entry, see {_PAGE}")
    content = read_toml(path, "node's entry", _PAGE)
    sections, _, found = read_sections(_EntrySections, content, [])
    found += [f"{name} is missing: name a file" for name in ("agreement", "file") if name not in content]
    if rule := explain_bad_name(path.stem):
        found.append(f"the file's name: {rule}")
    raise_all(path, found)
    where = path.parent.absolute()
    return NodeEntry(
        name=path.stem,
        agreement=where / sections.agreement,
        file=where / sections.file,
        serve=sections.serve,
        serving=None if sections.serving is None else where / sections.serving,
        memory=sections.memory,
        paused=sections.paused,
        resumed=sections.resumed,
    )


def read_entries(folder: Path) -> dict[str, NodeEntry | InputError]:
    """Name → entry of a node's folder, or why it cannot be used; those that were written first come first.

    Raises:
        InputError: the folder of entries cannot be read; that is not the same as one without entries.
    """
    where = folder / "agreements"
    try:
        paths = [where / name for name in os.listdir(where) if name.endswith(".toml") and not name.startswith(".")]
    except OSError as error:
        raise InputError(f"{where} cannot be read ({error.strerror}): the node's entries belong there") from error
    found: dict[str, NodeEntry | InputError] = {}
    for path in sorted(paths, key=_written):
        try:
            found[path.stem] = read_entry(path)
        except InputError as error:
            if path.exists():  # it may just have been removed
                found[path.stem] = error
    return found


def _written(path: Path) -> tuple[int, str]:
    try:
        return path.stat().st_mtime_ns, path.name
    except OSError:  # it has just been removed
        return 0, path.name


def write_entry(folder: Path, entry: NodeEntry) -> Path:
    """Write an entry, whole; returns its file.

    Raises:
        InputError: its name cannot be one.
    """
    if rule := explain_bad_name(entry.name):
        raise InputError(f"the name of an agreement in a node: {rule}; give another one with --name")
    path = folder / "agreements" / f"{entry.name}.toml"
    lines = [f"agreement = {_quote(entry.agreement)}", f"file = {_quote(entry.file)}"]
    lines += ["serve = true"] * entry.serve
    lines += [] if entry.serving is None else [f"serving = {_quote(entry.serving)}"]
    lines += [f"memory = {entry.memory}"] * bool(entry.memory)
    lines += ["paused = true"] * entry.paused
    lines += [f"resumed = {entry.resumed}"] * bool(entry.resumed)
    make_folder(path.parent)
    write_atomic(path, ("\n".join(lines) + "\n").encode())
    return path


def _quote(path: Path) -> str:
    return json.dumps(str(path.absolute()), ensure_ascii=False)


@contextmanager
def lock_node(folder: Path) -> Iterator[None]:
    """Keep a node's folder for this process during the block.

    Raises:
        InUse: another daemon has it.
        InputError: everybody on this machine may write there: who can add an entry acts with the node's rights.
    """
    for path in (folder, folder / "node.toml", folder / "agreements"):
        with suppress(FileNotFoundError):
            if stat.S_IMODE(path.stat().st_mode) & stat.S_IWOTH:
                raise InputError(f"everybody may write {path}: run `chmod o-w {path}` and look into what is there")
    with lock_folder(folder, "another node runs there; stop it first"):
        yield
