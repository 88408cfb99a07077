"""``[align]``: the protocol by which the parties of a job find their common rows, and how it hides their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from securevfl.config import Config
from securevfl.privacy import Finding
from securevfl.transport import Sight

__all__ = ["Align", "AlignProtocol"]

AlignProtocol = Literal["dh", "ot", "unbalanced", "auto", "unsafe_salted_hash"]


class Align(Config):
    """How common rows are found. All parties agree on it.

    Attributes:
        protocol: ``"dh"``: Diffie–Hellman, of two parties or, without pairwise intersections, of more. ``"ot"``:
            oblivious transfer, two parties at a time: sooner where sets are large, weaker against a peer that deviates.
            ``"unbalanced"``: the larger party publishes a filter, which may be kept for later jobs, two parties at a
            time. ``"auto"``: as ``"dh"`` among three or more parties, else the sooner one by both sizes.
            ``"unsafe_salted_hash"``: a baseline that shows the active party every passive party's set, if it can list
            the identifiers.
        link: megabits a second between the parties, each way, for ``"auto"``; None if bandwidth is not the limit.
        pad_to: number of identifiers that each party announces and sends, filled up with random ones; None for no
            padding. It hides the sizes of tables from the alignment; algorithms that train on rows that are not aligned
            disclose the number of those.
        keep_days: for ``"unbalanced"``: for how many days the larger party may reuse its filter and the filter's key,
            so that the other need not fetch it again; only at parties whose party file names a folder (`filters`). None
            for a fresh key in each alignment.
    """

    protocol: AlignProtocol = "dh"
    link: Annotated[int, Meta(ge=1, le=1_000_000, description="megabits a second")] | None = None
    pad_to: Annotated[int, Meta(ge=1, le=1 << 24)] | None = None
    keep_days: Annotated[int, Meta(ge=1, le=366, description="days")] | None = None

    @classmethod
    def section_path(cls) -> str:
        return "align"

    def problems(self) -> list[str]:
        found = super().problems()
        if self.link is not None and self.protocol != "auto":
            found.append(
                f"link is {self.link} and protocol {self.protocol!r}: only 'auto' weighs the link; leave it out"
            )
        if self.pad_to is not None and self.protocol == "unbalanced":
            found.append(
                f"pad_to is {self.pad_to} and protocol 'unbalanced': it pads all parties to one size, and that is for "
                "unequal ones; leave it out, or take 'dh' or 'ot'"
            )
        if self.keep_days is not None and self.protocol != "unbalanced":
            found.append(
                f"keep_days is {self.keep_days} and protocol {self.protocol!r}: only 'unbalanced' has a filter "
                "to keep; leave it out"
            )
        return found

    def runs_in_pairs(self, passive: int, *, book: bool = False) -> bool:
        """Whether the active party intersects with each passive one separately, and so learns each of these
        intersections; with one passive party that is the result.
        """
        return book or passive < 2 or self.protocol in ("ot", "unbalanced", "unsafe_salted_hash")

    def findings(self, passive: Sequence[str], active: str) -> list[Finding]:
        """What a protocol that is not private discloses besides the common rows."""
        if self.protocol != "unsafe_salted_hash":
            return []
        words = "its whole set, also rows that are not common, by hashing all identifiers that there could be"
        sights = (Sight(of="rows", severity="leak", through="salted hashes of its identifiers"),)
        return [Finding(active, name, words, "leak", sights) for name in passive]
