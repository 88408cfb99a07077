"""Record linkage for parties without a common identifier: hardened, keyed Bloom filters compared by a third party.

This is weaker than the intersection protocols of this package: the linker sees encodings that known attacks can partly
reverse, and anyone who has the key can test guessed values. docs/howto/linkage.md describes the attacks, and when to
use linkage.

>>> import secrets
>>> schema = Schema(fields=(Field(name="name", kind=Text()), Field(name="born", kind=Date())))
>>> key = secrets.token_bytes(32)  # known to both data parties, not to the linker
>>> bank = {"name": ["Ann Miller", "Bob Stone"], "born": ["1971-03-05", "1988-11-30"]}
>>> shop = {"name": ["Bob Stoane", "Eve Young"], "born": ["30.11.1988", None]}
>>> linked = link_records(encode_records(bank, schema, key), encode_records(shop, schema, key), threshold=0.7)
>>> linked.rows_a.tolist(), linked.rows_b.tolist()
([1], [0])
"""

from securevfl_psi.errors import LinkageError
from securevfl_psi.linkage.assignment import assign_greedy, assign_optimal
from securevfl_psi.linkage.blocking import BlockKey, Prefix, Soundex, Whole, blocking_tokens, hamming_tokens
from securevfl_psi.linkage.clk import encode_records
from securevfl_psi.linkage.duplicates import Distinct, find_duplicates
from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.linkage.families import Families, FamilyErrors, simulate_families
from securevfl_psi.linkage.hardening import Balanced, Blip, Hardening, XorFold
from securevfl_psi.linkage.kinds import Code, Date, FieldKind, Number, Text
from securevfl_psi.linkage.link import CommonIds, Linked, link_records
from securevfl_psi.linkage.placeholders import Placeholder, find_placeholders
from securevfl_psi.linkage.schema import Field, Schema
from securevfl_psi.linkage.similarity import Candidates, dice, similar_pairs
from securevfl_psi.linkage.tables import format_links, link_tables
from securevfl_psi.linkage.threshold import MatchEstimate, estimate_matches
from securevfl_psi.linkage.witnesses import WitnessEstimate, estimate_by_witnesses, witness_tokens

__all__ = [
    "Balanced",
    "Blip",
    "BlockKey",
    "Candidates",
    "Code",
    "CommonIds",
    "Date",
    "Distinct",
    "Encodings",
    "Families",
    "FamilyErrors",
    "Field",
    "FieldKind",
    "Hardening",
    "LinkageError",
    "Linked",
    "MatchEstimate",
    "Number",
    "Placeholder",
    "Prefix",
    "Schema",
    "Soundex",
    "Text",
    "Whole",
    "WitnessEstimate",
    "XorFold",
    "assign_greedy",
    "assign_optimal",
    "blocking_tokens",
    "dice",
    "encode_records",
    "estimate_by_witnesses",
    "estimate_matches",
    "find_duplicates",
    "find_placeholders",
    "format_links",
    "hamming_tokens",
    "link_records",
    "link_tables",
    "similar_pairs",
    "simulate_families",
    "witness_tokens",
]
