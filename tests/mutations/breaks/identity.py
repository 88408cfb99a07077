"""Certificates, lists of revoked ones, and signatures: what would let a stranger in, or a statement be another."""

from mutations.base import Break

__all__ = ["BREAKS"]

_IDENTITY = "psi/securevfl_net/identity/"
_FILES = "tests/net/identity/test_files.py::"
_SIGNATURES = ("tests/ledger/test_key_files.py::test_a_signature_is_of_one_kind_of_content_and_has_one_form",)

BREAKS = (
    Break(
        name="an issuer that is no authority",
        file=_IDENTITY + "certificate.py",
        old="        if not issuer.authority:\n            return False\n",
        new="",
        tests=(_FILES + "test_a_party_issues_no_certificates",),
    ),
    Break(
        name="a list of changes taken for the whole list of revoked certificates",
        file=_IDENTITY + "revocation.py",
        old="        if odd:  #",
        new="        if False:  #",
        tests=(_FILES + "test_a_list_of_another_name_or_of_changes_alone_is_refused",),
    ),
    Break(
        name="a list of revoked certificates of another issuer's name",
        file=_IDENTITY + "revocation.py",
        old="found.issuer == issuer.x509.subject and found.is_signature_valid(key)",
        new="found.is_signature_valid(key)",
        tests=(_FILES + "test_a_list_of_another_name_or_of_changes_alone_is_refused",),
    ),
    Break(
        name="signatures without their kind",
        file="securevfl/ledger/keys.py",
        old='(b"DSSEv1", b"%d" % len(kind.encode()), kind.encode(), b"%d" % len(content), content)',
        new='(b"DSSEv1", b"%d" % len(content), content)',
        tests=_SIGNATURES,
    ),
    Break(
        name="signatures in upper case",
        file="securevfl/ledger/keys.py",
        old="            if raw.hex() != signature:\n                raise ValueError\n",
        new="",
        tests=_SIGNATURES,
    ),
)
