"""A node and its front: who gets in where, and whose trouble stays whose."""

from mutations.base import Break

__all__ = ["BREAKS"]

_FRONT = ("tests/net/test_front.py", "tests/net/test_hostile_callers.py")
_RULES = ("tests/node/test_rules_of_a_node.py",)

BREAKS = (
    Break(
        name="a front hands callers of an unknown name to the first agreement",
        file="psi/securevfl_net/front/server.py",
        old="        if name not in self.doors:\n",
        new="        name = name if name in self.doors else next(iter(self.doors))\n        if not name:\n",
        tests=_FRONT,
    ),
    Break(
        name="a front counts callers that name nobody as known",
        file="psi/securevfl_net/front/server.py",
        old="        if call.name:  #",
        new="        if True:  #",
        tests=_FRONT,
    ),
    Break(
        name="a front waits for slow callers for good",
        file="psi/securevfl_net/front/server.py",
        old="            async with asyncio.timeout(self._seconds):\n",
        new="            async with asyncio.timeout(None):\n",
        tests=_FRONT,
    ),
    Break(
        name="a front has room for any number of callers",
        file="psi/securevfl_net/front/server.py",
        old="        if (loser := self._callers.choose_loser(network)) is not None and loser.task is not None:\n",
        new="        if (loser := None) is not None:\n",
        tests=_FRONT,
    ),
    Break(
        name="a front's reasons repeat what callers send",
        file="psi/securevfl_net/entrance.py",
        old=".data).isascii():",
        new=".data):",
        tests=_FRONT,
    ),
    Break(
        name="a node runs one agreement twice",
        file="securevfl/node/roster.py",
        old="            if hosted.entrance == entrance:\n",
        new="            if False:\n",
        tests=_RULES,
    ),
    Break(
        name="a node gives two agreements one state folder by two paths",
        file="securevfl/node/roster.py",
        old="            if os.path.realpath(hosted.state) == os.path.realpath(state):\n",
        new="            if hosted.state == state:\n",
        tests=_RULES,
    ),
    Break(
        name="a node drops an entry that an editor replaces",
        file="securevfl/node/roster.py",
        old="_GONE = 2\n",
        new="_GONE = 1\n",
        tests=_RULES,
    ),
    Break(
        name="a node takes one agreement for another of the same name",
        file="securevfl/node/roster.py",
        old='        if record.entrance not in ("", entrance):',
        new="        if False:",
        tests=_RULES,
    ),
    Break(
        name="a node starts what it cannot keep in mind",
        file="securevfl/node/daemon.py",
        old="        if self._store():\n",
        new="        if self._store() is not None:\n",
        tests=_RULES,
    ),
    Break(
        name="a node starts again what a person must look at",
        file="securevfl/node/daemon.py",
        old="        elif code == 0 or should_restart(code):\n",
        new="        elif True:\n",
        tests=_RULES,
    ),
    Break(
        name="calls in vain keep other agreements from their turn",
        file="securevfl/node/queue.py",
        old="(not job.serves, job.vain, not job.called, job.place)",
        new="(not job.serves, not job.called, job.place)",
        tests=_RULES,
    ),
    Break(
        name="a node's processes are in the group of its terminal",
        file="securevfl/node/child.py",
        old="                start_new_session=True,",
        new="                start_new_session=False,",
        tests=_RULES,
    ),
    Break(
        name="a process that takes no callers holds hundreds",
        file="securevfl/node/child.py",
        old="    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WAITING)\n",
        new="",
        tests=_RULES,
    ),
    Break(
        name="a process says why the one before it ended",
        file="securevfl/node/child.py",
        old="            file.seek(max(self.written, ",
        new="            file.seek(max(0, ",
        tests=_RULES,
    ),
    Break(
        name="a node runs where everybody may add an entry",
        file="securevfl/node/node_file.py",
        old="            if stat.S_IMODE(path.stat().st_mode) & stat.S_IWOTH:\n",
        new="            if False:\n",
        tests=("tests/node/test_commands_of_a_node.py",),
    ),
    Break(
        name="a party outlives its node",
        file="securevfl/process/door.py",
        old="        os.kill(os.getpid(), signal.SIGTERM)\n",
        new="        os.kill(os.getpid(), 0)\n",
        tests=_RULES,
    ),
)
