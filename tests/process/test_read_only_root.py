"""Every role on a root file system that is read-only: only the state and a place for temporary files can be written.

This is what the image runs in. The image itself needs a base from a registry; see docs/deployment.md.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from support.read_only import reason_not_here, run_read_only

import securevfl as sv
from securevfl.agreement import ServingTerms
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties

PROGRAM = [sys.executable, "-m", "securevfl"]

ROLES = """
import json, os, signal, subprocess, sys, time, urllib.request
folder, names = sys.argv[1], sys.argv[2:]
program = [sys.executable, "-m", "securevfl"]

def start(*words):
    return subprocess.Popen([*program, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

def ended(processes):
    said = {name: one.communicate(timeout=240)[0] for name, one in processes.items()}
    return {name: [one.returncode, said[name][-1500:]] for name, one in processes.items()}

found = {}
found["party"] = ended({n: start("party", "agreement.toml", "--as", n, "--file", f"{n}.toml") for n in names})
servers = {
    n: start("serve", "agreement.toml", "--as", n, "--file", f"{n}.toml", "--metrics", "0",
             *(["--serving", "serving.toml"] if n == "bank" else [])) for n in names
}
lines = []
for line in servers["bank"].stdout:
    lines.append(line)
    if line.startswith("Metrics: "):
        break
url = next((one.split()[1] for one in lines if one.startswith("Questions: ")), "")
found["ready"] = 0
for _ in range(600):
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            found["ready"] = answer.status
            break
    except OSError:
        time.sleep(0.2)
with urllib.request.urlopen(lines[-1].split()[1], timeout=5) as answer:
    found["metrics"] = answer.read().decode()
for one in servers.values():
    one.send_signal(signal.SIGTERM)
found["serve"] = ended(servers)
print(json.dumps(found))
"""


@pytest.fixture
def writable(tmp_path: Path) -> Path:
    folder = tmp_path / "writable"
    folder.mkdir()
    if why := reason_not_here(folder):
        pytest.skip(why)
    return folder


def _company(folder: Path, writable: Path) -> Company:
    """Parties whose state is in the writable folder, as a volume."""
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4, top=(4,)), epochs=2, batch_size=32, seed=3)
    terms = ServingTerms(asks=("bank",))
    company = create_company(folder, make_parties(passive=1, rows=120), job, serving=terms)
    for name in company.names:
        file = folder / f"{name}.toml"
        (writable / name).mkdir()
        text = file.read_text(encoding="utf-8")
        text = text.replace(f'state = "{name}.state"', f'state = "{writable / name / "first-agreement"}"')
        book = f'results = "{writable / name / "results.jsonl"}"\n'
        file.write_text(text.replace(f'filters = "{name}.filters"\n', book), encoding="utf-8")
    (folder / "serving.toml").write_text('[http]\nlisten = "127.0.0.1:0"\nmetrics = "127.0.0.1:0"\n')
    return company


def test_help_engine_and_check(writable: Path, tmp_path: Path) -> None:
    company = _company(tmp_path / "company", writable)
    said = run_read_only([*PROGRAM, "--help"], writable)
    assert said.returncode == 0, said.stderr
    engine = run_read_only([*PROGRAM, "engine"], writable)
    assert engine.returncode == 0, engine.stderr
    assert "passed" in engine.stdout or "self-test" in engine.stdout
    checked = run_read_only([*PROGRAM, "check", "bank.toml"], writable, cwd=company.folder)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert [path.name for path in writable.iterdir() if path.is_file()] == []


def test_a_job_and_servers_of_two_parties(writable: Path, tmp_path: Path) -> None:
    company = _company(tmp_path / "company", writable)
    before = {path: path.stat().st_mtime_ns for path in company.folder.rglob("*")}
    done = run_read_only([sys.executable, "-c", ROLES, company.folder, *company.names], writable, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: code for name, (code, _) in found["party"].items()} == dict.fromkeys(company.names, 0), found
    assert found["ready"] == 200, found["serve"]
    assert {name: code for name, (code, _) in found["serve"].items()} == dict.fromkeys(company.names, 75), found
    assert re.search(r'securevfl_certificate_seconds{party="shop1"} \d', found["metrics"])
    assert re.search(r"securevfl_disk_free_bytes \d", found["metrics"])
    assert {path: path.stat().st_mtime_ns for path in company.folder.rglob("*")} == before
    assert (writable / "bank" / "first-agreement" / "finished.json").exists()
