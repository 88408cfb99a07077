"""Named data sets, each split among parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from inspect import signature
from typing import get_type_hints

import numpy as np
from securevfl_net.fields import Accepts, compile_annotation, format_value, suggest_nearest

from securevfl.data.images import cifar10_parties, fashion_mnist, mnist
from securevfl.data.overlap import Validation, hold_out, limited_overlap
from securevfl.data.parties import Parties
from securevfl.data.partition import independent_rows, partition, seeded_generator, shared_rows
from securevfl.data.shipped import read_shipped_file
from securevfl.data.table import PartyTable
from securevfl.data.views import digits, fate, handwritten, parkinson
from securevfl.errors import InputError, UnknownNameError

__all__ = [
    "breast_cancer",
    "cifar10",
    "default_credit",
    "digits",
    "fashion_mnist",
    "fate",
    "find_mistakes",
    "handwritten",
    "limited_credit",
    "load",
    "mnist",
    "names",
    "parkinson",
]

cifar10 = cifar10_parties

_ALONE = "alone"
_CREDIT_LABEL = "default.payment.next.month"
_CREDIT_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "bank": ("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"),
    "network": ("PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"),
    "retailer": (*(f"BILL_AMT{i}" for i in range(1, 7)), *(f"PAY_AMT{i}" for i in range(1, 7))),
}


def default_credit(*, overlap: float = 0.85, seed: int = 0, rows: int | None = None, shared: bool = False) -> Parties:
    """UCI *Default of Credit Card Clients*, split among a bank, a network and a retailer.

    30,000 clients of a bank in Taiwan, 2005; 23 columns and whether they defaulted in the next month (6,636 did). The
    **bank** is active: label, LIMIT_BAL, SEX, EDUCATION, MARRIAGE, AGE. The **network** has PAY_0 … PAY_6, the
    **retailer** BILL_AMT* and PAY_AMT*. CC BY 4.0, I-C. Yeh, UCI Machine Learning Repository 2009, doi 10.24432/C55S3H;
    ships with the package.

    Args:
        overlap: share of the clients at each party, drawn independently, in a separate random order per party.
        seed: seeds the choice of clients and the split.
        rows: first sample this many clients; all if None.
        shared: give all parties the share `overlap` of the clients and split the others among them.

    Raises:
        InputError: an overlap or a number of rows out of range, or a damaged file.
    """
    table = _credit_table(seed, rows)
    split = (shared_rows if shared else independent_rows)(table.rows, 3, overlap=overlap, seed=seed)
    return partition(table, _CREDIT_COLUMNS, split, description="Default of Credit Card Clients (UCI, CC BY 4.0)")


def limited_credit(
    *,
    overlap: float = 0.05,
    seed: int = 0,
    rows: int | None = None,
    parties: int = 3,
    labels: str = "own",
    valid: float = 0.1,
    test: float = 0.2,
    validation: Validation = "beside",
    active: str = "bank",
) -> Parties:
    """The table of `default_credit` with few common training clients, plus separate clients for validation and test.

    Args:
        overlap: common training clients: a share, or a count from 2; the others are distributed evenly.
        seed: seeds the choice of clients.
        rows: first sample this many clients; all if None.
        parties: 3; or 2, with network and retailer as one party.
        labels: ``"all"`` if the bank also has the labels of the other parties' clients.
        valid: share of the clients for validation, common to all parties.
        test: share for the test, common to all parties.
        validation: ``"overlap"``: common training clients validate, and the share `valid` is left out; see
            `limited_overlap`.
        active: who has the label. The bank's own columns say little of it, the network's most of what is known.

    Raises:
        InputError: an argument out of range, or a damaged file.
    """
    if parties not in (2, 3):
        raise InputError(f"parties is {parties!r}; the table is split among 2 or 3")
    if active not in _CREDIT_COLUMNS or (active == "retailer" and parties == 2):
        raise InputError(f"active is {active!r}; give bank or network, or retailer if parties is 3")
    table = replace(_credit_table(seed, rows), name=active)
    columns = dict(_CREDIT_COLUMNS)
    if parties == 2:
        columns = {"bank": columns["bank"], "network": (*columns["network"], *columns["retailer"])}
    fold = hold_out(table.rows, valid=valid, test=test, seed=seed)
    return limited_overlap(
        table,
        columns,
        fold,
        overlap=overlap,
        seed=seed,
        labels=labels,
        validation=validation,
        description="Default of Credit Card Clients (UCI, CC BY 4.0), limited overlap",
    )


def _credit_table(seed: int, rows: int | None) -> PartyTable:
    """Return the full table, named after the bank, or a sample of its rows."""
    header, values = read_shipped_file("default_credit.csv.xz", np.int64)
    total = len(values)
    if rows is not None:
        if not isinstance(rows, int) or not 20 <= rows <= total:
            raise InputError(f"rows is {rows!r}; the table has {total}: give a whole number from 20 to {total}")
        values = values[seeded_generator(seed, 99).permutation(total)[:rows]]
    column = {name: values[:, i] for i, name in enumerate(header)}
    categorical = frozenset({"SEX", "EDUCATION", "MARRIAGE"})
    return PartyTable(
        name="bank",
        ids=[_customer_reference(int(number)) for number in column["ID"]],
        columns={
            name: column[name].astype(np.str_) if name in categorical else column[name].astype(np.float64)
            for name in header
            if name not in ("ID", _CREDIT_LABEL)
        },
        categorical=categorical,
        label=column[_CREDIT_LABEL].astype(np.int64),
        classes=(0, 1),
        label_name=_CREDIT_LABEL,
    )


def _customer_reference(number: int) -> str:
    """Return a customer reference that hides the row number: a fixed permutation of 0 … 9,999,990 (multiplication
    modulo the prime 9,999,991).
    """
    return f"C-{number * 4_821_337 % 9_999_991:07d}"


def breast_cancer(*, overlap: float = 0.9, seed: int = 0, shared: bool = False) -> Parties:
    """Breast Cancer Wisconsin (Diagnostic), shipped with the package: a clinic with 10 columns and the diagnosis, a lab
    with 20.

    569 rows, small enough for tests and first steps. Arguments and errors as for `default_credit`.
    """
    header, values = read_shipped_file("breast_cancer.csv.xz", np.float64)
    features = header[:-1]
    table = PartyTable(
        name="clinic",
        ids=[f"P{number:04d}" for number in range(len(values))],
        columns={name: np.ascontiguousarray(values[:, i]) for i, name in enumerate(features)},
        label=values[:, -1].astype(np.int64),
        classes=("malignant", "benign"),
        label_name="diagnosis",
    )
    split = (shared_rows if shared else independent_rows)(table.rows, 2, overlap=overlap, seed=seed)
    columns = {"clinic": features[:10], "lab": features[10:]}
    return partition(table, columns, split, description="Breast Cancer Wisconsin (UCI, CC BY 4.0)")


_REGISTRY: Mapping[str, Callable[..., Parties]] = {
    "breast_cancer": breast_cancer,
    "cifar10": cifar10,
    "default_credit": default_credit,
    "digits": digits,
    "fashion_mnist": fashion_mnist,
    "fate": fate,
    "handwritten": handwritten,
    "limited_credit": limited_credit,
    "mnist": mnist,
    "parkinson": parkinson,
}


def names() -> list[str]:
    """Return the names of all data sets."""
    return sorted(_REGISTRY)


def find_mistakes(name: object, options: Mapping[str, object], where: str = "data") -> list[str]:
    """Check a data set section of a file: return its unknown names and wrong types, before any data is read.

    Args:
        name: the data set.
        options: arguments for the function of that name, and `alone`; see `load`.
        where: path of the section, for messages.
    """
    if not isinstance(name, str) or name not in _REGISTRY:
        return [f"{where}.name is {format_value(name)}{suggest_nearest(name, _REGISTRY)}"]
    accepted = _accepted_options(name)
    found = [
        f"{where} has no {option!r}{suggest_nearest(option, accepted)}" for option in options if option not in accepted
    ]
    for option, accept in accepted.items():
        if option in options:
            accept.convert_value(options[option], f"{where}.{option}", found, plain=True)
    return found


@cache
def _accepted_options(name: str) -> dict[str, Accepts]:
    """Return option → accepted values, from the function's signature."""
    hints = get_type_hints(_REGISTRY[name])
    found = {
        option: compile_annotation(hints[option], lambda kinds: None)
        for option in signature(_REGISTRY[name]).parameters
    }
    return found | {_ALONE: compile_annotation(bool, lambda kinds: None)}


def load(name: str, **options: object) -> Parties:
    """Load a data set by name; options as for the function of that name.

    With ``alone=True`` the active party is the only one: the same rows and columns of its own, for baselines that need
    no partner.

    Raises:
        UnknownNameError: there is no data set or option of this name; suggests the nearest one.
        InputError: an option has the wrong type, or the function refuses it; `alone` with several label owners.
    """
    if name not in _REGISTRY:
        raise UnknownNameError("data set", name, _REGISTRY)
    for option in options:
        if option not in _accepted_options(name):
            raise UnknownNameError(f"option of data set {name!r}:", option, _accepted_options(name))
    found = find_mistakes(name, options, name)
    if found:
        raise InputError("; ".join(found))
    alone = options.pop(_ALONE, False)
    parties = _REGISTRY[name](**options)
    if not alone:
        return parties
    if len(parties.label_owners) > 1:
        raise InputError(f"{name} has {len(parties.label_owners)} label owners, and alone is for one: leave it out")
    return Parties.of(parties.label_owners[0], description=parties.description)
