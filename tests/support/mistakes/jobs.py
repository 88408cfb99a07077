"""Mistakes in job files, commands and folders."""

from __future__ import annotations

from pathlib import Path

from support.mistakes.making import JOB, Mistake, edit

__all__ = ["JOBS", "RUNS"]

CHECK = "check job.toml"
PARTY = '[[party]]\nname = "third"\nfile = "shop.csv"\nid = "customer"\n'


def _job(*changes: str) -> dict[str, str]:
    return {"job.toml": edit(JOB, *changes)}


def _finish_old() -> None:
    """A folder as a finished run leaves it."""
    Path("old").mkdir()
    Path("old/metrics.json").write_text("{}", encoding="utf-8")


JOBS = [
    Mistake("no such job file", "run jop.toml", "jop.toml does not exist", "name a job file"),
    Mistake(
        "a quote is missing", CHECK, "line 9", "texts stand in quotes", _job('file = "bank.csv"', 'file = "bank.csv')
    ),
    Mistake("a misspelt setting", CHECK, "epoch", "epochs", _job("epochs = 2", "epoch = 2")),
    Mistake("a word for a number", CHECK, "'ten'", "from 1 to 100000", _job("epochs = 2", 'epochs = "ten"')),
    Mistake("no epochs", CHECK, "epochs is 0", "from 1 to", _job("epochs = 2", "epochs = 0")),
    Mistake(
        "a misspelt algorithm", CHECK, "'logistic'", "logistic_regression", _job('"logistic_regression"', '"logistic"')
    ),
    Mistake(
        "an option of another algorithm",
        CHECK,
        "'depth'",
        "known: 'bottom'",
        _job('"logistic_regression"', '"logistic_regression"\ndepth = 5'),
    ),
    Mistake("a misspelt protection", CHECK, "'bvf'", "bfv", _job('"bfv"', '"bvf"')),
    Mistake(
        "a protection that the algorithm lacks",
        CHECK,
        "'bfv'",
        "'paillier'",
        _job('"logistic_regression"', '"boosting"'),
    ),
    Mistake(
        "two parties without a protection",
        CHECK,
        "z",
        "Name a protection",
        _job('[protection]\nname = "bfv"\n', "", "logistic_regression", "splitnn"),
        3,
    ),
    Mistake(
        "[party] in single brackets",
        CHECK,
        "[party]",
        "[[party]]",
        {"job.toml": JOB.partition('[[party]]\nname = "shop"')[0].replace("[[party]]", "[party]")},
    ),
    Mistake("two parties of one name", CHECK, "'bank'", "its own name", _job('name = "shop"', 'name = "bank"')),
    Mistake(
        "one party", CHECK, "only party", "[[party]]", {"job.toml": JOB.partition('[[party]]\nname = "shop"')[0]}, 0
    ),
    Mistake("a name with a space", CHECK, "'the bank'", "lower-case words", _job('name = "bank"', 'name = "the bank"')),
    Mistake("a misspelt baseline", CHECK, "'alonely'", "alone", {"job.toml": 'baselines = ["alonely"]\n' + JOB}),
    Mistake(
        "all rows to validate and test",
        CHECK,
        "valid is 0.6 and test is 0.6",
        "less than 1",
        _job("epochs = 2", "epochs = 2\nvalid = 0.6\ntest = 0.6"),
    ),
    Mistake(
        "too few rows for shares",
        CHECK,
        "400 and 200",
        "few_rows = true",
        {"job.toml": edit(JOB, 'name = "bfv"', 'name = "shares"\ncomputing = 2')},
        0,
    ),
    Mistake("a policy of nobody", CHECK, "shopp", "shop", {"job.toml": JOB + "[policy.shopp]\nsealed = true\n"}),
    Mistake(
        "a policy that refuses the job",
        CHECK,
        "'bfv'",
        "accepts shares",
        {"job.toml": JOB + '[policy.shop]\nprotections = ["shares"]\n'},
        3,
    ),
    Mistake(
        "a misspelt data set",
        CHECK,
        "'default_credits'",
        "default_credit",
        {"job.toml": '[data]\nname = "default_credits"\n'},
    ),
]
RUNS = [
    Mistake("a misspelt command", "chek job.toml", "chek", "check"),
    Mistake("a misspelt option", "run job.toml --overwrit", "--overwrit", "--overwrite"),
    Mistake("init over a job file", "init bank.csv shop.csv", "job.toml already exists", "--overwrite"),
    Mistake(
        "a file where a folder must be", "run job.toml --out shop.csv", "shop.csv cannot be a folder", "choose another"
    ),
    Mistake("the folder of an old run", "run job.toml --out old", "old", "--overwrite", before=_finish_old),
    Mistake(
        "a report of a folder without a run", "report keys", "keys/metrics.json", "name the folder of a finished run"
    ),
    Mistake("predict before run", "predict job.toml runs/late/model", "runs/late/model", "securevfl run"),
    Mistake("one fold", "run job.toml --folds 1", "folds is 1", "from 2 to 100"),
]
