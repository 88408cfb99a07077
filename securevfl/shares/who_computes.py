"""Which parties compute on shares: three, or two, with or without a helper that deals random numbers to the two."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from securevfl.errors import InputError

__all__ = ["Computers"]

_THREE = 3
_TWO = 2


@dataclass(frozen=True, slots=True)
class Computers:
    """Who computes, as a job says it.

    Attributes:
        asked: a number of parties, or their names; no names stand for three parties.
        helper: name of the party without data that deals random numbers to two; empty for none.
    """

    asked: int | tuple[str, ...]
    helper: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the job gives; empty where it gives a number."""
        return () if isinstance(self.asked, int) else self.asked

    @property
    def are_two(self) -> bool:
        """Whether two parties compute."""
        return (self.asked if isinstance(self.asked, int) else len(self.asked)) == _TWO

    def list_problems(self) -> list[str]:
        """What of the job is impossible, whoever its parties are; one sentence for each, with the cure."""
        found, names = [], self.names
        if isinstance(self.asked, int) and self.asked not in (_TWO, _THREE):
            found.append(f"computing is {self.asked}; two or three parties can compute on shares: set 2 or 3")
        if names and (len(names) not in (_TWO, _THREE) or len(set(names)) != len(names) or not all(names)):
            told = ", ".join(name or "a party without a name" for name in names)
            found.append(
                f"computing names {told}; three different parties are needed: the active one and two "
                "others, of which one may be a coordinator without data. Or two: both parties of a job of two"
            )
        if self.helper and not found and not self.are_two:
            found.append(
                f"helper is {self.helper!r}, and three parties that compute need no helper: set computing = 2, or "
                "leave helper out"
            )
        if self.helper and self.helper in names:
            found.append(
                f"helper is {self.helper!r}, who would compute, too: together with the random numbers that it deals "
                "it could read everything. Name a party without data"
            )
        return found

    def find_names(self, active: str, passive: Sequence[str], coordinator: str) -> tuple[str, ...]:
        """Names of the computing parties, the active one first.

        Args:
            active: the party with the labels.
            passive: the parties with features alone.
            coordinator: the party without data; empty where there is none, or where it is not known yet.

        Raises:
            InputError: these parties cannot be those that the job asks for.
        """
        if self.are_two:
            return self._find_two(active, passive, coordinator)
        known = [active, *passive, *([coordinator] if coordinator else [])]
        if not self.names:
            if len(known) < _THREE:
                cure = ", ".join(f'"{name}"' for name in (*known, "coordinator"))
                raise InputError(
                    f"protection 'shares' needs three computing parties and there are {len(known)} "
                    f"({', '.join(known)}): add a coordinator without data, computing=({cure}), or set computing=2, "
                    "which trains models of one layer between two parties"
                )
            return tuple(known[:_THREE])
        if active not in self.names:
            raise InputError(
                f"computing names {', '.join(self.names)}; the active party, {active!r}, has to be one of them"
            )
        strangers = [name for name in self.names if name not in (active, *passive)]
        if len(strangers) > 1 or (coordinator and strangers not in ([], [coordinator])):
            raise InputError(
                f"computing names {', '.join(strangers)}, who take no part: the parties are {', '.join(known)}, and "
                "one coordinator without data may be added"
            )
        others = sorted(name for name in self.names if name not in (active, *strangers))
        return (active, *others, *strangers)

    def _find_two(self, active: str, passive: Sequence[str], coordinator: str) -> tuple[str, ...]:
        everyone = (active, *passive)
        if len(everyone) != _TWO:
            raise InputError(
                f"with computing=2, two parties with data compute and nobody else has data, and there are "
                f"{len(everyone)} ({', '.join(everyone)}): leave computing out, so that three of them compute"
            )
        if self.names and set(self.names) != set(everyone):
            raise InputError(
                f"computing names {', '.join(self.names)}, and the parties with data are {', '.join(everyone)}: name "
                "these two, or set computing = 2"
            )
        if self.helper in everyone:
            raise InputError(
                f"helper is {self.helper!r}, who has data: name a party without data, or leave helper out, so that "
                f"{active!r} and {passive[0]!r} make their random numbers themselves"
            )
        if self.helper and coordinator and coordinator != self.helper:
            raise InputError(
                f"helper is {self.helper!r}, and the party without data is {coordinator!r}: set helper = "
                f'"{coordinator}"'
            )
        return everyone

    def assumptions(self, active: Sequence[str], passive: Sequence[str]) -> str:
        """What has to hold so that nobody learns more than is declared; it follows "if"."""
        if self.are_two:
            one, other = (active[0], sorted(passive)[0]) if active and passive else ("the one", "the other")
            if not self.helper:
                return (
                    f"{one} and {other} both follow the protocol, and no one can solve learning with errors over "
                    "rings, Diffie-Hellman on Curve25519 or break AES"
                )
            return (
                f"neither {one} nor {other} combines what it holds with {self.helper}, who deals their random numbers "
                "and gets nothing but sizes, and all three follow the protocol"
            )
        one, other, last = self.names or ("the active party", "a second", "a third one")
        if not self.names and active and passive:
            known = [active[0], *sorted(passive), "the coordinator"]
            one, other, last = known[:_THREE]
        return f"no two of {one}, {other} and {last} collude, and all three follow the protocol"

    def find_outsider(self, parties: Collection[str]) -> str:
        """Name of the party without data that is needed beside `parties`; empty for none."""
        if self.are_two:
            return self.helper if self.helper not in parties else ""
        return next((name for name in self.names if name not in parties), "")
