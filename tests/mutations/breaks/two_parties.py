"""Two parties' programs: messages that nobody compares, keys that nobody signs, shares that are not drawn anew, a
helper that nobody has to trust."""

from mutations.base import Break

__all__ = ["BREAKS"]

_WIRE = "securevfl/shares/two/wire.py"
_LOTS = "securevfl/shares/two/dealt_lots.py"
_STEPS = "securevfl/shares/two/exchanges.py"
_LINKS = "tests/shares/two/test_links.py::"
_RULES = "tests/shares/two/test_rules.py::"
_RUNS = "tests/shares/two/test_training.py::"

BREAKS = (
    Break(
        name="two parties at different steps that go on",
        file=_WIRE,
        old="        if said != label:\n",
        new="        if said is None:\n",
        tests=(_LINKS + "test_other_messages_are_refused",),
    ),
    Break(
        name="words of two parties whose shapes are not compared",
        file=_WIRE,
        old="if array.dtype != dtype or array.shape != tuple(shape):",
        new="if array.dtype != dtype:",
        tests=(_LINKS + "test_other_messages_are_refused",),
    ),
    Break(
        name="two parties that wait for room in the channel, each for the other",
        file=_WIRE,
        old="if self._waiting is None and self._link.can_send:",
        new="if self._waiting is None:",
        tests=(_LINKS + "test_both_may_send_more_than_a_channel_holds",),
    ),
    Break(
        name="a lot for which the passive party did not ask",
        file=_LOTS,
        old="if not np.array_equal(sizes, packed):",
        new="if sizes.dtype != packed.dtype:",
        tests=(_LINKS + "test_a_passive_party_refuses_a_lot_that_it_did_not_need",),
    ),
    Break(
        name="base transfers that nobody signs",
        file=_STEPS,
        old='"transfers: set-up": (TWO_KEY, Kind.PUBLIC_KEY)',
        new='"transfers: set-up": (AHEAD, Kind.SHARE)',
        tests=(_RULES + "test_undeclared_messages_have_no_step",),
    ),
    Break(
        name="batches of two parties that change their rows",
        file="securevfl/training/split.py",
        old='derive_seed(seed, "fixed batches")',
        new='derive_seed(seed, "fixed batches", epoch)',
        tests=(_RULES + "test_batches_keep_their_rows_and_change_their_order",),
    ),
    Break(
        name="a helper that no policy has to trust",
        file="securevfl/shares/protection.py",
        old="*([self.helper] if self.helper else [])",
        new="*([self.helper] if not self.helper else [])",
        tests=(_RULES + "test_a_policy_has_to_trust_the_helper_with_shares",),
    ),
    Break(
        name="loaded shares of two that are not drawn anew",
        file="securevfl/shares/two/kept.py",
        old="if stale and self.course is not None:",
        new="if stale and self.course is None:",
        tests=(_RUNS + "test_loaded_shares_are_drawn_anew_before_they_are_used",),
    ),
)
