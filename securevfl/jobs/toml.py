"""Job files: TOML in, a job and its parties out, with errors that name the place and the nearest name."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securevfl.cut import PROTECTIONS
from securevfl.data import Parties, datasets, read_csv, read_parquet
from securevfl.errors import InputError, UnknownNameError
from securevfl.jobs.comparison import BASELINES
from securevfl.party import Job
from securevfl.privacy import DP, Policy
from securevfl.training import Algorithm
from securevfl.transport import Kind

__all__ = ["JobFile", "build", "choice", "known", "read_job"]

_TOP = ("algorithm", "baselines", "data", "job", "name", "party", "policy", "protection")
_PARTY = ("categorical", "classes", "features", "file", "id", "label", "name", "policy")


@dataclass(frozen=True, kw_only=True)
class JobFile:
    """What a job file asks for.

    Attributes:
        name: of the run; its reports go to ``runs/<name>`` unless told otherwise.
        job: the job.
        parties: the parties' tables, loaded.
        baselines: which baselines to run beside it.
    """

    name: str
    job: Job
    parties: Parties
    baselines: tuple[str, ...]


def read_job(path: str | Path, *, active: str = "") -> JobFile:
    """Read a job file; relative file names in it are relative to it.

    Args:
        path: the file.
        active: name of the active party, where no table has labels: to predict.

    Raises:
        InputError: no such file, not TOML, a value out of range; or what loading the tables raises.
        UnknownNameError: a key, algorithm, protection or data set that does not exist; says which is nearest.
    """
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{file} does not exist: name a job file, see examples/credit.toml") from None
    except (IsADirectoryError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not a job file: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} is not TOML: {error}") from None
    known("section", content, _TOP)
    job = _job(content)
    name = content.get("name", file.stem)
    if not isinstance(name, str) or not name or "/" in name:
        raise InputError(f"name is {name!r}; it names the run's folder: letters, digits, '-' and '_'")
    baselines = tuple(_list(content.get("baselines", []), "baselines"))
    for baseline in baselines:
        if baseline not in BASELINES:
            raise UnknownNameError("baseline", baseline, BASELINES)
    return JobFile(name=name, job=job, parties=_parties(content, file.parent, active), baselines=baselines)


def _job(content: Mapping[str, Any]) -> Job:
    algorithm = Algorithm.of(content.get("algorithm", {"name": "splitnn"}), "algorithm")
    protection = dict(_section(content, "protection", {"name": "plain"}))
    if "dp" in protection:
        protection["dp"] = build(DP, _section(protection, "dp", {}), "protection.dp")
    policies = _policies(content)
    values = dict(_section(content, "job", {}))
    for reserved in ("algorithm", "protection", "policies"):
        if reserved in values:
            raise InputError(f"job.{reserved} belongs in a section of its own: [{reserved.removesuffix('ies')}]")
    job: Job = build(
        Job,
        values
        | {"algorithm": algorithm, "protection": choice(protection, "protection", PROTECTIONS), "policies": policies},
        "job",
    )
    return job


def _parties(content: Mapping[str, Any], folder: Path, active: str) -> Parties:
    data, party = content.get("data"), content.get("party")
    if (data is None) == (party is None):
        raise InputError("a job file has either a [data] section (a named data set) or [[party]] sections (files)")
    if data is not None:
        options = dict(_section(content, "data", {}))
        return datasets.load(_text(options.pop("name", None), "data.name"), **options)
    if not isinstance(party, list):
        raise InputError("parties are given as [[party]], with double brackets, once for each")
    return Parties.of(*(_table(section, i, folder) for i, section in enumerate(party, 1)), active=active)


def _table(section: object, number: int, folder: Path) -> Any:
    where = f"party {number}"
    if not isinstance(section, dict):
        raise InputError(f"{where} is {section!r}; it has to be a section [[party]]")
    known(f"key in [[party]] {number}", section, _PARTY)
    options = {key: value for key, value in section.items() if key != "policy"}
    name, given = _text(options.pop("name", None), f"{where}.name"), _text(options.pop("file", None), f"{where}.file")
    if "id" not in options:
        raise InputError(f'{where} ({name}) names no id column; add id = "…"')
    path = folder / given
    reader = read_parquet if path.suffix in (".parquet", ".pq") else read_csv
    return reader(path, name=name, **options)


def choice(given: object, what: str, registry: Mapping[str, Any]) -> Any:
    """The named configuration of a registry, built from its other keys."""
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, dict) or "name" not in given:
        raise InputError(f"[{what}] names none; add name = one of {', '.join(sorted(registry))}")
    values = dict(given)
    name = values.pop("name")
    if name not in registry:
        raise UnknownNameError(what, name, registry)
    return build(registry[name], values, what)


def build(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """A configuration dataclass from a section, with unknown keys and wrong types refused."""
    fields = {item.name: item for item in dataclasses.fields(kind)}
    known(f"key in [{where}]", values, fields)
    for name, value in values.items():
        _same_type(value, fields[name].default, f"{where}.{name}")
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(f"[{where}] has a value of the wrong type: {error}") from None


def _same_type(value: object, default: object, where: str) -> None:
    """Numbers where the default is a number, true or false where it is that; the rest is the configuration's own
    affair."""
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise InputError(f"{where} is {value!r}; true or false was expected, like {str(default).lower()}")
    elif isinstance(default, int | float):
        kind = int if isinstance(default, int) else int | float
        if isinstance(value, bool) or not isinstance(value, kind):
            what = "a whole number" if kind is int else "a number"
            raise InputError(f"{where} is {value!r}; {what} was expected, like {default!r}")
    elif isinstance(default, str) and not isinstance(value, str):
        raise InputError(f"{where} is {value!r}; a text was expected, like {default!r}")


def _policies(content: Mapping[str, Any]) -> dict[str, Policy]:
    """Each party's own policy: ``[policy.NAME]``, or ``[party.policy]`` below its ``[[party]]``."""
    sections = {name: (f"policy.{name}", value) for name, value in _section(content, "policy", {}).items()}
    listed = content.get("party")
    for number, party in enumerate(listed if isinstance(listed, list) else [], 1):
        if not isinstance(party, dict) or "policy" not in party:
            continue
        name, where = _text(party.get("name"), f"party {number}.name"), f"party {number}.policy"
        if name in sections:
            raise InputError(f"{name!r} has two policies, [policy.{name}] and [party.policy]: leave one out")
        sections[name] = where, party["policy"]
    for name, (where, value) in sections.items():
        if not isinstance(value, dict):
            raise InputError(f"{where} is {value!r}; it has to be a section, [policy.{name}]")
    return {name: build(Policy, _kinds(value), where) for name, (where, value) in sections.items()}


def _kinds(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of message kinds and protections in a policy, by name."""
    known = {kind.value: kind for kind in Kind}
    result = dict(values)
    for name in ("noised", "forbidden"):
        if name in result:
            chosen = _list(result[name], f"policy.{name}")
            for value in chosen:
                if value not in known:
                    raise UnknownNameError("message kind", value, known)
            result[name] = frozenset(known[value] for value in chosen)
    if "protections" in result:
        result["protections"] = frozenset(_list(result["protections"], "policy.protections"))
    return result


def _section(content: Mapping[str, Any], name: str, default: Mapping[str, Any]) -> Mapping[str, Any]:
    value = content.get(name, default)
    if isinstance(value, str) and name == "protection":
        return {"name": value}
    if not isinstance(value, dict):
        raise InputError(f"{name} is {value!r}; it has to be a section, [{name}]")
    return value


def known(what: str, given: Mapping[str, Any], names: Any) -> None:
    """Refuse keys that do not exist.

    Raises:
        UnknownNameError: says which is nearest.
    """
    for name in given:
        if name not in names:
            raise UnknownNameError(what, name, names)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{where} is {value!r}; a text was expected")
    return value


def _list(value: object, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{where} is {value!r}; a list of texts was expected")
    return value
