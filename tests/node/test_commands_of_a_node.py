"""Mistakes of an operator at the commands of a node: each is named, and none stands in the way of the next command."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import pytest
from securevfl_net.durable import is_held
from support.nodes import free_port, make_company, typed

from securevfl.errors import InputError
from securevfl.node.node_file import lock_node, read_entries
from securevfl.testing.company import Company

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Company:
    return make_company(tmp_path_factory.mktemp("one"), 7443)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    typed("node", "init", tmp_path / "node", "--listen", f"127.0.0.1:{free_port()}")
    return tmp_path / "node"


def _add(node: Path, company: Company, name: str, *, own: Path | None = None, code: int = 0) -> str:
    file = own or company.folder / "bank.toml"
    return typed("node", "add", node, company.agreement_file, "--file", file, "--name", name, code=code)


def test_an_agreement_is_in_a_node_once(node: Path, company: Company) -> None:
    """A copy of the party's file with a state folder of its own makes no second party of it."""
    _add(node, company, "one")
    copy = company.folder / "copy.toml"
    text = re.sub(r"(?m)^state = .*$", "state = 'another'", (company.folder / "bank.toml").read_text())
    assert "another" in text
    copy.write_text(text)
    assert "'one' is this agreement, with the party 'bank'" in _add(node, company, "two", own=copy, code=2)
    assert "already: give another name" in _add(node, company, "one", code=2)
    other = company.names[1]
    _add(node, company, "theirs", own=company.folder / f"{other}.toml")  # of the other company, which may share it
    assert list(read_entries(node)) == ["one", "theirs"]


def test_a_broken_entry_is_removed_and_stands_in_nobodys_way(node: Path, company: Company) -> None:
    (node / "agreements" / "broken.toml").write_text("agreement = [[[\n")
    (node / "agreements" / "gone.toml").write_text('agreement = "/nowhere/a.toml"\nfile = "/nowhere/b.toml"\n')
    _add(node, company, "one")
    assert "is not TOML" in typed("node", "pause", node, "broken", code=2)
    assert "broken is removed" in typed("node", "remove", node, "broken")
    assert "it has gone, one" in typed("node", "remove", node, "broken", code=2)
    assert "one" in typed("node", "list", node)


def test_an_agreement_added_again_does_not_need_the_person_of_before(node: Path, company: Company) -> None:
    (node / "state.json").write_text(
        '{"format": 1, "agreements": {"one": {"failed": true, "code": 3, "place": 1, "resumed": 4}}}'
    )
    _add(node, company, "one")
    (entry,) = read_entries(node).values()
    assert getattr(entry, "resumed", None) == 5


@pytest.mark.parametrize("name", ["", "node.toml", "agreements"])
def test_a_node_that_everybody_may_write_does_not_run(node: Path, name: str) -> None:
    """Who may add an entry runs a party with the node's rights."""
    path = node / name
    path.chmod(path.stat().st_mode | 0o002)
    with pytest.raises(InputError, match="everybody may write"), lock_node(node):
        pass
    assert "everybody may write" in typed("node", "run", node, code=2)
    assert not is_held(node)


def test_a_new_node_is_its_owners_alone(node: Path) -> None:
    assert node.stat().st_mode & 0o077 == 0
    assert (node / "agreements").stat().st_mode & 0o077 == 0


def test_a_port_in_use_is_a_fault_that_passes(node: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (node / "node.toml").write_text(f'listen = "127.0.0.1:{port}"\n')
        assert "cannot listen" in typed("node", "run", node, code=75)


def test_a_damaged_status_is_named(node: Path) -> None:
    for text in ("[]", "{", '{"agreements": 3}'):
        (node / "status.json").write_text(text)
        assert "start the node again, which rewrites it" in typed("node", "list", node, code=2)
