"""The end of a job and exit codes: statements, confirmations, and who is started again."""

from mutations.base import Break

__all__ = ["BREAKS"]

_RUNNER = "securevfl/run/runner.py"
_FINISH = "securevfl/party/finish.py"
_END = ("tests/run/test_end.py",)
_SIGNED = ("tests/party/test_finish.py",)
_CODES = ("tests/test_exit_codes.py",)

BREAKS = (
    Break(
        name="a party passes on its own statement alone",
        file=_FINISH,
        old="        return encode_statements(self.statements.values())\n",
        new="        return encode_statements([self.own] if self.own else [])\n",
        tests=_END,
    ),
    Break(
        name="a goodbye implies nothing",
        file=_FINISH,
        old="        self._left.add(peer)\n",
        new="        pass\n",
        tests=_END,
        keywords="goodbye",
    ),
    Break(
        name="parties that have all finished train again",
        file="securevfl/party/attempts.py",
        old='        return len(marks) > 1 or marks == {""}\n',
        new="        return True\n",
        tests=_SIGNED,
        keywords="finished_together",
    ),
    Break(
        name="a party that must train again is left alone",
        file=_RUNNER,
        old="        if self._needed and not self._end.is_complete:\n",
        new="        if False:\n",
        tests=_END,
        keywords="beyond_the_stay",
    ),
    Break(
        name="the statement of another is not verified",
        file=_FINISH,
        old="                if one != known:\n",
        new="                if False:\n",
        tests=_SIGNED,
        keywords="nobody",
    ),
    Break(
        name="a process takes statements that nobody signed",
        file="securevfl/process/attempt_store.py",
        old="            PublicSigningKey.from_hex(key).verify(FINISHED, one.signed_content, one.signature)\n",
        new="            PublicSigningKey.from_hex(key)\n",
        tests=("tests/process/test_restored.py",),
        keywords="states_under",
    ),
    Break(
        name="any statements confirm the end",
        file=_FINISH,
        old=" and len(found) == len(self.peers) + 1:",
        new=":",
        tests=_SIGNED,
        keywords="everybodys",
    ),
    Break(
        name="a full disk ends the job for all",
        file=_RUNNER,
        old="        if (fault := fault_behind(error)) is None:\n",
        new="        fault = OSError()\n        if error:\n",
        tests=("tests/run/test_runner.py",),
        keywords="full_disk",
    ),
    Break(
        name="peers are not told who is at fault",
        file="securevfl/run/causes.py",
        old='    return f"{name}:{party}" if party else name\n',
        new="    return name\n",
        tests=("tests/run/test_runner.py",),
        keywords="third_parties",
    ),
    Break(
        name="evidence on a full disk says start again",
        file="psi/securevfl_net/errors.py",
        old="    if isinstance(error, SecureVFLError) and error.exit_code not in _MAY_HIDE_FAULTS:\n",
        new="    if False:\n",
        tests=_CODES,
        keywords="evidence",
    ),
    Break(
        name="a stopped program is called a lost message",
        file="securevfl/party/liveness.py",
        old="        if age > self._silent[link.peer] / 2:",
        new="        if False:",
        tests=("tests/party/test_watch.py",),
        keywords="stopped_program",
    ),
)
