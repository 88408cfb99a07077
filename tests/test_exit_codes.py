"""One table of exit codes: every error has a line, every supervisor follows it, and the pages show it."""

from __future__ import annotations

import errno
import importlib
import pkgutil
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import securevfl_net
import typer
from securevfl_net import exit_codes
from securevfl_net.errors import SecureVFLError, exit_code_of
from securevfl_net.exit_codes import CODES, ExitClass, classify_exit, should_restart, stopping_codes

import securevfl
from securevfl import cli
from securevfl.errors import (
    AuditError,
    DiskFull,
    Expired,
    InputError,
    MachineFault,
    Parked,
    PartyFailed,
    PeerEnded,
    PeerRefused,
    PeerSilent,
    PolicyError,
    ProtocolError,
    WireError,
)
from securevfl.testing.company import create_company
from securevfl.testing.parties import make_parties

ROOT = Path(__file__).parents[1]


def _kinds(kind: type[SecureVFLError] = SecureVFLError) -> Iterator[type[SecureVFLError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _kinds(one)


def _load_all() -> None:
    for package in (securevfl_net, securevfl):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                try:
                    importlib.import_module(found.name)
                except ImportError:  # needs a package that is not installed here
                    continue


def test_every_error_has_one_line_of_the_table() -> None:
    _load_all()
    numbers = [one.number for one in CODES]
    assert len(numbers) == len(set(numbers))
    kinds = set(_kinds())
    assert len(kinds) > 25
    for kind in kinds:
        assert kind.exit_code in numbers, kind
        assert kind.exit_code != 0, kind
    used = {kind.exit_code for kind in kinds}
    assert used == set(numbers) - {0, exit_codes.INTERRUPTED, exit_codes.TERMINATED}


@pytest.mark.parametrize(
    "error",
    [
        Parked("x"),
        PeerEnded("x"),
        PeerSilent("x"),
        MachineFault("x"),
        DiskFull(errno.ENOSPC, "full", "/state"),
        OSError(errno.ENOSPC, "full"),
        PartyFailed("bank", OSError(errno.ENOSPC, "full")),
        KeyboardInterrupt(),
    ],
)
def test_a_fault_outside_says_again(error: BaseException) -> None:
    if isinstance(error, PartyFailed):
        error.__cause__ = OSError(errno.ENOSPC, "full")
    assert should_restart(exit_code_of(error))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("x"), 2),
        (OSError(errno.ENOENT, "missing"), 2),
        (OSError(errno.EACCES, "denied"), 2),
        (PolicyError("x"), 3),
        (Expired("x"), 3),
        (PeerRefused("revoked", "x"), 3),
        (ProtocolError("x"), 5),
        (WireError("x"), 5),
        (PartyFailed("bank", ValueError("x")), 6),
        (AuditError("x"), 8),
        (PartyFailed("bank", MemoryError("x")), 6),
        (ValueError("x"), 1),
    ],
)
def test_what_a_person_must_see_does_not_say_again(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code
    assert classify_exit(code) == ExitClass.ACT


def test_evidence_stays_evidence_on_a_full_disk() -> None:
    for kind in (AuditError, ProtocolError, PolicyError):
        error = kind("x")
        error.__context__ = OSError(errno.ENOSPC, "full")
        assert exit_code_of(error) == kind.exit_code
    hidden = InputError("the folder cannot be written")
    hidden.__context__ = OSError(errno.ENOSPC, "full")
    assert exit_code_of(hidden) == exit_codes.AGAIN


@pytest.mark.parametrize("code", [-signal.SIGKILL, 128 + signal.SIGKILL, -signal.SIGSEGV, 134, 139, 143, 130, 75])
def test_who_was_killed_is_started_again(code: int) -> None:
    assert should_restart(code)


@pytest.mark.parametrize("code", [0, *stopping_codes(), 64, 77, 255])
def test_others_are_not(code: int) -> None:
    assert not should_restart(code)


@pytest.mark.parametrize(
    ("raised", "code", "name"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/state"), 75, "MachineFault"),
        (OSError(errno.ENOENT, "No such file", "/state"), 2, "InputError"),
        (PeerSilent("x"), 75, "PeerSilent"),
        (PeerRefused("revoked", "x"), 3, "PeerRefused"),
    ],
)
def test_the_command_ends_with_it(
    raised: BaseException, code: int, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()

    @app.command()
    def ends() -> None:
        raise raised

    monkeypatch.setattr(cli, "_command", lambda: typer.main.get_command(app))
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == code
    assert name in capsys.readouterr().err


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs/howto/exit-codes.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| \d.*$", page, re.MULTILINE)
    assert shown == [f"| {one.number} | {one.kind} | {one.topic} | {one.meaning} | {one.cure} |" for one in CODES]


def test_the_pages_command_ends_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/howto/exit-codes.md").read_text(encoding="utf-8")
    found = re.search(r"\$ (securevfl party .*)\n…\n(.*)\n\$ echo \$\?\n(\d+)\n", page)
    assert found is not None
    job = securevfl.Job(algorithm=securevfl.SplitNN(hidden=4), protection=securevfl.Plain(), epochs=1)
    create_company(tmp_path, make_parties(passive=1, rows=40), job)
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(found[1])[1:]
    monkeypatch.setattr(sys, "argv", ["securevfl", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == int(found[3])
    assert capsys.readouterr().err.splitlines()[-1] == found[2]
