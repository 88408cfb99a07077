"""A party's serving file, TOML: its limits, and at the active party the HTTP server. Each party writes its own.

```toml
[policy]
min_batch = 1
scores_per_record = 20

[http]
listen = "127.0.0.1:8080"
metrics = "127.0.0.1:9464"
tokens = "tokens.toml"

[local]
job = "local.toml"
model = "runs/local/model"
```
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from securevfl.agreement import Address
from securevfl.config import Config
from securevfl.errors import InputError
from securevfl.jobfile.toml_text import raise_all, read_sections, read_toml
from securevfl.serving.limits import RequestLimits
from securevfl.serving.policy import ServingPolicy
from securevfl.serving.questions import Batching

__all__ = ["HttpSection", "LocalSection", "ServingFile", "read_serving_file"]

Word = Annotated[str, Meta(min_length=1, max_length=4096)]


class HttpSection(Config):
    """``[http]``: how the active party is asked. Paths are relative to the file.

    Attributes:
        listen: address; on loopback, unless there are `certificate` and either `tokens` or `clients`.
        metrics: address of the Prometheus metrics; None for none.
        tokens: file with digests of tokens or certificates, see `securevfl serve token`.
        certificate: of the server, PEM, with its chain.
        key: the certificate's private key.
        clients: certificates of the authorities that issue clients' certificates; if set, every client must present
            one.
    """

    listen: Word = "127.0.0.1:8080"
    metrics: Word | None = "127.0.0.1:9464"
    tokens: Word | None = None
    certificate: Word | None = None
    key: Word | None = None
    clients: Word | None = None

    @classmethod
    def section_path(cls) -> str:
        return "http"

    def problems(self) -> list[str]:
        found = super().problems()
        for name, text in (("listen", self.listen), ("metrics", self.metrics)):
            try:
                _ = None if text is None else Address.parse(text)
            except InputError as error:
                found.append(f"{name}: {error}")
        if (self.certificate is None) != (self.key is None):
            found.append("certificate and key go together; give both, or neither to answer on loopback without TLS")
        if self.clients is not None and self.certificate is None:
            found.append(
                "clients checks client certificates, which needs TLS, but this server has no certificate: give "
                "certificate and key"
            )
        if self.clients is not None and self.tokens is None:
            found.append("clients only verifies certificates; list the clients that may send requests in a tokens file")
        if found or is_loopback(Address.parse(self.listen).host):
            return found
        if self.certificate is None or self.tokens is None:
            found.append(
                f"listen is {self.listen!r}, where others can ask: give certificate, key and tokens, or listen at "
                "127.0.0.1"
            )
        return found


class LocalSection(Config):
    """``[local]``: a model that needs no other party, for customers unknown to the others: one that the active party
    trained alone, or its part of a model that supports such rows (`securevfl.training.Algorithm.subsets`).

    Attributes:
        job: the job file that trained it.
        model: its folder.
        away: whether it also scores common customers while a party is away.
    """

    job: Word
    model: Word
    away: bool = False

    @classmethod
    def section_path(cls) -> str:
        return "local"


class _Sections(Config):
    """All sections of a serving file."""

    policy: ServingPolicy = msgspec.field(default_factory=ServingPolicy)
    http: HttpSection = msgspec.field(default_factory=HttpSection)
    batches: Batching = msgspec.field(default_factory=Batching)
    limits: RequestLimits = msgspec.field(default_factory=RequestLimits)
    local: LocalSection | None = None


@dataclass(frozen=True, kw_only=True)
class ServingFile:
    """Content of a serving file; relative paths in it are relative to `folder`."""

    folder: Path
    policy: ServingPolicy
    http: HttpSection
    batches: Batching
    limits: RequestLimits
    local: LocalSection | None


def read_serving_file(path: str | Path | None) -> ServingFile:
    """Read a serving file; the defaults if there is none.

    Raises:
        InputError: no such file, not TOML, or mistakes, all of them in one message.
    """
    if path is None:
        return _build_file(Path(), _Sections())
    file = Path(path)
    sections, _, found = read_sections(_Sections, read_toml(file, "serving", 'the page "Serve predictions"'), [])
    raise_all(file, found)
    return _build_file(file.parent, sections)


def _build_file(folder: Path, sections: _Sections) -> ServingFile:
    return ServingFile(
        folder=folder,
        policy=sections.policy,
        http=sections.http,
        batches=sections.batches,
        limits=sections.limits,
        local=sections.local,
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
