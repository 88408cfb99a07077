"""Commands about certificates: for a party, for a development authority, and to show a file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from securevfl.cli import terminal
from securevfl.cli.application import app
from securevfl.errors import InputError

if TYPE_CHECKING:
    from securevfl_net.identity.certificate import Certificate

__all__: list[str] = []

certs = typer.Typer(
    help="Certificates by which parties recognize each other.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(certs, name="certs")

_Kind = Literal["p256", "ed25519"]
_KIND = typer.Option(help="Type of key.")
_DAYS = typer.Option(help="Days until it expires, 1 to 825.")
_FOLDER = typer.Option("--out", help="Folder of the party's files.")
_CA = typer.Option("--ca", help="The authority's folder.")


def _say(*lines: str) -> None:
    for line in lines:
        terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)


@certs.command("new")
def new_command(
    name: Annotated[str, typer.Argument(help="The party.")],
    folder: Annotated[Path, _FOLDER] = Path("certs"),
    kind: Annotated[_Kind, _KIND] = "p256",
    days: Annotated[int, _DAYS] = 90,
) -> None:
    """Make a party's key, a certificate for its peers to pin, and a signing request for an authority."""
    from securevfl_net.identity.folder import new_party

    found = new_party(name, folder, kind=kind, days=days)
    _say(
        f"{folder / name}.key proves who {name} is: keep it to yourself. {folder / name}.crt is for your peers, "
        f"{folder / name}.csr for an authority.",
        *_describe_certificate(found),
    )


@certs.command("request")
def request_command(
    name: Annotated[str, typer.Argument(help="The party.")],
    folder: Annotated[Path, _FOLDER] = Path("certs"),
    key: Annotated[Path | None, typer.Option(help="The party's key; default: NAME.key.")] = None,
) -> None:
    """Make a signing request, NAME.csr, for an existing key."""
    from securevfl_net.identity.folder import new_request

    out = folder / f"{name}.csr"
    new_request(name, key or folder / f"{name}.key", out)
    _say(f"{out} is {name}'s request to an authority; it does not contain the key.")


@certs.command("rotate")
def rotate_command(
    name: Annotated[str, typer.Argument(help="The party whose certificate is replaced.")],
    folder: Annotated[Path, _FOLDER] = Path("certs"),
    signing_key: Annotated[Path | None, typer.Option(help="The party's signing key, made by `securevfl keys`.")] = None,
    agreement: Annotated[
        list[Path] | None, typer.Option(help="An agreement that will use it; may be repeated.")
    ] = None,
    kind: Annotated[_Kind, _KIND] = "p256",
    days: Annotated[int, _DAYS] = 90,
) -> None:
    """Make a party's next key and certificate, NAME.1.crt …, endorsed by its signing key so that peers in a running job
    accept it.
    """
    from securevfl_net.identity.folder import rotate_certificate

    from securevfl.ledger import read_private_key

    if (signing_key is None) != (not agreement):
        raise InputError("an endorsement is valid for one job: give --signing-key and --agreement, or neither")
    signer = None if signing_key is None else read_private_key(signing_key)
    digests = list(dict.fromkeys(_read_digest(one) for one in agreement or ()))
    made = rotate_certificate(name, folder, days=days, kind=kind, signer=signer, agreements=digests)
    if made.certificate is None:
        _say(
            f"{made.file.with_suffix('.csr')} is the request to the authority that issued the current "
            f"certificate: put the next one at {made.file}."
        )
        return
    _say(f"{made.file} and its key replace the previous ones.", *_describe_certificate(made.certificate))
    for file in made.endorsements:
        _say(f"{file} proves to the peers of this job that it is {name}'s.")


@certs.command("endorse")
def endorse_command(
    name: Annotated[str, typer.Argument(help="The party whose newest certificate is endorsed.")],
    signing_key: Annotated[Path, typer.Option(help="The party's signing key, made by `securevfl keys`.")],
    agreement: Annotated[Path, typer.Option(help="One more agreement that will use the certificate.")],
    folder: Annotated[Path, _FOLDER] = Path("certs"),
) -> None:
    """Endorse a party's newest certificate for one more agreement, beside those that `certs rotate` named."""
    from securevfl_net.identity.folder import endorse_certificate

    from securevfl.ledger import read_private_key

    out = endorse_certificate(name, folder, read_private_key(signing_key), _read_digest(agreement))
    _say(f"{out} proves to the peers of this job that it is {name}'s.")


@certs.command("accept")
def accept_command(
    endorsement: Annotated[Path, typer.Argument(help="The peer's endorsement of its new certificate.")],
    agreement: Annotated[Path, typer.Option(help="The agreement of the job.")],
    file: Annotated[Path, typer.Option(help="This party's own file; its process is stopped meanwhile.")],
) -> None:
    """Accept a peer's endorsement that came as a file: its old certificate expired before it could rotate."""
    from securevfl_net.identity.files import read_bounded
    from securevfl_net.identity.refusal import Refusal

    from securevfl.agreement import peer_book, read_agreement, read_party_file
    from securevfl.process.state_folder import StateFolder

    whole, own = read_agreement(agreement), read_party_file(file)
    payload = read_bounded(endorsement, 32 << 10, "an endorsement")
    with StateFolder.lock(own.state, party=own.party, agreement=whole.digest):
        book = peer_book(whole, own, store=own.state / "endorsements.json")
        try:
            found = book.accept_endorsement(payload)
        except Refusal as error:
            raise InputError(f"{endorsement}: {error.code}: {error}") from None
    _say(
        f"{own.party} accepts this certificate of {found.party} from now on:", *_describe_certificate(found.certificate)
    )


