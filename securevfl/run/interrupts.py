"""Ctrl-C and SIGTERM: the command exits with an error, writes its ledgers and prints the command that resumes it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from securevfl_net.exit_codes import INTERRUPTED, TERMINATED

__all__ = ["handle_interrupts"]


@contextmanager
def handle_interrupts(command: str, say: Callable[[str], None], otherwise: str = "") -> Iterator[None]:
    """Treat SIGTERM inside the block as an interrupt. After either, the process exits once the block has written its
    files.

    Args:
        command: the command that resumes the run; empty if none does.
        say: prints a line.
        otherwise: the message if the run cannot be resumed.

    Raises:
        SystemExit: 130 after Ctrl-C, 143 after SIGTERM.
    """
    terminated = False

    def raise_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal terminated
        terminated = True
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL, None):  # as in a background job
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)  # who runs an event loop has a handler that ends it in good order

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, raise_interrupt) if main else None
    try:
        yield
    except KeyboardInterrupt as interrupt:
        say("terminated" if terminated else "interrupted")
        for note in getattr(interrupt, "__notes__", []):
            say(f"  ({note})")
        if command:
            say(f"resume with: {command}")
        else:
            say(f"nothing to resume from: {otherwise}")
        sys.exit(TERMINATED if terminated else INTERRUPTED)
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
