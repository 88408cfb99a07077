"""The page "Run one daemon for all agreements": its lines as an operator types them, beside a shop with a node."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from securevfl_net.durable import is_held
from support.nodes import Daemon, add_agreement, free_port, make_company
from support.terminals import Terminals

PAGE = Path(__file__).parents[2] / "docs/howto/node.md"


@pytest.mark.skipif(sys.platform == "win32", reason="real parties run on Linux")
def test_an_operator_does_what_the_page_says(tmp_path: Path) -> None:
    terminals = Terminals(tmp_path)
    late = make_company(tmp_path / "bank" / "late", int(terminals.free_port("7443")))
    shop = Daemon(tmp_path / "node-shop", free_port())
    add_agreement(shop, late, "late", "--serve")
    shop.start()
    try:
        terminals.type_page(PAGE)
        assert shop.end() == 75
    finally:
        terminals.close()
        if shop.process is not None and shop.process.poll() is None:
            shop.end()
    (metrics,) = (text for line, text in terminals.said.items() if "metrics" in line)
    assert 'securevfl_node_agreement{name="late",stage="serving"} 1.0' in metrics
    assert 'securevfl_node_calls_total{result="handed_over"}' in metrics
    assert not is_held(tmp_path / "bank" / "node")
    assert not is_held(late.state_folder("bank"))
    assert sorted(path.name for path in (tmp_path / "bank" / "node").iterdir()) == [
        "agreements",
        "logs",
        "node.toml",
        "state.json",
        "status.json",
    ]
