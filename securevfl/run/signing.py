"""The keys that sign the ledgers of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from securevfl.errors import InputError
from securevfl.ledger import read_keys
from securevfl.privacy import Ledgers, PrivateKey
from securevfl.run.machine import package_versions
from securevfl.run.run_files import ALIGNMENT, RESULTS
from securevfl.run.simulation import Aligned

__all__ = ["Keys", "open_signed_ledgers"]

Keys = Mapping[str, PrivateKey] | str | Path | None
"""Party → its key; or a folder of keys; or None for new keys that stay in memory."""


def open_signed_ledgers(
    runs: Iterable[str], names: Iterable[str], keys: Keys, aligned: Aligned | None, folder: Path | None
) -> Ledgers:
    """Choose what opens the ledgers of a call.

    Args:
        runs: after the alignment.
        names: of all parties.
        keys: theirs.
        aligned: an alignment that the call uses again.
        folder: for ledgers written during the runs.

    Raises:
        InputError: no key for a party, or another one than its ledger of the alignment is signed with.
    """
    names = sorted(names)
    given = read_keys(keys, names) if isinstance(keys, str | Path) else keys
    missing = [] if given is None else sorted(set(names) - set(given))
    if missing:
        raise InputError(f"no key for {', '.join(missing)}: give one for each party, or no keys at all")
    coming = [*runs, RESULTS]
    before = None if aligned is None else aligned.signing
    if before is None:
        software = f"securevfl {package_versions().get('securevfl', '')}".rstrip()
        first = [ALIGNMENT] if aligned is None else []
        return Ledgers(given, runs=[*first, *coming], software=software, folder=folder)
    for name, public in before.keys.items():
        if given is not None and name in given and given[name].public_key != public:
            raise InputError(
                f"{name!r}'s ledger of the alignment is signed with {public.fingerprint}, the key given is "
                f"{given[name].public_key.fingerprint}: give align_parties the same keys"
            )
    return before.following_ledgers(coming, folder, given)
