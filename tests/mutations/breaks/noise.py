"""Differential privacy: noise that is too small, repeated or not counted."""

from mutations.base import Break

__all__ = ["BREAKS"]

_PRIVACY = "securevfl/privacy/"

BREAKS = (
    Break(
        name="noise is half as large",
        file=_PRIVACY + "noise.py",
        old="    noise = draw_gaussian(tuple(values.shape), sigma * sensitivity, entropy).to(values.device)\n",
        new="    noise = draw_gaussian(tuple(values.shape), 0.5 * sigma * sensitivity, entropy).to(values.device)\n",
        tests=("tests/privacy/test_rows.py", "tests/privacy/test_noise.py"),
    ),
    Break(
        name="noise ignores the sensitivity",
        file=_PRIVACY + "noise.py",
        old="    noise = draw_gaussian(tuple(values.shape), sigma * sensitivity, entropy).to(values.device)\n",
        new="    noise = draw_gaussian(tuple(values.shape), sigma, entropy).to(values.device)\n",
        tests=("tests/privacy/test_rows.py", "tests/privacy/test_noise.py"),
    ),
    Break(
        name="all columns of a row get the same noise",
        file=_PRIVACY + "noise.py",
        old="    noise = draw_gaussian(tuple(values.shape), sigma * sensitivity, entropy).to(values.device)\n",
        new="    noise = draw_gaussian((len(values), *(1 for _ in values.shape[1:])), sigma * sensitivity, entropy)\n"
        "    noise = noise.to(values.device)\n",
        tests=("tests/privacy/test_rows.py", "tests/privacy/test_noise.py"),
    ),
    Break(
        name="noised values are not rounded to the grid",
        file=_PRIVACY + "noise.py",
        old="    value = torch.round((values.detach().double() + noise) / grid) * grid\n",
        new="    value = values.detach().double() + noise\n",
        tests=("tests/privacy/test_rows.py", "tests/privacy/test_noise.py"),
    ),
    Break(
        name="anybody can make a Noised value",
        file=_PRIVACY + "noise.py",
        old='        if token is not _MADE_HERE:\n            raise TypeError(\n                "only a release',
        new='        if False:\n            raise TypeError(\n                "only a release',
        tests=("tests/privacy/test_noise.py", "tests/privacy/test_guards.py"),
    ),
    Break(
        name="shares of joint noise add up to less than the whole",
        file=_PRIVACY + "noise.py",
        old="sigma * sensitivity / math.sqrt(parties), entropy) + dither",
        new="sigma * sensitivity / parties, entropy) + dither",
        tests=("tests/privacy/test_joint.py",),
    ),
    Break(
        name="remembered rows of another noise are kept",
        file=_PRIVACY + "noise.py",
        old="        if (values.multiplier, values.sensitivity) != (self._sigma, self._sensitivity):\n",
        new="        if False:\n",
        tests=("tests/privacy",),
    ),
    Break(
        name="a plan is held against the policy release by release, not together",
        file=_PRIVACY + "releases.py",
        old="        for planned, of_release in self._planned:\n            accountant.add(planned, of_release)\n",
        new="        accountant.add(release, subjects)\n",
        tests=("tests/privacy/test_releases.py", "tests/privacy/test_budget.py", "tests/privacy/test_policy.py"),
    ),
    Break(
        name="a plan is never held against the policy",
        file=_PRIVACY + "releases.py",
        old="            self._policy.check_epsilon(epsilon, what, self._delta)\n",
        new="            assert epsilon >= 0\n",
        tests=("tests/privacy/test_releases.py", "tests/privacy/test_budget.py"),
    ),
    Break(
        name="noise that never happened ends without an error",
        file=_PRIVACY + "releases.py",
        old="            if spent.times == 0:\n",
        new="            if False:\n",
        tests=("tests/privacy/test_releases.py", "tests/privacy/test_budget.py"),
    ),
    Break(
        name="several label owners' plans are not added up",
        file=_PRIVACY + "releases.py",
        old="    planned = [item for releases in every for item in releases.planned_releases]\n",
        new="    planned = [item for releases in list(every)[:1] for item in releases.planned_releases]\n",
        tests=("tests/privacy/test_releases.py", "tests/privacy/test_budget.py", "tests/algorithms/test_releases.py"),
    ),
)
