"""The sealed cut as it ships: shares, masks, keys, guards, and what its messages add up to."""

from mutations.base import Break

__all__ = ["BREAKS"]

BREAKS = (
    Break(
        name="fresh share after a re-share is 0",
        file="securevfl/cut/sealed.py",
        old="change = mine.share.replace(mine.holder.fresh_share())",
        new="change = mine.share.replace(mine.holder.fresh_share() * 0)",
        tests=("tests/cut/test_fresh.py::test_the_active_partys_share_is_wide_and_uniform_after_a_step",),
        keywords="momentum and bfv",
    ),
    Break(
        name="pairwise mask keys from the party's name",
        file="securevfl/cut/masking.py",
        old="secret = X25519PrivateKey.generate()",
        new="import hashlib\n"
        "    secret = X25519PrivateKey.from_private_bytes(hashlib.sha256(site.name.encode()).digest())",
        tests=("tests/cut/test_fresh.py::test_the_keys_of_masks_are_new_in_each_setup_and_for_each_party",),
    ),
    Break(
        name="HKDF without context",
        file="securevfl/cut/masking.py",
        old="salt=None, info=info)",
        new='salt=None, info=b"")',
        tests=("tests/cut/test_fresh.py::test_seeds_of_masks_follow_from_purpose_job_names_and_keys",),
    ),
    Break(
        name="HKDF without the job",
        file="securevfl/cut/masking.py",
        old="for part in (site.job.encode(), low[0].encode()",
        new="for part in (low[0].encode()",
        tests=("tests/cut/test_fresh.py::test_seeds_of_masks_follow_from_purpose_job_names_and_keys",),
    ),
    Break(
        name="HKDF without lengths",
        file="securevfl/cut/masking.py",
        old='            len(part).to_bytes(2, "big") + part',
        new="            part",
        tests=("tests/cut/test_fresh.py::test_seeds_of_masks_follow_from_purpose_job_names_and_keys",),
    ),
    Break(
        name="passive share under the active party's guard",
        file="securevfl/cut/sealed.py",
        old="guard=mine.own_guard, c=sealed",
        new="guard=mine.guard, c=sealed",
        tests=(
            "tests/cut/test_cut.py::test_a_sealed_cut_sends_nothing_readable_and_with_identity_bottoms_no_gradient_at_all",
        ),
        keywords="cipher",
    ),
    Break(
        name="masks with a single sign",
        file="securevfl/cut/masking.py",
        old="positive=site.name < name",
        new="positive=True",
        tests=("tests/cut/test_cut.py::test_sealed_equals_fixed_point",),
        keywords="bfv",
    ),
    Break(
        name="key's length not checked",
        file="securevfl/cut/handshake.py",
        old=" or raw.nbytes > _MOST_KEY",
        new="",
        tests=("tests/cut/test_handshake.py",),
    ),
    Break(
        name="auto times any width",
        file="securevfl/cut/auto.py",
        old="timed = {}, min(width, _MOST_COLUMNS)",
        new="timed = {}, width",
        tests=("tests/cut/test_auto.py",),
    ),
    Break(
        name="gradients not counted",
        file="securevfl/cut/sealed.py",
        old="        self._hidden.add(mine.holder.statistical_masks(len(x))[1])",
        new="",
        tests=("tests/cut/test_hidden.py",),
    ),
    Break(
        name="lattice moduli up to 881 bits",
        file="securevfl/transport/kinds.py",
        old="_WIDEST_MODULI[_DEGREE]",
        new="_WIDEST_MODULI[32768]",
        tests=("tests/transport/test_guard.py",),
    ),
    Break(
        name="sides not bounded",
        file="securevfl/transport/wire.py",
        old="* dtype.itemsize >= _LONGEST_SIDE",
        new="* dtype.itemsize < 0",
        tests=("tests/transport/test_wire.py",),
        keywords="numpy_cannot_count",
    ),
    Break(
        name="ZeroShares empty at the cut",
        file="securevfl/cut/sealed.py",
        old="holder = scheme.create_holder(key, forward, crypto.ZeroShares(pairs))\n            own",
        new="holder = scheme.create_holder(key, forward, crypto.ZeroShares([]))\n            own",
        tests=("tests/cut/test_cut.py::test_the_active_party_can_open_the_sum_and_no_partys_part",),
        keywords="bfv",
    ),
)
