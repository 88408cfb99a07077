"""A party leaves for good: what would let groups of parties go on apart, or count too little."""

from mutations.base import Break

__all__ = ["BREAKS"]

_WORDS = "securevfl/party/leaving.py"
_PARTY = ("tests/party/test_leaving.py",)
_PROCESSES = "tests/process/test_leaving.py"

BREAKS = (
    Break(
        name="a party decides alone that another is gone",
        file=_WORDS,
        old="agreed = len(found) == len(remaining) and len({one.alignment for one in found}) == 1",
        new="agreed = bool(found)",
        tests=_PARTY,
    ),
    Break(
        name="a later word forgets whom an earlier one named",
        file=_WORDS,
        old="named = signed | set(away)",
        new="named = set(away)",
        tests=_PARTY,
    ),
    Break(
        name="a decision is withdrawn",
        file=_WORDS,
        old="kept = (*self.decision, *(one for one in self.words if self._is_valid(one)))",
        new="kept = [one for one in self.words if self._is_valid(one)]",
        tests=_PARTY,
    ),
    Break(
        name="a word that was withdrawn counts when a peer sends it again",
        file=_WORDS,
        old="return word.is_farewell or word.attempt >= self._begun",
        new="return True",
        tests=_PARTY,
    ),
    Break(
        name="a party takes back a decision by another word",
        file=_WORDS,
        old=" and key not in decided}",
        new="}",
        tests=_PARTY,
    ),
    Break(
        name="a party fills the file of words with sets that it withdrew",
        file=_WORDS,
        old="            self._drop_contrary(one)\n",
        new="",
        tests=_PARTY,
    ),
    Break(
        name="a word that its party did not sign counts",
        file=_WORDS,
        old="                self._check(one)\n",
        new="",
        tests=_PARTY,
    ),
    Break(
        name="words are not sent to the others",
        file="securevfl/run/departing.py",
        old="        await self.send_words(peers)\n",
        new="",
        tests=(f"{_PROCESSES}::test_a_job_goes_on_without_a_party_that_is_gone[laser-2]",),
    ),
    Break(
        name="a party that comes back is not told",
        file="securevfl/run/departing.py",
        old="            await self.send_words([peer])\n",
        new="            pass\n",
        tests=(f"{_PROCESSES}::test_a_party_that_comes_back_is_told_and_a_person_must_act",),
    ),
    Break(
        name="shares of a checkpoint are sized by the parties that remain",
        file="securevfl/party/program.py",
        old="    return found if isinstance(found, int) else 0\n\n\ndef _with_labels",
        new="    return 0\n\n\ndef _with_labels",
        tests=(f"{_PROCESSES}::test_a_sealed_job_goes_on_with_the_shares_of_the_checkpoint",),
    ),
    Break(
        name="rows get other numbers when a party leaves",
        file="securevfl/party/numbering.py",
        old="        counts |= _counts_of_gone(site)\n",
        new="        counts |= dict.fromkeys(site.gone, (0, 0))\n",
        tests=(f"{_PROCESSES}::test_epsilon_counts_what_was_released_before_a_party_left",),
    ),
)