def _read_digest(agreement: Path) -> bytes:
    """SHA-256 of an agreement's bytes."""
    from securevfl_net.identity.files import read_bounded

    return hashlib.sha256(read_bounded(agreement, 16 << 20, "an agreement")).digest()


@certs.command("ca")
def ca_command(
    name: Annotated[str, typer.Argument(help="Name of the authority.")],
    folder: Annotated[Path, typer.Option("--out", help="Folder to create for it.")] = Path("ca"),
) -> None:
    """Make an authority for development or a small group: ca.key, ca.crt and an empty revocation list, ca.crl."""
    from securevfl_net.identity.folder import new_authority

    found = new_authority(name, folder)
    _say(
        f"{folder / 'ca.key'} can make anyone a party: keep it away from all parties. Give them ca.crt and ca.crl.",
        f"fingerprint {found.fingerprint}",
    )


@certs.command("issue")
def issue_command(
    request: Annotated[Path, typer.Argument(help="A party's signing request, NAME.csr.")],
    name: Annotated[str, typer.Option("--name", help="The party that sent it, as you have verified.")],
    folder: Annotated[Path, _CA] = Path("ca"),
    out: Annotated[Path | None, typer.Option(help="File for the certificate; default: issued/NAME.crt.")] = None,
    days: Annotated[int, _DAYS] = 90,
) -> None:
    """Issue a certificate for a party's request; the key never leaves the party."""
    from securevfl_net.identity.folder import issue_to

    path = out or Path("issued") / f"{name}.crt"
    found = issue_to(name, request, folder, path, days=days)
    _say(f"{path} is for {name}.", *_describe_certificate(found))


@certs.command("revoke")
def revoke_command(
    certificate: Annotated[Path | None, typer.Argument(help="The certificate; omit it to renew the list.")] = None,
    folder: Annotated[Path, _CA] = Path("ca"),
    days: Annotated[int, typer.Option(help="Days until the next list is due, 1 to 825.")] = 30,
) -> None:
    """Sign the authority's next revocation list, ca.crl, with one more certificate."""
    from securevfl_net.identity.certificate import format_time
    from securevfl_net.identity.folder import revoke_certificate

    found = revoke_certificate(folder, certificate, days=days)
    _say(
        f"{folder / 'ca.crl'} is list {found.number}: {len(found.revocation_times)} revoked, the next one due "
        f"{format_time(found.due)}. Give it to all parties now."
    )


@certs.command("show")
def show_certificate_command(
    files: Annotated[
        list[Path], typer.Argument(help="Certificates, requests, endorsements: .crt, .csr, .endorsement.")
    ],
) -> None:
    """Show certificate files: fingerprint, names, validity, days left."""
    for number, file in enumerate(files):
        _say(*([""] if number else []), str(file), *(f"  {line}" for line in _read_content(file)))


def _read_content(file: Path) -> list[str]:
    from cryptography.x509 import ExtensionNotFound, SubjectAlternativeName, UniformResourceIdentifier
    from securevfl_net.identity import Endorsement, read_certificates
    from securevfl_net.identity.files import read_bounded
    from securevfl_net.identity.folder import read_request

    if file.suffix == ".key":
        raise InputError(f"{file} is private and is never shown: name the certificate beside it")
    if file.suffix == ".csr":
        asked = read_request(file)
        try:
            san = asked.extensions.get_extension_for_class(SubjectAlternativeName).value
            names = san.get_values_for_type(UniformResourceIdentifier)
        except ExtensionNotFound:
            names = []
        signed = "rightly" if asked.is_signature_valid else "WRONGLY"
        return [f"request for {', '.join(names) or 'nobody'}, {signed} signed"]
    if file.suffix == ".endorsement":
        found = Endorsement.parse_payload(read_bounded(file, 32 << 10, "an endorsement"))
        head = (
            f"endorsement {found.counter} of {found.party} for the agreement {found.agreement.hex()}, not checked here"
        )
        return [head, *_describe_certificate(found.certificate)]
    return [line for certificate in read_certificates(file, most=32) for line in _describe_certificate(certificate)]


def _describe_certificate(found: Certificate) -> list[str]:
    from securevfl_net.identity.certificate import describe_end, format_time, utc_now

    left = (found.not_after - utc_now()).total_seconds() / 86_400
    rest = f"{left:.0f} days left" if left >= 0 else f"EXPIRED {-left:.0f} days ago"
    if utc_now() < found.not_before:
        rest = "NOT YET VALID by this machine's clock"
    whose = "authority" if found.authority else f"party {', '.join(found.names) or 'nobody'}"
    lines = [
        f"fingerprint {found.fingerprint}",
        f"{whose}, {found.kind}, serial {found.x509.serial_number:x}",
        f"valid from {format_time(found.not_before)} to {format_time(found.not_after)}: {rest}",
    ]
    if soon := describe_end(left * 86_400):
        cure = (
            "all its parties need new certificates" if found.authority else "securevfl certs rotate makes the next one"
        )
        lines.append(f"WARNING: it {soon}; {cure}")
    return lines
