"""Mistakes in files of tables and in identifiers."""

from __future__ import annotations

import gzip

from support.mistakes.making import BANK, JOB, SHOP, Mistake, change_column, edit

__all__ = ["IDENTIFIERS", "TABLES"]

CHECK, INIT = "check job.toml", "init bank.csv shop.csv --out new.toml"
TABLES = [
    Mistake("a misspelt file name", "init bnak.csv shop.csv --out new.toml", "bnak.csv", "name the party's table"),
    Mistake("only one table", "init bank.csv --out new.toml", "1 table", "two or more"),
    Mistake(
        "a folder without tables",
        "init bank.csv empty --out new.toml",
        "empty",
        "name the party's table",
        {"empty/readme.txt": "none"},
    ),
    Mistake("a spreadsheet renamed to .csv", INIT, "bank.csv", "CSV", {"bank.csv": b"PK\x03\x04" + bytes(60)}),
    Mistake("an empty file", INIT, "bank.csv is empty", "no header", {"bank.csv": ""}),
    Mistake(
        "a header without rows",
        INIT,
        "bank.csv has no rows",
        "export it again",
        {"bank.csv": BANK.splitlines()[0] + "\n"},
    ),
    Mistake("no header line", INIT, "'P000', '20'", "Insert a first line", {"bank.csv": BANK.split("\n", 1)[1]}),
    Mistake(
        "UTF-16 without its mark", CHECK, "zero bytes", "encoding = 'utf-16-le'", {"bank.csv": BANK.encode("utf-16-le")}
    ),
    Mistake(
        "another encoding than named",
        CHECK,
        "0xfc",
        "encoding = 'cp1252'",
        {
            "bank.csv": BANK.replace("N,", "Süd,").encode("cp1252"),
            "job.toml": edit(JOB, '"ref"', '"ref"\nencoding = "utf-8"'),
        },
    ),
    Mistake(
        "an encoding that does not exist",
        CHECK,
        "'utf-88'",
        "'cp1252'",
        {"job.toml": edit(JOB, '"ref"', '"ref"\nencoding = "utf-88"')},
    ),
    Mistake(
        "the wrong separator",
        CHECK,
        "ref,age",
        "delimiter =",
        {"job.toml": edit(JOB, '"ref"', '"ref"\ndelimiter = ";"')},
    ),
    Mistake(
        "a separator that is not known", CHECK, "':'", "','", {"job.toml": edit(JOB, '"ref"', '"ref"\ndelimiter = ":"')}
    ),
    Mistake(
        "a comma inside a field", CHECK, "6 fields", "quote fields", {"bank.csv": edit(BANK, "P003,23,", "P003,23,5,")}
    ),
    Mistake("a column name twice", CHECK, "'age' twice", "rename one", {"bank.csv": edit(BANK, "income", "age")}),
    Mistake(
        "a .gz that is not compressed",
        "init bank.csv.gz shop.csv --out new.toml",
        "bank.csv.gz",
        "rename it",
        {"bank.csv.gz": BANK},
    ),
    Mistake(
        "half a .gz",
        "init bank.csv.gz shop.csv --out new.toml",
        "Truncated",
        "get it again",
        {"bank.csv.gz": gzip.compress(BANK.encode(), mtime=0)[:100]},
    ),
    Mistake(
        "a .parquet that is CSV",
        "init bank.parquet shop.csv --out new.toml",
        "bank.parquet",
        ".csv",
        {"bank.parquet": BANK},
    ),
]
IDENTIFIERS = [
    Mistake(
        "a misspelt identifier column", CHECK, "'reff'", "ref", {"job.toml": edit(JOB, 'id = "ref"', 'id = "reff"')}
    ),
    Mistake(
        "an identifier twice", CHECK, "'P003'", "keep one row for each", {"bank.csv": edit(BANK, "P007,", "P003,")}
    ),
    Mistake("a row without an identifier", CHECK, "rows 8", "drop them", {"bank.csv": edit(BANK, "P007,", ",")}),
    Mistake(
        "leading zeros lost by a spreadsheet",
        CHECK,
        "no identifiers",
        "without leading zeros",
        {
            "bank.csv": change_column(BANK, 0, lambda i, _: f"{i + 1}"),
            "shop.csv": change_column(SHOP, 0, lambda i, _: f"{i + 1:06d}"),
        },
    ),
    Mistake(
        "capitals in one table only",
        CHECK,
        "no identifiers",
        "capitals and small letters",
        {"shop.csv": SHOP.replace("P0", "p0")},
    ),
    Mistake(
        "numbers with .0 as identifiers",
        CHECK,
        "without '.0'",
        "write them alike",
        {
            "bank.csv": change_column(BANK, 0, lambda i, _: f"{1000 + i}"),
            "shop.csv": change_column(SHOP, 0, lambda i, _: f"{1000 + i}.0"),
        },
    ),
    Mistake(
        "other people in both tables",
        CHECK,
        "no row is common",
        "the same people",
        {"shop.csv": SHOP.replace("P0", "Q7")},
    ),
    Mistake(
        "an identifier of two columns at one party",
        CHECK,
        "'bank' of ref, age",
        "same number of columns",
        {"job.toml": edit(JOB, 'id = "ref"', 'id = ["ref", "age"]')},
    ),
    Mistake(
        "the label as identifier, too",
        CHECK,
        "'late'",
        "one use",
        {"job.toml": edit(JOB, 'id = "ref"', 'id = ["ref", "late"]')},
    ),
    Mistake("--id with a column that one table lacks", INIT + " --id ref", "'ref'", "customer"),
    Mistake("--id for one of two parties", INIT + " --id bank.ref", "1 of 'bank', 0 of 'shop'", "--id shop.COLUMN"),
    Mistake(
        "a draft with an identifier to fill in",
        CHECK,
        "line 16",
        "--id",
        {"job.toml": edit(JOB, 'id = "customer"', 'id = "FILL IN"')},
    ),
]
