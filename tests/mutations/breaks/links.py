"""Links, policies, consent and the order of rows: what lets a message out, or says too much by its place."""

from mutations.base import Break

__all__ = ["BREAKS"]

_SIGNED = "tests/privacy/test_signed_keys.py"

BREAKS = (
    Break(
        name="a link sends what nobody declared",
        file="securevfl/privacy/link.py",
        old="        if self._sends is not None and (what, message.kind) not in self._sends:\n",
        new="        if False:\n",
        tests=("tests/party/test_program.py", "tests/privacy", "tests/run/test_programs.py"),
    ),
    Break(
        name="a link takes what nobody declared",
        file="securevfl/privacy/link.py",
        old="        if self._takes is not None and (what, kind) not in self._takes:\n",
        new="        if False:\n",
        tests=("tests/party/test_program.py", "tests/privacy", "tests/run/test_programs.py"),
    ),
    Break(
        name="a link does not ask the policy about what arrives",
        file="securevfl/privacy/link.py",
        old="        self.policy.check_received(message, self.peer)\n",
        new="",
        tests=("tests/privacy/test_policy.py", "tests/run/test_refusal.py", "tests/run/test_programs.py"),
    ),
    Break(
        name="a link does not ask the policy about what leaves",
        file="securevfl/privacy/link.py",
        old="        self.policy.check_message(message, self.peer)\n",
        new="",
        tests=("tests/privacy/test_policy.py", "tests/run/test_refusal.py", "tests/run/test_programs.py"),
    ),
    Break(
        name="a guard may claim noise that no release added",
        file="securevfl/privacy/link.py",
        old="    if guard.noise:\n        raise TypeError(",
        new="    if False:\n        raise TypeError(",
        tests=("tests/privacy/test_guards.py", "tests/privacy/test_noise.py"),
    ),
    Break(
        name="the noise of a message is the most among its arrays",
        file="securevfl/privacy/link.py",
        old="min(map(_noise_multiplier, arrays.values())) if arrays else 0.0",
        new="max(map(_noise_multiplier, arrays.values())) if arrays else 0.0",
        tests=("tests/privacy/test_guards.py", "tests/privacy/test_noise.py"),
    ),
    Break(
        name="a policy lets clear content pass as encrypted",
        file="securevfl/privacy/policy.py",
        old="                if not _has_cipher_dtype(array, guard.cipher):\n",
        new="                if False:\n",
        tests=("tests/privacy/test_policy.py",),
    ),
    Break(
        name="a policy accepts ciphers that it does not know",
        file="securevfl/privacy/policy.py",
        old="        if cipher not in _CIPHERS:\n",
        new="        if False:\n",
        tests=("tests/privacy/test_policy.py",),
    ),
    Break(
        name="a policy accepts short Paillier keys",
        file="securevfl/privacy/policy.py",
        old='        if cipher == "paillier" and guard.bits < self.paillier_bits:\n',
        new="        if False:\n",
        tests=("tests/privacy/test_policy.py",),
    ),
    Break(
        name="the joint policy of two is the milder one about noise",
        file="securevfl/privacy/policy.py",
        old="            noised=self.noised | other.noised,\n",
        new="            noised=self.noised & other.noised,\n",
        tests=("tests/privacy/test_policy.py",),
    ),
    Break(
        name="the joint policy of two allows the larger epsilon",
        file="securevfl/privacy/policy.py",
        old="            max_epsilon=min(bounds) if bounds else None,\n",
        new="            max_epsilon=max(bounds) if bounds else None,\n",
        tests=("tests/privacy/test_policy.py",),
    ),
    Break(
        name="another job of a peer is not noticed",
        file="securevfl/party/consent.py",
        old='        if message.meta.get("job") != site.job:\n',
        new="        if False:\n",
        tests=("tests/run/test_refusal.py", "tests/party/test_program.py", "tests/run/test_programs.py"),
    ),
    Break(
        name="rows that are not aligned are numbered in the order of their table",
        file="securevfl/party/numbering.py",
        old="generator.permutation(np.flatnonzero(free))",
        new="np.flatnonzero(free)",
        tests=("tests/party/test_row_order.py",),
    ),
    Break(
        name="public keys that a link does not check",
        file="securevfl/privacy/link.py",
        old="            check_public_key(self._ledger, message, self.peer)\n",
        new="            pass\n",
        tests=(_SIGNED,),
    ),
    Break(
        name="a public key without a signature taken",
        file="securevfl/privacy/signed_keys.py",
        old='            raise AuditError("it has no signature")\n',
        new="            return\n",
        tests=(_SIGNED,),
    ),
    Break(
        name="public keys signed without the run and the attempt",
        file="securevfl/privacy/signed_keys.py",
        old="where = (opening.job, opening.run, str(attempt), view)",
        new="where = (opening.job,)",
        tests=(_SIGNED,),
    ),
    Break(
        name="public keys signed without who gets them",
        file="securevfl/privacy/signed_keys.py",
        old="ends = (*mine, *theirs) if sent else (*theirs, *mine)",
        new="ends = mine if sent else theirs",
        tests=(_SIGNED,),
    ),
    Break(
        name="public keys signed without the step that they belong to",
        file="securevfl/privacy/signed_keys.py",
        old="bare = replace(message, meta",
        new='bare = Message(message.kind, "key", message.arrays, meta',
        tests=(_SIGNED,),
    ),
    Break(
        name="a pinned peer that did not introduce itself taken",
        file="securevfl/privacy/signed_keys.py",
        old="(known is None and not ledger.has_pinned(peer)):",
        new="known is None:",
        tests=(_SIGNED,),
    ),
)
