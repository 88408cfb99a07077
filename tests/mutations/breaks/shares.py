"""Training on shares: randomness that lasts over incarnations or follows from the job, shares used as they were
loaded, and openings beyond those of the job."""

from mutations.base import Break

__all__ = ["BREAKS"]

_WIRE = "securevfl/shares/wire.py"
_COURSE = "securevfl/shares/course.py"
_SHARING = "securevfl/shares/sharing.py"
_MODEL = "securevfl/shares/shared_model.py"
_SHARE = "crypto/securevfl_crypto/replicated/share.py"
_KEYS = "crypto/securevfl_crypto/replicated/keys.py"
_RESHARING = "crypto/securevfl_crypto/replicated/resharing.py"
_TRUNCATION = "crypto/securevfl_crypto/replicated/truncation.py"
_HIDING = "tests/crypto/test_replicated_hiding.py::"
_TESTS = "tests/shares/test_incarnations.py::"
_VIEWS = "tests/shares/test_views.py"
_RANDOM = (_TESTS + "test_two_runs_of_one_job_and_a_resume_share_no_randomness",)
_OPENED = (
    _TESTS + "test_each_party_lets_be_opened_what_the_job_is_for_and_no_more",
    _TESTS + "test_metrics_are_opened_once_an_epoch",
)

