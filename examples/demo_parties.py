"""Three organisations, three processes, mutual TLS: agree, train plain and sealed, survive a kill, audit, serve.

python examples/demo_parties.py [--out runs/demo-parties] [--rows 1500] [--sealed-rows 300]

Every step is a command of the command line, in the folder of the party that types it; whatever trains or serves is a
process of its own. What parties hand each other (cards, the proposal) is copied from folder to folder, as it would go
by mail.
"""

import argparse
import csv
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import securevfl as sv
from securevfl.cli import main as command_line
from securevfl.report import Record

OUT = Console()
NAMES = ("bank", "network", "retailer")
OK = 200
PATIENCE = 300.0
"""Seconds after which a step of the demo has failed."""

JOB = """
name = "credit"

[job]
accept_leak = true
epochs = {epochs}
batch_size = {batch}
seed = 0

[algorithm]
name = "splitnn"
hidden = 16
top = [16]
lr = 0.005
cut_lr = 0.5

[protection]
name = "{protection}"
"""

FILE = """
party = "{name}"
state = "state-{job}"
{listen}

[data]
file = "{job}.csv"
id = "id"
{label}

[keys]
signing = "keys/{name}.key"
certificate = "certs/{name}.crt"
key = "certs/{name}.key"
"""

UNBOUNDED = """
[policy]
# A decision of a person: by default a partner may have 2 numbers of each row, ever, and such a job opens more.
max_results = "unlimited"
"""


