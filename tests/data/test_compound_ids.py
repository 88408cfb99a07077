"""Identifiers that several columns make together."""

from dataclasses import replace

import pytest
import securevfl_psi as psi

import securevfl as sv
from securevfl.data.columns import ColumnUse
from securevfl.data.sample import table_mistakes
from securevfl.errors import InputError
from securevfl.jobfile.job_file import TableSection

ROWS = "first,last,born,x\n Ann,Li,1970-01-01,1\nBo,Ek,007,2\n"


def written(tmp_path, text):
    file = tmp_path / "t.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_parts_are_joined_as_the_psi_joins_them(tmp_path):
    table = sv.read_table(written(tmp_path, ROWS), name="bank", id=["first", "last", "born"])
    rows = [(" Ann", "Li", "1970-01-01"), ("Bo", "Ek", "007")]
    assert list(table.ids) == list(psi.normalise(rows, psi.IdRules(columns=3)))
    assert table.ids[0] == "3:Ann2:Li10:1970-01-01"
    assert list(table.columns) == ["x"]


def test_the_psi_leaves_joined_identifiers_as_they_are(tmp_path):
    text = "a,b,x\nJose\u0301,1\u0663,1\n\u0301e,2:b,2\n\ufb01,\u00c5,3\n"
    table = sv.read_table(written(tmp_path, text), name="bank", id=["a", "b"])
    assert list(psi.normalise(list(table.ids), psi.IdRules())) == list(table.ids)


def test_composed_and_decomposed_letters_and_spaces_are_one_person(tmp_path):
    one = sv.read_table(written(tmp_path, "a,b,x\nJos\u00e9,1,1\n"), name="bank", id=["a", "b"])
    two = sv.read_table(written(tmp_path, "a,b,x\n Jose\u0301 , 1,1\n"), name="shop", id=["a", "b"])
    assert list(one.ids) == list(two.ids)


def test_rows_that_a_plain_join_would_mix_up_stay_apart(tmp_path):
    table = sv.read_table(written(tmp_path, "a,b,x\nab,c,1\na,bc,2\n1:a,b,3\na,1:b,4\n"), name="bank", id=["a", "b"])
    assert len(set(table.ids)) == 4


@pytest.mark.parametrize(
    ("text", "id", "told"),
    [
        (ROWS, ["frist", "lsat"], ["'frist'", "'lsat'"]),
        (
            "a,b,x\n1,,1\n2,3,1\n,4,2\n",
            ["a", "b"],
            ["'a' is null or empty in 1 rows", "'b' is null or empty in 1 rows"],
        ),
        ("a,b,x\n1,2,1\n1,2,2\n", ["a", "b"], ["repeated identifiers: '1:11:2' in rows 1 and 2"]),
        ("a,b,x\n1,2,1\n", ["a", "a"], ["'a' twice"]),
        ("a,b,x\n1,2,1\n", [], ["id names 0 columns"]),
        (ROWS, [f"c{i}" for i in range(17)], ["id names 17 columns; 1 to 16", "'c0'", "'c16'"]),
    ],
)
def test_check_lists_what_is_wrong_at_once(tmp_path, text, id, told):
    file = written(tmp_path, text)
    use = ColumnUse.from_arguments(id=id, label=None, features=None, categorical=(), classes=None)
    found = "\n".join(table_mistakes(file, use))
    assert all(part in found for part in told), found
    with pytest.raises(InputError):
        sv.read_table(file, name="bank", id=id)


def test_a_job_file_names_several_columns(tmp_path):
    written(tmp_path, ROWS)
    section = TableSection.from_values({"file": "t.csv", "id": ["first", "last", "born"]})
    assert list(section.read_table(tmp_path, "bank").ids)[1] == "2:Bo2:Ek3:007"


def parties_by(tmp_path, first, second):
    """Two parties whose tables have these id columns."""
    head = "first,last,born,x,y\nAnn,Li,1970-01-01,1,0\nBo,Ek,007,2,1\nCy,Ho,1,3,0\n"
    bank = sv.read_table(written(tmp_path, head), name="bank", id=first, features=["x"], label="y")
    shop = sv.read_table(written(tmp_path, head), name="shop", id=second, features=["x"])
    return bank, shop


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (["first", "last", "born"], "'bank' of first, last; 'shop' of first, last, born"),
        ("first", "different numbers of columns"),
        (["last", "first"], "the same columns in different orders"),
    ],
)
def test_parties_that_name_other_columns_are_told_before_they_find_nothing(tmp_path, second, told):
    with pytest.raises(InputError, match=told):
        sv.Parties.of(*parties_by(tmp_path, ["first", "last"], second))


def test_columns_of_other_names_are_nobodys_mistake(tmp_path):
    bank, shop = parties_by(tmp_path, ["first", "last"], ["first", "born"])
    assert len(sv.Parties.of(bank, shop)) == 2


def test_over_the_network_the_number_is_a_term_of_the_alignment_and_of_cards(tmp_path):
    """Parties that never see each other's tables refuse each other; what they write in cards differs, too."""
    from securevfl.agreement.cards import TableSchema
    from securevfl.run.simulation import align_parties

    bank, shop = parties_by(tmp_path, ["first", "last"], ["first", "last", "born"])
    cards = [TableSchema.of_table(table).identifiers for table in (bank, shop)]
    assert [text.rpartition("/")[2] for text in cards] == ["columns=2", "columns=3"]
    parties = sv.Parties.of(bank, replace(shop, id_columns=()))
    with pytest.raises(sv.ProtocolError, match="of the same columns in the same order at each party"):
        align_parties(parties, sv.Job(protection=sv.Plain()))
    one, _ = parties_by(tmp_path, "born", "born")
    assert TableSchema.of_table(one).identifiers == psi.IdRules().tag()  # as ever
