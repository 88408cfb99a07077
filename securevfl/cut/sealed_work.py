"""Homomorphic encryption at work: its time is counted, and its errors are the toolkit's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import securevfl_crypto as crypto
from securevfl_crypto.errors import PoolError

from securevfl.errors import PolicyError, ProtocolError, RangeError, SecureVFLError
from securevfl.privacy import Clock

__all__ = ["count_as_encryption"]


@contextmanager
def count_as_encryption(clock: Clock) -> Iterator[None]:
    """Count as homomorphic encryption, and turn the cryptography's errors into the toolkit's."""
    with clock.time_encryption():
        try:
            yield
        except crypto.OverflowRefused as error:
            raise RangeError(str(error)) from error
        except crypto.WeakKeyError as error:
            raise PolicyError(f"{error}: nothing was encrypted") from error
        except PoolError as error:
            raise SecureVFLError(f"a pool of this party: {error}") from error
        except crypto.CryptoError as error:
            raise ProtocolError(str(error)) from error
