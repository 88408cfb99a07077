"""Between organisations a job runs only with cells *reads it* on its card if it says so: ``accept_leak``.

A simulation runs without: one person has all tables there, and a refusal would protect nobody. Its card says what the
same job would ask for between organisations.
"""

from __future__ import annotations

from securevfl.errors import PolicyError
from securevfl.report import Card

__all__ = ["refuse_unaccepted_leaks"]

_SHOWN = 6


def refuse_unaccepted_leaks(card: Card | None, *, accepted: bool) -> None:
    """Refuse a job some of whose cells are read, whatever protection it names, unless it accepts that.

    Args:
        card: of the job; None where no party has a peer.
        accepted: whether the job has ``accept_leak``.

    Raises:
        PolicyError: who would read what, and how to accept it.
    """
    cells = () if card is None or accepted else card.read_cells
    if not cells:
        return
    found = []
    for cell in cells[:_SHOWN]:
        what = f"{cell.of} of {cell.about}" if cell.about else cell.of
        figure = f" ({cell.figure})" if cell.figure else ""
        found.append(f"{cell.reader} reads {what} {cell.says}{figure}")
    found += [f"and {len(cells) - _SHOWN} more"] if len(cells) > _SHOWN else []
    raise PolicyError(
        f"{len(cells)} cells of the job's card are 'reads it': {'; '.join(found)}. Choose another protection, noise or "
        "a smaller max_results, which `securevfl check` shows; or accept the leak: --accept-leak, in a job file "
        "accept_leak = true under [job]"
    )