BREAKS = (
    Break(
        name="keys of pairs from the job's seed",
        file=_WIRE,
        old="    return Computing(index, wire, streams, openings=openings)\n",
        new="    from securevfl_crypto.replicated.keys import fixed_streams\n\n"
        "    streams = fixed_streams(site.seed.to_bytes(32, 'big'))[index]\n"
        "    return Computing(index, wire, streams, openings=openings)\n",
        tests=_RANDOM,
    ),
    Break(
        name="keys of pairs kept over a resume",
        file=_KEYS,
        old='    exchange = Exchange(f"party {index}")\n',
        new="    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey\n\n"
        '    exchange = Exchange(f"party {index}")\n'
        "    exchange._key = X25519PrivateKey.from_private_bytes(\n"
        '        hashlib.sha256(f"{context} {index}".encode()).digest()\n'
        "    )\n"
        "    exchange.public_key = exchange._key.public_key().public_bytes_raw()\n",
        tests=_RANDOM,
    ),
    Break(
        name="loaded shares used as they are",
        file=_MODEL,
        old="        fresh = await network.engine.refresh(*kept)\n",
        new="        fresh = kept\n",
        tests=(_TESTS + "test_loaded_shares_are_drawn_anew_before_they_are_used",),
    ),
    Break(
        name="logits of validation rows opened",
        file=_COURSE,
        old="                await scores.add_rows(inputs, targets)\n",
        new="                await scores.add_rows(inputs, targets)\n"
        "                logits = await self.network.forward(inputs)\n"
        '                await self.network.engine.open("predictions", logits, [0])\n',
        tests=_OPENED,
    ),
    Break(
        name="an opening that nobody declared",
        file="securevfl/shares/epochs.py",
        old="                await self.network.train_batch(inputs, targets)\n",
        new="                await self.network.train_batch(inputs, targets)\n"
        '                await engine.open("weights", self.network.weights["layer 0"], [0])\n',
        tests=_OPENED,
    ),
    Break(
        name="an opening declared without a bound on its values",
        file=_SHARING,
        old='            "metrics": Opening(left, to, figures, each=1),\n',
        new='            "metrics": Opening(left, to, each=1),\n',
        tests=_OPENED,
    ),
    Break(
        name="metrics opened twice in an epoch",
        file=_COURSE,
        old='        metrics = await engine.open("metrics", found, to)\n',
        new='        await engine.open("metrics", found, to)\n'
        '        metrics = await engine.open("metrics", found, to)\n',
        tests=_OPENED,
    ),
    Break(
        name="metrics opened twice in an epoch, and declared so",
        file=_SHARING,
        old='            "metrics": Opening(left, to, figures, each=1),\n',
        new='            "metrics": Opening(2 * left, to, figures, each=2),\n',
        tests=_OPENED,
    ),
    Break(
        name="metrics counted over the run, not by epochs",
        file=_SHARING,
        old='            "metrics": Opening(left, to, figures, each=1),\n',
        new='            "metrics": Opening(left, to, figures),\n',
        tests=(_TESTS + "test_what_an_epoch_may_open_is_not_opened_in_another", *_OPENED),
    ),
    Break(
        name="metrics may be opened in epochs that do not validate",
        file=_COURSE,
        old="self.network.engine.begin_stage(*(opened if validates else ()))",
        new='self.network.engine.begin_stage("range", "metrics")',
        tests=(_TESTS + "test_what_an_epoch_may_open_is_not_opened_in_another",),
    ),
    Break(
        name="attempts that broke off forget what they opened",
        file=_COURSE,
        old="        journal.reserve_releases(epoch, name, 1, 1)\n",
        new="",
        tests=(_TESTS + "test_metrics_that_an_attempt_opened_and_lost_are_counted_by_the_next",),
    ),
    Break(
        name="predictions of as many rows as a part may have",
        file=_SHARING,
        old="min(rows, most) * width, total=rows * width",
        new="most * width",
        tests=(_TESTS + "test_predictions_are_opened_of_so_many_rows_and_no_more",),
    ),
    Break(
        name="rows dealt twice under one mask",
        file=_SHARE,
        old="    seeds = [os.urandom(_SEED) for _ in range(2)]\n",
        new="    seeds = deal.__dict__.setdefault(0, [os.urandom(_SEED) for _ in range(2)])\n",
        tests=(_HIDING + "test_dealings_are_unrelated", _VIEWS),
    ),
    Break(
        name="a counter of a common stream that starts again with each operation",
        file=_KEYS,
        old="        words = self.draw_words(key, (sum(sizes),))\n",
        new="        words = self.__dict__.setdefault(f'{key} {sum(sizes)}', self.draw_words(key, (sum(sizes),)))\n",
        tests=(_VIEWS, _HIDING + "test_each_partys_view_is_uniform"),
    ),
    Break(
        name="shares of zero dropped where products are shared anew",
        file=_RESHARING,
        old="            flat += party.streams.draw_words(party.index, flat.shape)\n"
        "            flat -= party.streams.draw_words(party.next_party, flat.shape)\n",
        new="            flat += np.uint64(0)\n",
        tests=(_HIDING + "test_each_partys_view_is_uniform", _VIEWS),
    ),
    Break(
        name="a mask of 63 bits",
        file=_TRUNCATION,
        old="        self._mask = streams.draw_words(None, (sizes.values,))\n",
        new="        self._mask = streams.draw_words(None, (sizes.values,)) >> np.uint64(1)\n",
        tests=(_HIDING + "test_each_partys_view_is_uniform",),
    ),
    Break(
        name="a truncation pair in the open",
        file=_TRUNCATION,
        old="            message.append(self._mask_words(masks) - self._ahead)\n",
        new="            message.append(self._mask_words(masks))\n",
        tests=(_HIDING + "test_each_partys_view_is_uniform",),
    ),
    Break(
        name="shares in the repr of a share",
        file=_SHARE,
        old="    mine: U64 = field(repr=False)\n",
        new="    mine: U64\n",
        tests=("tests/test_printed.py",),
    ),
    Break(
        name="keys of pairs that nobody signs: who stands between two reads the traffic of all three",
        file=_WIRE,
        old="            self._site.ledger.check_vouched(",
        new="            (lambda *given: None)(",
        tests=("tests/shares/test_keys.py",),
    ),
    Break(
        name="a peer with another key than the agreement's",
        file="securevfl/ledger/chain.py",
        old="            if self._pins.get(name, key) != key:\n",
        new="            if not key:\n",
        tests=("tests/shares/test_keys.py",),
    ),
    Break(
        name="rows dealt from numpy's generator",
        file=_SHARE,
        old="    seeds = [os.urandom(_SEED) for _ in range(2)]\n",
        new="    seeds = [np.random.default_rng().bytes(_SEED) for _ in range(2)]\n",
        tests=(_TESTS + "test_rows_are_dealt_from_seeds_of_the_operating_system",),
    ),
    Break(
        name="rows dealt without a mask",
        file=_SHARE,
        old="    last = values - Stream(seeds[0]).draw_words(0, values.shape) - ",
        new="    seeds = [bytes(_SEED)] * 2\n    last = values - Stream(seeds[0]).draw_words(0, values.shape) - ",
        tests=(_VIEWS,),
    ),
    Break(
        name="keys of pairs signed without the run",
        file=_WIRE,
        old="(site.job, site.ledger.run, *self._names, sender)",
        new="(site.job, *self._names, sender)",
        tests=("tests/shares/test_keys.py::test_a_signed_key_is_good_for_one_run_and_one_sender_among_the_same_three",),
    ),
    Break(
        name="every third dealing under the seeds of the one before",
        file=_SHARE,
        old="    seeds = [os.urandom(_SEED) for _ in range(2)]\n",
        new='    kept = deal_shares.__dict__\n    kept["n"] = kept.get("n", 0) + 1\n'
        '    seeds = kept["last"] if kept["n"] % 3 == 0 else [os.urandom(_SEED) for _ in range(2)]\n'
        '    kept["last"] = seeds\n',
        tests=(_HIDING + "test_no_dealing_uses_a_seed_of_another",),
    ),
    Break(
        name="predictions opened with 15 bits behind the point",
        file="securevfl/shares/answers.py",
        old="LOGIT_BITS = 4\n",
        new="LOGIT_BITS = 15\n",
        tests=("tests/shares/test_training.py::test_predictions_are_opened_with_four_bits_behind_the_point",),
    ),
    Break(
        name="the labels of a batch logged at DEBUG",
        file="securevfl/shares/programs.py",
        old="            return [*words, self._encode_targets(role, rows)] if mixes else words\n",
        new='            log = __import__("logging").getLogger("securevfl.training")\n'
        '            log.debug("labels %s", role.labels(rows).tolist())\n'
        "            return [*words, self._encode_targets(role, rows)] if mixes else words\n",
        tests=("tests/shares/test_training.py::test_training_writes_nothing_to_the_log",),
    ),
    Break(
        name="metrics of any number of rows",
        file="securevfl/shares/least_rows.py",
        old="    if rows < FEWEST_JUDGED:\n",
        new="    if False:\n",
        tests=(_TESTS + "test_metrics_of_few_rows_are_refused_before_anything_is_shared",),
    ),
    Break(
        name="words of any size compared as they are",
        file="securevfl/shares/engine.py",
        old="_NARROW = 2\n",
        new="_NARROW = 0\n",
        tests=("tests/shares/test_kept_targets.py",),
        keywords="three_parties_find",
    ),
    Break(
        name="dealt rows not confirmed",
        file="securevfl/shares/share_party.py",
        old='            await self.engine.confirm("input", *used, *([] if beside is None else [beside]))\n',
        new="            pass\n",
        tests=("tests/shares/test_training.py",),
        keywords="test_what_is_dealt_wrongly_ends_the_run",
    ),
    Break(
        name="more classes than a softmax on shares takes",
        file="securevfl/party/eligibility.py",
        old="most = job.protection.most_classes",
        new="most = job.algorithm.most_classes",
        tests=(
            "tests/shares/test_training.py::test_more_classes_than_a_softmax_takes_are_refused_before_anything_is_sent",
        ),
    ),
    Break(
        name="a softmax of many values with the inverse of few",
        file="crypto/securevfl_crypto/replicated/functions.py",
        old="curve = reciprocal_curve(bits, x.shape[-1])",
        new="curve = reciprocal_curve(bits, min(x.shape[-1], 12))",
        tests=("tests/crypto/test_replicated_bounds.py",),
    ),
    Break(
        name="party 1 takes shares of bits that are no residues",
        file="crypto/securevfl_crypto/replicated/truncation.py",
        old='check_residues(rest[-1], sizes.compared, "party 2\'s shares of bits")',
        new="rest[-1]",
        tests=("tests/crypto/test_replicated_hostile.py",),
    ),
    Break(
        name="a quotient with one Newton step",
        file="crypto/securevfl_crypto/replicated/functions.py",
        old="return await self.multiply(quotient, miss.broadcast_to(quotient.shape), shift=f)",
        new="return quotient",
        tests=("tests/crypto/test_replicated_bounds.py",),
    ),
)