class Party:
    """One organisation: its folder, its files, its process."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.folder = root / name
        self.folder.mkdir(parents=True)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, *words: str) -> str:
        """Run a command to its end, in this process, which has loaded torch once; what it printed."""
        before, said = Path.cwd(), io.StringIO()
        os.chdir(self.folder)
        try:
            with redirect_stdout(said):
                command_line(list(words))
        except SystemExit as ended:
            if ended.code:
                raise SystemExit(f"{self.name}: securevfl {' '.join(words)} ended with {ended.code}") from None
        finally:
            os.chdir(before)
        return said.getvalue()

    def start(self, *words: str) -> None:
        """Start a command that stays; what it says goes to output.txt."""
        with (self.folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "securevfl", *words], cwd=self.folder, stdout=output, stderr=output
            )

    def status(self, job: str) -> dict[str, Any]:
        """What the party's process says of itself; empty before it does."""
        try:
            found: dict[str, Any] = json.loads((self.folder / f"state-{job}" / "status.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def alive(self, job: str) -> bool:
        """Whether the status is that of the process which was started last."""
        return self.process is not None and self.status(job).get("pid") == self.process.pid

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and wait; the exit code, negative for a signal."""
        if self.process is None or self.process.poll() is not None:
            return 0 if self.process is None else self.process.returncode
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def until(what: str, true: Callable[[], bool], parties: Sequence[Party]) -> None:
    """Wait for something, as long as no process failed."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        for one in parties:
            if one.process is not None and one.process.poll() not in (None, 0):
                output = (one.folder / "output.txt").read_text()[-2000:]
                raise SystemExit(f"{one.name} ended with {one.process.returncode} before {what}:\n{output}")
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {PATIENCE:.0f} s")
        time.sleep(0.05)


def step(words: str) -> None:
    """Say what happens now."""
    OUT.print(f"\n[bold blue]●[/] [bold]{words}[/]", highlight=False)


def say(words: str) -> None:
    """Say what came of it."""
    OUT.print(f"  {words}", highlight=False, soft_wrap=True)


def write_tables(parties: dict[str, Party], job: str, rows: int) -> None:
    """Each party's columns of the credit data, as a CSV file that it alone has."""
    for table in sv.datasets.default_credit(overlap=0.85, seed=0, rows=rows).values():
        labels = [] if table.label is None else ["default"]
        with (parties[table.name].folder / f"{job}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *table.columns, *labels])
            for row, name in enumerate(table.ids):
                label = [] if table.label is None else [table.classes[int(table.label[row])]]
                writer.writerow([name, *(column[row] for column in table.columns.values()), *label])


def write_files(parties: dict[str, Party], job: str) -> None:
    """Each party's private file. The bank opens a port for both, the network one for the retailer."""
    calls = {"bank": [], "network": ["bank"], "retailer": ["bank", "network"]}
    for name, one in parties.items():
        text = FILE.format(
            name=name,
            job=job,
            listen=f'listen = "127.0.0.1:{one.port}"' if name != "retailer" else "",
            label='label = "default"' if name == "bank" else "",
        )
        text += "" if name == "bank" else UNBOUNDED
        for peer in (peer for peer in NAMES if peer != name):
            way = f'dial = "127.0.0.1:{parties[peer].port}"' if peer in calls[name] else "listen = true"
            text += f"\n[peer.{peer}]\n{way}\n"
        (one.folder / f"{job}.toml").write_text(text, encoding="utf-8")


def agree(parties: dict[str, Party], job: str, protection: str, epochs: int, batch: int) -> None:
    """Cards to the bank, its proposal to all, everybody's approval."""
    bank = parties["bank"]
    cards: list[str] = []
    for one in parties.values():
        one.run("card", f"{job}.toml", "--out", f"{one.name}-{job}.card")
        if one is not bank:
            shutil.copy(one.folder / f"{one.name}-{job}.card", bank.folder)
        cards += ["--card", f"{one.name}-{job}.card"]
    content = JOB.format(epochs=epochs, batch=batch, protection=protection)
    (bank.folder / f"job-{job}.toml").write_text(content, encoding="utf-8")
    purpose = "Who will default? A demo on public data."
    bank.run(
        "propose",
        f"job-{job}.toml",
        *cards,
        "--purpose",
        purpose,
        "--expires",
        "1d",
        "--asks",
        "bank",
        "--out",
        f"{job}.agreement",
    )
    for one in parties.values():
        if one is not bank:
            shutil.copy(bank.folder / f"{job}.agreement", one.folder)
        one.run("approve", f"{job}.agreement", "--file", f"{job}.toml", "--yes")
    say(f"{', '.join(parties)} signed the same {(bank.folder / f'{job}.agreement').stat().st_size:,} bytes")


def train(parties: dict[str, Party], job: str, *, victim: str = "") -> None:
    """Three processes; `victim` is killed in mid-epoch and started again."""
    everyone = list(parties.values())

    def begin(one: Party) -> None:
        one.start("party", f"{job}.agreement", "--as", one.name, "--file", f"{job}.toml")

    began = time.monotonic()
    for one in everyone:
        begin(one)
    if victim:
        one = parties[victim]
        until("an epoch is over", lambda: trained(one.status(job)) >= 2, everyone)
        epoch = trained(one.status(job))
        one.end(signal.SIGKILL)
        say(f"[red]SIGKILL[/] to {victim} in epoch {epoch}, after {time.monotonic() - began:.0f} s")
        others = [other for other in everyone if other is not one]
        until("peers notice", lambda: all(not connected(other.status(job), victim) for other in others), others)
        say(f"{' and '.join(other.name for other in others)} see that {victim} is gone, and wait for it")
        begin(one)
        until("all train again", lambda: one.alive(job) and trained(one.status(job)) > 0, everyone)
        say(
            f"{victim} is back, and all go on in attempt {one.status(job)['attempt']} from their last common checkpoint"
        )
    until(
        "all are done", lambda: all(one.process is not None and one.process.poll() == 0 for one in everyone), everyone
    )
    say(f"done at all three after {time.monotonic() - began:.0f} s")


def connected(status: dict[str, Any], peer: str) -> bool:
    """Whether a party's status shows a connection to a peer."""
    return bool(status.get("peers", {}).get(peer, {}).get("connected"))


def trained(status: dict[str, Any]) -> int:
    """The epoch that a party trains in; 0 while it does not train."""
    return int(status.get("epoch", 0)) if status.get("phase") == "training" else 0


def reports(parties: dict[str, Party], job: str, root: Path) -> None:
    """What each party knows of the job: its own report, from its own state folder."""
    table = Table("party", "test AUC", "sent", "received", "report", box=None, pad_edge=False)
    for name, one in parties.items():
        folder = one.folder / f"state-{job}" / "report"
        run = Record.read(folder / "metrics.json").runs[0]
        sent = sum(link.bytes for link in run.links if link.sender == name)
        received = sum(link.bytes for link in run.links if link.receiver == name)
        auc = f"{run.test['auc']:.3f}" if "auc" in run.test else "not told"
        table.add_row(
            name,
            auc,
            f"{sent / 1e6:.1f} MB",
            f"{received / 1e6:.1f} MB",
            str((folder / "report.html").relative_to(root)),
        )
    OUT.print(table)


def compare_ledgers(parties: dict[str, Party], job: str, root: Path) -> None:
    """Put the three ledgers side by side, as an auditor would who was given all of them."""
    together = root / f"ledgers-{job}" / "ledgers"
    together.mkdir(parents=True)
    for name, one in parties.items():
        shutil.copy(one.folder / f"state-{job}" / "ledgers" / f"{name}.jsonl", together)
    bank = parties["bank"]
    found = json.loads(bank.run("audit", str(together.parent.absolute()), "--json"))
    table = Table("ledger of", "chains", "messages", "signed head held by", box=None, pad_edge=False)
    for name in parties:
        chains = [chain for chain in found["chains"] if chain["party"] == name]
        held = next(one["cross_signed_by"] for one in reversed(chains) if one["cross_signed_by"])
        messages = sum(chain["messages"] for chain in chains)
        table.add_row(name, str(len(chains)), f"{messages:,}", " and ".join(held))
    OUT.print(table)
    both = "both ends of every link have the same messages" if found["complete"] else "not both ends were compared"
    say(f"every chain verifies, and {both}")


def serve(parties: dict[str, Party], job: str) -> None:
    """Three servers, one question over HTTP."""
    bank, port = parties["bank"], free_port()
    (bank.folder / "serving.toml").write_text(
        f'[http]\nlisten = "127.0.0.1:{port}"\nmetrics = "127.0.0.1:{free_port()}"\n', encoding="utf-8"
    )
    for name, one in parties.items():
        more = ("--serving", "serving.toml") if one is bank else ()
        one.start("serve", f"{job}.agreement", "--as", name, "--file", f"{job}.toml", *more)
    until("all serve", lambda: asked(port, "readyz")[0] == OK, list(parties.values()))
    known = [{row["id"] for row in csv.DictReader((p.folder / f"{job}.csv").open())} for p in parties.values()]
    customer = min(known[0] & known[1] & known[2])
    code, answer = asked(port, "v1/score", {"customer": customer})
    shown = ", ".join(f"{name} {p:.3f}" for name, p in zip(answer["classes"], answer["probabilities"], strict=True))
    say(f"POST http://127.0.0.1:{port}/v1/score: {code}, {answer['model']} model, default: {shown}")
    codes = [one.end(signal.SIGTERM) for one in parties.values()]
    say(f"SIGTERM to all: ledgers are written, exit codes {', '.join(map(str, codes))} (75: start me again)")


def asked(port: int, path: str, question: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """Status and content of an answer; 0 while nobody answers."""
    body = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{path}", body, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/demo-parties"), help="a new folder")
    parser.add_argument("--rows", type=int, default=1500, help="clients in the plain job")
    parser.add_argument("--sealed-rows", type=int, default=300, help="clients in the sealed one")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the processes end with this one
    root = options.out.absolute()
    if root.exists():
        shutil.rmtree(root)
    parties = {name: Party(name, root) for name in NAMES}
    try:
        step("Keys and certificates: each party makes its own; no private key leaves its folder")
        for one in parties.values():
            one.run("keys", one.name, "--out", "keys")
            one.run("certs", "new", one.name, "--out", "certs")
        say(f"three folders below {root}")
        for job, protection, rows, epochs, batch in (
            ("plain", "plain", options.rows, 12, 64),
            ("sealed", "bfv", options.sealed_rows, 2, 64),
        ):
            write_tables(parties, job, rows)
            write_files(parties, job)
            step(f"An agreement on a {job} job: proposed by the bank, approved by all")
            agree(parties, job, protection, epochs, batch)
            killed = "network" if job == "plain" else ""
            step(f"Training, {job}: three processes, TLS 1.3 on loopback" + (", one of them killed" if killed else ""))
            train(parties, job, victim=killed)
            reports(parties, job, root)
            step(f"Do the signed ledgers of the {job} job agree?")
            compare_ledgers(parties, job, root)
        step("A prediction over HTTP, by all three")
        serve(parties, "plain")
    finally:
        for one in parties.values():
            one.end(signal.SIGKILL)


if __name__ == "__main__":
    main()
