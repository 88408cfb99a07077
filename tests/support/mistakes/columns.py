"""Mistakes in labels and in other columns."""

from __future__ import annotations

from support.mistakes.making import BANK, JOB, ROWS, SHOP, Mistake, change_column, change_rows, edit

__all__ = ["COLUMNS", "LABELS"]

CHECK, INIT = "check job.toml", "init bank.csv shop.csv --out new.toml"
PREPARED = edit(JOB, '"customer"', '"customer"\nprepare = "auto"')
LABELS = [
    Mistake("no label", CHECK, "none of 2 parties", "label = ", {"job.toml": edit(JOB, 'label = "late"\n', "")}),
    Mistake("a misspelt label", CHECK, "'lat'", "late", {"job.toml": edit(JOB, '"late"', '"lat"')}),
    Mistake(
        "a draft with a label to fill in",
        "run job.toml",
        "line 11",
        "--label PARTY.COLUMN",
        {"job.toml": edit(JOB, '"late"', '"FILL IN"')},
    ),
    Mistake(
        "a label of one class",
        CHECK,
        "all labels are 1",
        "add rows of another",
        {"bank.csv": change_column(BANK, 4, lambda *_: "1")},
    ),
    Mistake(
        "rows without a label",
        CHECK,
        "row",
        "drop the row",
        {"bank.csv": change_column(BANK, 4, lambda i, v: "" if i == 3 else v)},
    ),
    Mistake(
        "nan as a label",
        CHECK,
        "row",
        "drop",
        {"bank.csv": change_column(BANK, 4, lambda i, v: "nan" if i == 3 else f"{v}.0")},
    ),
    Mistake(
        "yes and Yes",
        CHECK,
        "'Yes' and 'yes'",
        "one way",
        {"bank.csv": change_column(BANK, 4, lambda i, v: "no" if v == "0" else "yes" if i % 2 else "Yes")},
    ),
    Mistake(
        "an amount as classes",
        CHECK,
        "different values",
        'task = "regression"',
        {"bank.csv": change_column(BANK, 4, lambda i, _: f"{i}.25")},
    ),
    Mistake(
        "a number to learn that is a word",
        CHECK,
        "'yes' in row 1",
        "correct the column",
        {
            "bank.csv": change_column(BANK, 4, lambda i, v: "yes" if v == "1" else "no"),
            "job.toml": edit(JOB, "epochs = 2", 'epochs = 2\ntask = "regression"'),
        },
    ),
    Mistake(
        "an infinite number to learn",
        CHECK,
        "not finite",
        "correct or drop",
        {
            "bank.csv": change_column(BANK, 4, lambda i, v: "inf" if i == 5 else f"{i}.5"),
            "job.toml": edit(JOB, "epochs = 2", 'epochs = 2\ntask = "regression"'),
        },
    ),
    Mistake(
        "labels at two parties",
        CHECK,
        "bank, shop own labels",
        "for one table only",
        {"job.toml": edit(JOB, 'id = "customer"', 'id = "customer"\nlabel = "visits"')},
    ),
    Mistake(
        "--label in both tables",
        INIT + " --label late",
        "all have a column 'late'",
        "--label bank.late",
        {"shop.csv": edit(SHOP, "visits", "late")},
    ),
    Mistake("--label of another party's column", INIT + " --label shop.late", "'late'", "visits"),
    Mistake(
        "a copy of the label at the partner",
        CHECK,
        "AUC 1.000",
        'drop = ["visits"]',
        {"shop.csv": change_column(SHOP, 2, lambda i, _: f"{int(i * 7 % 11 < 4)}")},
        0,
    ),
    Mistake(
        "gaps that give the label away",
        CHECK,
        "its gaps alone",
        'drop = ["visits"]',
        {
            "job.toml": PREPARED,
            "shop.csv": change_column(SHOP, 2, lambda i, v: v if i * 7 % 11 < 4 else ""),
        },
        0,
    ),
]
COLUMNS = [
    Mistake(
        "a word among numbers", CHECK, "'unknown'", "categorical", {"bank.csv": edit(BANK, "P003,23,", "P003,unknown,")}
    ),
    Mistake("gaps", CHECK, "1 of 40 rows", "fill or drop them", {"bank.csv": edit(BANK, "P003,23,", "P003,,")}),
    Mistake(
        "an infinite value",
        CHECK,
        "infinite in 1 of 40",
        "drop them",
        {"bank.csv": edit(BANK, "P003,23,", "P003,inf,")},
    ),
    Mistake(
        "dates as text",
        CHECK,
        "since",
        "prepare='auto'",
        {"shop.csv": change_column(edit(SHOP, "visits", "since"), 2, lambda i, _: f"2024-01-{1 + i % 28:02d}")},
    ),
    Mistake(
        "dates that read two ways",
        CHECK,
        "'01/01/2024'",
        "write them as 2024-12-31",
        {
            "job.toml": PREPARED,
            "shop.csv": change_column(
                edit(SHOP, "visits", "since"), 2, lambda i, _: f"{1 + i % 12:02d}/{1 + i % 9:02d}/2024"
            ),
        },
    ),
    Mistake(
        "decimal commas in quotes",
        CHECK,
        "'0,25'",
        "prepare='auto'",
        {"shop.csv": change_column(SHOP, 1, lambda _, v: f'"{v.replace(".", ",")}"')},
    ),
    Mistake(
        "only constant columns",
        CHECK,
        "no column is left",
        "values differ",
        {
            "job.toml": PREPARED,
            "shop.csv": change_rows(SHOP, lambda _, row: row.split(",")[0] + ",1,2"),
        },
    ),
    Mistake(
        "no features",
        CHECK,
        "no feature columns",
        "name at least one",
        {"shop.csv": "customer\n" + "".join(f"P{i:03d}\n" for i in range(ROWS))},
    ),
    Mistake(
        "a misspelt feature",
        CHECK,
        "'spend'",
        "spent",
        {"job.toml": edit(JOB, '"customer"', '"customer"\nfeatures = ["spend"]')},
    ),
    Mistake("a misspelt category", CHECK, "'regio'", "region", {"job.toml": edit(JOB, '["region"]', '["regio"]')}),
    Mistake(
        "a misspelt column to drop",
        CHECK,
        "'visit'",
        "visits",
        {"job.toml": edit(JOB, '"customer"', '"customer"\ndrop = ["visit"]')},
    ),
    Mistake(
        "features and drop",
        CHECK,
        "['visits']",
        "leave one of the two out",
        {"job.toml": edit(JOB, '"customer"', '"customer"\ndrop = ["visits"]\nfeatures = ["spent"]')},
    ),
]
