"""Mistakes of newcomers, each made on tiny tables: what is typed, and what the terminal must say of it."""

from __future__ import annotations

import io
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from securevfl import cli

__all__ = [
    "BANK",
    "BANK_FILE",
    "JOB",
    "ROWS",
    "SHOP",
    "SHOP_FILE",
    "Mistake",
    "change_column",
    "change_rows",
    "edit",
    "make_company",
    "say",
]

Content = str | bytes | None
ROWS = 40
BANK = "ref,age,income,region,late\n" + "".join(
    f"P{i:03d},{20 + i % 9},{1000 + 7 * i}.5,{'NSEW'[i % 4]},{int(i * 7 % 11 < 4)}\n" for i in range(ROWS)
)
SHOP = "customer,spent,visits\n" + "".join(f"P{i:03d},{i * 13 % 17}.25,{i % 5}\n" for i in range(ROWS))
JOB = """\
[job]
epochs = 2
[algorithm]
name = "logistic_regression"
[protection]
name = "bfv"
[[party]]
name = "bank"
file = "bank.csv"
id = "ref"
label = "late"
categorical = ["region"]
[[party]]
name = "shop"
file = "shop.csv"
id = "customer"
"""
BANK_FILE = """\
party = "bank"
listen = "127.0.0.1:7443"
[data]
file = "bank.csv"
id = "ref"
label = "late"
categorical = ["region"]
[keys]
signing = "keys/bank.key"
certificate = "certs/bank.crt"
key = "certs/bank.key"
[peer.shop]
listen = true
"""
SHOP_FILE = """\
party = "shop"
[data]
file = "shop.csv"
id = "customer"
[keys]
signing = "keys/shop.key"
certificate = "certs/shop.crt"
key = "certs/shop.key"
[peer.bank]
dial = "127.0.0.1:7443"
"""


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    Attributes:
        what: the mistake, in words.
        command: what is typed after ``securevfl``.
        files: path → its content; None for no file, bytes as they are.
        value: what the message must quote of what was found, or of the bound.
        cure: what it must say of the remedy.
        code: the exit code.
        before: what else is done in the folder.
    """

    what: str
    command: str
    value: str
    cure: str
    files: Mapping[str, Content] = field(default_factory=dict)
    code: int = 2
    before: Callable[[], None] | None = None

    def make(self, base: Path, folder: Path) -> tuple[int, str]:
        """Make it in a copy of a folder.

        Args:
            base: the folder that is right.
            folder: where to make the mistake; must not exist.

        Returns:
            The exit code, and what the terminal says.
        """
        shutil.copytree(base, folder)
        for name, content in self.files.items():
            path = folder / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with chdir(folder), _busy_port() as port:
            if self.before is not None:
                self.before()
            file = Path("bank.toml")
            file.write_text(file.read_text(encoding="utf-8").replace("BUSY", str(port)), encoding="utf-8")
            code, said = say(self.command)
        return code, said.replace(str(folder) + os.sep, "").replace(str(port), "7443")


def edit(text: str, *changes: str) -> str:
    """A text with changes: old, new, old, new; each old one must be there."""
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in text, old
        text = text.replace(old, new)
    return text


def change_rows(text: str, change: Callable[[int, str], str]) -> str:
    """A table with its rows changed; the header stays."""
    head, *rows = text.splitlines()
    return "\n".join([head, *(change(i, row) for i, row in enumerate(rows))]) + "\n"


def change_column(text: str, place: int, value: Callable[[int, str], str]) -> str:
    """A table with the values of one column changed."""

    def change(number: int, row: str) -> str:
        fields = row.split(",")
        fields[place] = value(number, fields[place])
        return ",".join(fields)

    return change_rows(text, change)


@contextmanager
def _busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def say(command: str) -> tuple[int, str]:
    """Exit code and output of a command in this process."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        try:
            cli.main(_split(command))
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    return code, out.getvalue()


def _split(command: str) -> list[str]:
    return [quoted or plain for quoted, plain in re.findall(r"'([^']*)'|(\S+)", command)]


def make_company(folder: Path) -> None:
    """Both tables, a job file, and two companies' keys, certificates, cards and agreement, approved by both."""
    folder.mkdir()
    files = {"bank.csv": BANK, "shop.csv": SHOP, "job.toml": JOB, "bank.toml": BANK_FILE, "shop.toml": SHOP_FILE}
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    with chdir(folder):
        for name in ("bank", "shop"):
            for command in (f"keys {name}", f"certs new {name}", f"card {name}.toml"):
                assert say(command)[0] == 0, command
        propose = "propose job.toml --card bank.card --card shop.card --purpose trial --expires 30d --accept-leak"
        code, said = say(propose)
        assert code == 0, said
        code, said = say("approve agreement.toml --file bank.toml --yes")
        assert code == 0, said
