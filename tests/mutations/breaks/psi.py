"""Private set intersection: keys used twice, proofs that prove nothing, comparisons that anybody passes."""

from mutations.base import Break

__all__ = ["BREAKS"]

_PSI = "psi/securevfl_psi/"

BREAKS = (
    Break(
        name="an OPRF key answers as often as it is asked",
        file=_PSI + "oprf.py",
        old="        self._answered = True\n",
        new="",
        tests=("tests/psi/test_oprf.py",),
    ),
    Break(
        name="an OPRF output depends on the point alone, not on the identifier",
        file=_PSI + "oprf.py",
        old="(len(places), len(start))), matrix, tails[places]], axis=1)",
        new="(len(places), len(start))), matrix * 0, tails[places]], axis=1)",
        tests=("tests/psi/test_oprf.py",),
    ),
    Break(
        name="an OPRF output lacks the domain tag",
        file=_PSI + "oprf.py",
        old='len(dst).to_bytes(2, "big") + dst, tails, length, by)',
        new='b"", tails, length, by)',
        tests=("tests/psi/test_oprf.py",),
    ),
    Break(
        name="a proof may come twice",
        file=_PSI + "proofs.py",
        old="        if count_duplicates(proofs):\n",
        new="        if False:\n",
        tests=("tests/psi/test_attacks.py", "tests/psi/test_hostile_peers.py", "tests/psi/test_endpoint.py"),
    ),
    Break(
        name="a proof of no own row is accepted",
        file=_PSI + "proofs.py",
        old="        if len(found) != len(proofs):\n",
        new="        if False:\n",
        tests=("tests/psi/test_attacks.py", "tests/psi/test_hostile_peers.py", "tests/psi/test_endpoint.py"),
    ),
    Break(
        name="a receipt does not depend on the order of the rows",
        file=_PSI + "proofs.py",
        old="self._table[rows, _RECEIPT]).tobytes()",
        new="self._table[np.sort(rows), _RECEIPT]).tobytes()",
        tests=("tests/psi/test_attacks.py", "tests/psi/test_hostile_peers.py", "tests/psi/test_endpoint.py"),
    ),
    Break(
        name="any receipt is accepted",
        file=_PSI + "proofs.py",
        old="if not hmac.compare_digest(self.make_receipt(lists), receipt):",
        new="if False:",
        tests=("tests/psi/test_attacks.py", "tests/psi/test_hostile_peers.py", "tests/psi/test_endpoint.py"),
    ),
    Break(
        name="the tokens that are compared are the proofs",
        file=_PSI + "proofs.py",
        old="return np.ascontiguousarray(self._table[:, : _PROOF.start])",
        new="return np.ascontiguousarray(self._table[:, _PROOF])",
        tests=("tests/psi/test_attacks.py", "tests/psi/test_endpoint.py", "tests/psi/test_dh.py"),
    ),
    Break(
        name="a comparison of results accepts every confirmation",
        file=_PSI + "cpace.py",
        old="if not hmac.compare_digest(self._compute_tag(self._theirs, self._peer), confirmation):",
        new="if False:",
        tests=("tests/psi/test_cpace.py",),
    ),
    Break(
        name="a comparison of results may be confirmed with the party's own tag",
        file=_PSI + "cpace.py",
        old="if len(share) != SHARE_BYTES or share == self.share:",
        new="if len(share) != SHARE_BYTES:",
        tests=("tests/psi/test_cpace.py",),
    ),
    Break(
        name="a comparison of results accepts points of small order",
        file=_PSI + "cpace.py",
        old='        check_points(point, "the peer\'s share")\n',
        new="",
        tests=("tests/psi/test_cpace.py",),
    ),
    Break(
        name="the generator of a comparison does not depend on the secret",
        file=_PSI + "cpace.py",
        old="_frame_parts(_DOMAIN, secret, *named, session)",
        new="_frame_parts(_DOMAIN, *named, session)",
        tests=("tests/psi/test_cpace.py",),
    ),
    Break(
        name="the generator of a comparison does not depend on the session",
        file=_PSI + "cpace.py",
        old="_frame_parts(_DOMAIN, secret, *named, session)",
        new="_frame_parts(_DOMAIN, secret, *named)",
        tests=("tests/psi/test_cpace.py",),
    ),
    Break(
        name="a table of the multi-party protocol lacks the shares of zero",
        file=_PSI + "multiparty.py",
        old="        values = _first_words(outputs) ^ self._compute_shares()\n",
        new="        values = _first_words(outputs)\n",
        tests=("tests/psi/test_multiparty.py",),
    ),
    Break(
        name="a table of the multi-party protocol may be asked for twice",
        file=_PSI + "multiparty.py",
        old='        if self._own is not None:\n            raise PSIError("encode_table',
        new='        if False:\n            raise PSIError("encode_table',
        tests=("tests/psi/test_multiparty.py",),
    ),
    Break(
        name="the common rows are announced in the leader's own order",
        file=_PSI + "multiparty.py",
        old="        self._rows = rows[secret_order(len(rows))]\n",
        new="        self._rows = rows\n",
        tests=("tests/psi/test_multiparty.py",),
    ),
    Break(
        name="announced tokens may be of no own row",
        file=_PSI + "multiparty.py",
        old="    if len(found) != len(tokens):\n",
        new="    if False:\n",
        tests=("tests/psi/test_multiparty.py", "tests/psi/test_hostile_peers.py"),
    ),
    Break(
        name="a COUNT is believed before the peer had all tokens",
        file=_PSI + "conversations/proving.py",
        old="        if not complete():\n",
        new="        if False:\n",
        tests=("tests/psi/test_hostile_peers.py", "tests/psi/test_endpoint.py", "tests/psi/test_attacks.py"),
    ),
    Break(
        name="a peer may say that more rows are common than this party has",
        file=_PSI + "conversations/proving.py",
        old="    if sum(counts) > limit:\n",
        new="    if False:\n",
        tests=("tests/psi/test_hostile_peers.py", "tests/psi/test_endpoint.py", "tests/psi/test_attacks.py"),
    ),
    Break(
        name="a Golomb-coded set announces any number of items",
        file=_PSI + "gcs.py",
        old="    if count > min(max_items, MAX_ITEMS):\n",
        new="    if False:\n",
        tests=("tests/psi/test_gcs.py",),
    ),
)
