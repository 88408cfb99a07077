"""The options of `listen` and `connect`, checked before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from securevfl_net.identity.files import write_new
from securevfl_psi.blinding import MAX_SET_SIZE
from securevfl_psi.errors import InputError, PSIError
from securevfl_psi.identifiers import IdRules
from securevfl_psi.speed import UNTOLD
from securevfl_psi.terms import LastingKey, Learns, RequestedProtocol, Role, Terms

from securevfl_psi_cli.calibration import load_speed
from securevfl_psi_cli.channel import Address, is_local, make_address
from securevfl_psi_cli.credentials import Pins, wrong_input
from securevfl_psi_cli.table import ONE_SESSION, Missing, Table
from securevfl_psi_cli.table_rows import MAX_BYTES

__all__ = [
    "Absent",
    "Column",
    "Delimiter",
    "Fold",
    "Form",
    "Json",
    "KeepSpace",
    "Least",
    "MostBytes",
    "Options",
    "Out",
    "RowsShown",
    "take_options",
]

_WHO, _WHAT, _WHERE, _RESULT = "Parties and table", "Protocol", "Connection", "Result"


class RowsShown(StrEnum):
    """What is written of the common rows."""

    numbers = "numbers"
    full = "full"


class Form(StrEnum):
    """Unicode normal forms."""

    NFKC = "NFKC"
    NFC = "NFC"


Column = Annotated[
    list[str],
    typer.Option(
        "--id", help="Column with the identifiers; several, if given more than once, make one.", rich_help_panel=_WHO
    ),
]
Absent = Annotated[
    Missing,
    typer.Option("--missing", help="Rows whose identifier is empty, NULL, NA, nan and so on.", rich_help_panel=_WHO),
]
MostBytes = Annotated[
    int, typer.Option("--max-bytes", min=1, help="Most bytes of the table, unpacked.", rich_help_panel=_WHO)
]
Delimiter = Annotated[str, typer.Option(help="Between the fields of the table.", rich_help_panel=_WHO)]
Fold = Annotated[bool, typer.Option("--casefold", help="Treat upper and lower case alike.", rich_help_panel=_WHAT)]
KeepSpace = Annotated[
    bool, typer.Option("--no-strip", help="Keep white space at both ends of identifiers.", rich_help_panel=_WHAT)
]
Squeeze = Annotated[
    bool, typer.Option("--squeeze", help="Make one space of white space inside identifiers.", rich_help_panel=_WHAT)
]
Numeric = Annotated[
    bool, typer.Option("--numeric", help="Write whole numbers one way: +0042 and 42.0 are 42.", rich_help_panel=_WHAT)
]
FormOption = Annotated[Form, typer.Option("--form", help="Unicode normal form.", rich_help_panel=_WHAT)]
Least = Annotated[
    int, typer.Option(min=0, help="Fewer common rows are an error; nobody is told which.", rich_help_panel=_WHAT)
]
Out = Annotated[Path | None, typer.Option("--out", help="Where the common rows go, CSV.", rich_help_panel=_RESULT)]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.", rich_help_panel=_RESULT)]


def _choice_option(kind: Any, what: str) -> Any:
    return typer.Option(help=f"{what}: {', '.join(kind.__args__)}.", rich_help_panel=_WHAT, metavar="NAME")


@dataclass(frozen=True, kw_only=True)
class Options:
    """One party's options, as typer reads them."""

    table: Annotated[Path, typer.Argument(help="This party's table: CSV (UTF-8, with a header; .gz too) or .parquet.")]
    column: Column
    name: Annotated[str, typer.Option(help="This party's name.", rich_help_panel=_WHO)]
    peer: Annotated[str, typer.Option(help="The other party's name.", rich_help_panel=_WHO)]
    delimiter: Delimiter = ","
    missing: Absent = Missing.refuse
    max_bytes: MostBytes = MAX_BYTES
    protocol: Annotated[str, _choice_option(RequestedProtocol, "What is computed")] = "dh"
    learns: Annotated[str, _choice_option(Learns, "Who learns the result")] = "both"
    role: Annotated[
        str | None, _choice_option(Role, "The receiver compares; if not given, it is the party that listens")
    ] = None
    casefold: Fold = False
    no_strip: KeepSpace = False
    squeeze: Squeeze = False
    numeric: Numeric = False
    form: FormOption = Form.NFKC
    min_intersection: Least = 1
    max_set_size: Annotated[
        int, typer.Option(min=1, help="Most rows that the peer may announce.", rich_help_panel=_WHAT)
    ] = MAX_SET_SIZE
    pad_to: Annotated[
        int | None, typer.Option(min=1, help="Announce and send this many rows.", rich_help_panel=_WHAT)
    ] = None
    link: Annotated[
        float | None, typer.Option(help="For auto: megabits a second to the peer.", rich_help_panel=_WHAT)
    ] = None
    tell_speed: Annotated[
        bool, typer.Option(help="For auto: tell the peer how fast this machine is.", rich_help_panel=_WHAT)
    ] = True
    context: Annotated[
        str, typer.Option(help="What the run is for; both must say the same.", rich_help_panel=_WHAT)
    ] = ""
    not_private: Annotated[
        bool,
        typer.Option(
            "--i-know-this-is-not-private", help="Needed for unsafe_salted_hash, which is not.", rich_help_panel=_WHAT
        ),
    ] = False
    salt_file: Annotated[
        Path | None, typer.Option(help="For unsafe_salted_hash: 16 bytes or more, the same.", rich_help_panel=_WHAT)
    ] = None
    lasting: Annotated[
        Path | None,
        typer.Option(
            help="For pseudonyms that later runs repeat: this party's secret; made if missing.", rich_help_panel=_WHAT
        ),
    ] = None
    host: Annotated[str, typer.Option(help="Address to listen at or to call.", rich_help_panel=_WHERE)] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port.", rich_help_panel=_WHERE)] = 9000
    cert: Annotated[Path | None, typer.Option(help="This party's certificate, PEM.", rich_help_panel=_WHERE)] = None
    key: Annotated[Path | None, typer.Option(help="Its key, PEM.", rich_help_panel=_WHERE)] = None
    peer_cert: Annotated[
        Path | None, typer.Option(help="The one certificate that the peer may show, PEM.", rich_help_panel=_WHERE)
    ] = None
    plain_text: Annotated[
        bool,
        typer.Option(
            "--plain-text-i-accept", help="No TLS, though the network reaches further.", rich_help_panel=_WHERE
        ),
    ] = False
    wait: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds until the peer must be there; listen: no limit.", rich_help_panel=_WHERE),
    ] = None
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds of silence after which it is lost.", rich_help_panel=_WHERE)
    ] = 60.0
    deadline: Annotated[
        float, typer.Option(min=0.1, help="Seconds for the whole run, once it is there.", rich_help_panel=_WHERE)
    ] = 3600.0
    shards: Annotated[
        str | None,
        typer.Option(help="Cut both sets: 'auto', or how many, a power of two. See docs.", rich_help_panel=_WHAT),
    ] = None
    shard_key: Annotated[
        Path | None,
        typer.Option(
            help="For shards: the key of a table that was cut beforehand, the same at both.", rich_help_panel=_WHAT
        ),
    ] = None
    pool: Annotated[
        str, typer.Option(help="Who runs shards: local, process:N, ray, ray:HOST:PORT.", rich_help_panel=_WHERE)
    ] = "local"
    work: Annotated[
        Path | None,
        typer.Option(help="For shards: folder that a run which was cut off goes on from.", rich_help_panel=_WHERE),
    ] = None
    out: Out = None
    rows: Annotated[
        RowsShown, typer.Option(help="Row numbers and identifiers, or whole rows.", rich_help_panel=_RESULT)
    ] = RowsShown.numbers
    json: Json = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that make an identifier."""
        return (self.column,) if isinstance(self.column, str) else tuple(self.column)

    def read_table(self) -> Table:
        """This party's table.

        Raises:
            InputError, IdentifierError, SetSizeError: it cannot be used.
        """
        return Table.read(
            self.table,
            self.columns,
            self.delimiter,
            missing=self.missing,
            max_rows=self.max_set_size if self.max_set_size > MAX_SET_SIZE else ONE_SESSION,
            max_bytes=self.max_bytes,
        )

    @property
    def address(self) -> Address:
        """Where to listen, or whom to call."""
        return make_address(self.host, self.port)

    def id_rules(self) -> IdRules:
        """How identifiers are normalised."""
        return IdRules(
            form=self.form.value,
            strip=not self.no_strip,
            casefold=self.casefold,
            squeeze=self.squeeze,
            numeric=self.numeric,
            columns=len(self.columns),
        )

    def load_pins(self) -> Pins | None:
        """Certificates; None for plain text.

        Raises:
            InputError: some of the three files are missing, or plain text would leave this machine unasked.
        """
        if self.cert and self.key and self.peer_cert:
            return Pins.load(self.cert, self.key, {self.peer: self.peer_cert})
        if self.cert or self.key or self.peer_cert:
            raise InputError("--cert, --key and --peer-cert belong together; give all three, or none")
        if not self.plain_text and not is_local(self.address):
            raise InputError(
                f"--host {self.host} is not this machine alone: give --cert, --key and --peer-cert ('certificate' "
                "makes them), or --plain-text-i-accept if the network between the parties is encrypted by other means"
            )
        return None

    def terms_arguments(self, default: Role) -> dict[str, Any]:
        """Arguments of `Terms`, tried.

        Raises:
            InputError: a value of another form.
        """
        unsafe = self.protocol == "unsafe_salted_hash"
        if unsafe and not (self.not_private and self.salt_file):
            raise InputError(
                "unsafe_salted_hash shows the sender's whole set to a receiver who can list what identifiers there "
                "could be; if that is acceptable, give --i-know-this-is-not-private and --salt-file"
            )
        if not unsafe and (self.not_private or self.salt_file):
            raise InputError("--i-know-this-is-not-private and --salt-file belong to --protocol unsafe_salted_hash")
        given: dict[str, Any] = {
            "name": self.name,
            "peer": self.peer,
            "role": self.role or default,
            "protocol": self.protocol,
            "learns": self.learns,
            "rules": self.id_rules(),
            "context": self.context,
            "max_set_size": self.max_set_size,
            "min_intersection": self.min_intersection,
            "pad_to": self.pad_to,
            "link": self.link,
            "speed": load_speed() if self.tell_speed and self.protocol == "auto" else UNTOLD,
            "salt": _read_content(self.salt_file) if self.salt_file else b"",
        }
        try:
            Terms(**given)
            if self.lasting:
                if self.protocol != "pseudonyms":
                    raise InputError(f"--lasting belongs to --protocol pseudonyms; {self.protocol} draws fresh keys")
                given["lasting"] = _lasting_key(self.lasting)
        except PSIError as error:
            raise InputError(str(error)) from None
        if self.out and self.protocol == "cardinality":
            raise InputError("--out with --protocol cardinality: it reveals how many rows are common, not which")
        return given


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def _lasting_key(path: Path) -> LastingKey:
    """The key in a file; a new one if the file does not exist."""
    if path.exists():
        return LastingKey.from_bytes(_read_content(path))
    made = LastingKey()
    with wrong_input():
        write_new(path, made.to_bytes(), private=True)
    return made


def take_options(run: Callable[[Options], None]) -> Callable[..., None]:
    """A command whose options are the fields of `Options`."""

    def command(**given: Any) -> None:
        run(Options(**given))

    hints = get_type_hints(Options, include_extras=True)
    parameters = inspect.signature(Options).parameters.values()
    signature = inspect.Signature([one.replace(annotation=hints[one.name]) for one in parameters])
    command.__doc__ = run.__doc__
    command.__annotations__ = hints
    setattr(command, "__signature__", signature)  # noqa: B010 - functions have no such attribute for a type checker
    return command
