"""Two organisations, two processes: what bank and shop have in common, over TLS with pinned certificates.

python examples/psi_two_processes.py [--out runs/two-processes]

The commands are printed as they run. Between two machines they are the same, with --host and the files copied.
"""

import argparse
import subprocess
import sys
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--out", type=Path, default=Path("runs/two-processes"), help="folder for all files")
folder = parser.parse_args().out
folder.mkdir(parents=True, exist_ok=True)


def start(party: str, *arguments: str) -> subprocess.Popen[str]:
    """One command of one party."""
    print(f"{party}$ securevfl-psi {' '.join(arguments)}")
    command = [sys.executable, "-m", "securevfl_psi_cli", *arguments]
    return subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[str]) -> str:
    """What a command printed; its error if it failed."""
    printed, errors = process.communicate(timeout=60)
    if process.returncode:
        raise SystemExit(errors)
    return printed


# Each party has a table: the bank by customer, the shop by client, in different order and with stray spaces.
(folder / "bank.csv").write_text("customer,income\nann,71\nbob,48\neve,90\nmia,55\n", encoding="utf-8")
(folder / "shop.csv").write_text("client,orders\nzoe,3\n eve,12\nmia,1\nann ,7\n", encoding="utf-8")

# Each makes a certificate. They exchange the .crt files and compare fingerprints; the .key files stay where they are.
for party in ("bank", "shop"):
    for old in folder.glob(f"{party}.[ck][re][ty]"):
        old.unlink()
    finish(start(party, "certificate", "--name", party))

# One listens, the other calls. The system chooses the port; the listening side prints it.
own = "--cert {0}.crt --key {0}.key --peer-cert {1}.crt --name {0} --peer {1} --out {0}-common.csv --rows full"
bank = start("bank", "listen", "bank.csv", "--id", "customer", "--port", "0", *own.format("bank", "shop").split())
port = next(line for line in bank.stderr if line.startswith("Listening")).split(":")[-1].strip()
shop = start("shop", "connect", "shop.csv", "--id", "client", "--port", port, *own.format("shop", "bank").split())
print(f"\n{finish(shop)}\n{finish(bank)}")

# Both have their own columns of the same people, in the same order: line by line they can be put side by side.
tables = [(folder / f"{party}-common.csv").read_text(encoding="utf-8").splitlines() for party in ("bank", "shop")]
for left, right in zip(*tables, strict=True):
    print(f"{left:<20}{right}")
ids = [[line.split(",")[0].strip() for line in table[1:]] for table in tables]
if sorted(ids[0]) != ["ann", "eve", "mia"] or ids[0] != ids[1]:
    raise SystemExit("the two tables do not hold the same people in the same order")
