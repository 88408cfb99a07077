"""Ledgers, checkpoints and the count of releases: what would let a false story, or a forgotten release, pass."""

from mutations.base import Break

__all__ = ["BREAKS"]

_LEDGER = "securevfl/ledger/"
_TAMPERING = ("tests/auditing/test_tampering.py",)
_CHECKPOINTS = ("tests/run/test_checkpoints.py", "tests/run/test_store.py")
_JOURNAL = ("tests/privacy/test_journal.py",)

BREAKS = (
    Break(
        name="a changed line of a ledger passes",
        file=_LEDGER + "verifying.py",
        old="        if head != line.hash:\n",
        new="        if False:\n",
        tests=_TAMPERING,
    ),
    Break(
        name="a line that was moved, with its hash, passes",
        file=_LEDGER + "verifying.py",
        old="        elif line.prev != self.head:\n",
        new="        elif False:\n",
        tests=_TAMPERING,
    ),
    Break(
        name="a signature of a ledger is not verified",
        file=_LEDGER + "verifying.py",
        old="            self.key.verify(signed_kind(line), content, line.signature)\n",
        new="            pass\n",
        tests=_TAMPERING,
    ),
    Break(
        name="times may run backwards",
        file=_LEDGER + "verifying.py",
        old="        if line.time < self._time:\n",
        new="        if False:\n",
        tests=("tests/auditing/test_tampering.py", "tests/ledger/test_ledger.py"),
    ),
    Break(
        name="a count in a signed line is not held against the messages",
        file=_LEDGER + "verifying.py",
        old="elif isinstance(line, Mark | Closing) and line.messages != len(self.entries):",
        new="elif False:",
        tests=("tests/auditing/test_tampering.py", "tests/ledger/test_ledger.py"),
    ),
    Break(
        name="a chain may be signed with another key than the peers received",
        file=_LEDGER + "comparing.py",
        old="        if peer.key != mine.key:\n",
        new="        if False:\n",
        tests=_TAMPERING,
    ),
    Break(
        name="a chain of another session passes",
        file=_LEDGER + "comparing.py",
        old="        elif peer.session != mine.session:\n",
        new="        elif False:\n",
        tests=_TAMPERING,
    ),
    Break(
        name="a run may be taken out between two others",
        file=_LEDGER + "comparing.py",
        old="            if chain.opening.after != expected and (before is not None or from_first):\n",
        new="            if False:\n",
        tests=_TAMPERING,
    ),
    Break(
        name="the peers' signed words are not held against the chain",
        file=_LEDGER + "comparing.py",
        old="        if given != other.head_sent if last else given not in other.marks:\n",
        new="        if False:\n",
        tests=_TAMPERING,
    ),
    Break(
        name="what one end sent is not compared with what the other received",
        file=_LEDGER + "comparing.py",
        old="        if _message_fields(mine) != _message_fields(theirs):\n",
        new="        if False:\n",
        tests=_TAMPERING,
    ),
    Break(
        name="a pinned key is not asked for",
        file=_LEDGER + "comparing.py",
        old="        if pin is not None and chain.key.fingerprint != pin:\n",
        new="        if False:\n",
        tests=_TAMPERING,
    ),
    Break(
        name="figures that were edited after the run pass",
        file="securevfl/auditing/files.py",
        old="    if found != digest:\n",
        new="    if False:\n",
        tests=_TAMPERING,
    ),
    Break(
        name="an edited part of the model passes",
        file="securevfl/auditing/files.py",
        old='    return "" if digest in known else ',
        new='    return "" if digest else ',
        tests=_TAMPERING,
    ),
    Break(
        name="a checkpoint's content is not hashed",
        file="securevfl/run/store.py",
        old="        if not hmac.compare_digest(hashlib.sha256(bare).hexdigest(), digest):\n",
        new="        if False:\n",
        tests=_CHECKPOINTS,
    ),
    Break(
        name="a checkpoint of another table is loaded",
        file="securevfl/run/checkpoint.py",
        old="            if kept != digest:\n",
        new="            if False:\n",
        tests=_CHECKPOINTS,
    ),
    Break(
        name="a checkpoint of another job is loaded",
        file="securevfl/run/checkpoint.py",
        old='        if tree.get("job") != self.job or tree.get("party") != self.party:\n',
        new="        if False:\n",
        tests=_CHECKPOINTS,
    ),
    Break(
        name="a checkpoint with another epoch's name is loaded",
        file="securevfl/run/checkpoint.py",
        old='        if (tree.get("epoch"), tree.get("step", 0)) != (epoch, step):\n',
        new="        if False:\n",
        tests=_CHECKPOINTS,
    ),
    Break(
        name="a checkpoint without its journal is loaded",
        file="securevfl/run/checkpoint.py",
        old='        if not self.journal.has_line(str(tree.get("journal"))):\n',
        new="        if False:\n",
        tests=_CHECKPOINTS,
    ),
    Break(
        name="checkpoints without a common epoch begin anew",
        file="securevfl/run/checkpoint.py",
        old="    if start is None and (damaged or any(epochs - {every} for epochs in whole.values())):\n",
        new="    if False:\n",
        tests=_CHECKPOINTS,
    ),
    Break(
        name="a reservation that was never closed counts nothing",
        file="securevfl/privacy/journal.py",
        old="counts[line.release] = np.broadcast_to(np.int64(line.most), _check_rows(line.rows))\n",
        new="counts[line.release] = np.broadcast_to(np.int64(0), _check_rows(line.rows))\n",
        tests=_JOURNAL,
    ),
    Break(
        name="the journal forgets earlier attempts",
        file="securevfl/privacy/journal.py",
        old="            total += found\n",
        new="            total = total * 0 + found\n",
        tests=_JOURNAL,
    ),
    Break(
        name="a changed line of the journal is believed",
        file="securevfl/privacy/journal.py",
        old="                right = line.prev == self._head and line.hash == _chain_line(line, self._head).hash\n",
        new="                right = True\n",
        tests=_JOURNAL,
    ),
    Break(
        name="another party's journal is believed",
        file="securevfl/privacy/journal.py",
        old="        if (line.party, line.job) != (self.party, self.job):\n",
        new="        if False:\n",
        tests=("tests/privacy/test_journal.py", "tests/run/test_checkpoints.py"),
    ),
)
