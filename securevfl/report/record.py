"""What a comparison measured: the data behind `metrics.json`, the terminal table and the HTML page.

Plain values only, no computing: `jobs` fills it, `report` shows it, and `metrics.json` is this, as JSON.
Times are seconds, sizes are bytes as the wire codec writes them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from securevfl.report.column_statistics import StatisticsRecord
from securevfl.report.evaluation import Evaluation
from securevfl.report.record_files import read_record

__all__ = [
    "FORMAT",
    "AlignmentRecord",
    "CandidateRecord",
    "ChoiceRecord",
    "EpochRecord",
    "EpsilonRecord",
    "EpsilonTotal",
    "FigureRecord",
    "GainRecord",
    "LearnedRecord",
    "LedgerRecord",
    "LinkRecord",
    "MemberRecord",
    "OwnShareRecord",
    "PartyRecord",
    "Phases",
    "PointsBin",
    "PointsRecord",
    "PreparedRecord",
    "ReceiptLine",
    "Record",
    "RunRecord",
    "ShapeBin",
    "ShapeRecord",
    "SightRecord",
]

FORMAT = 1


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """Where one party's wall clock went, in seconds."""

    compute: float = 0.0
    """own plaintext work: forward, backward, optimiser, metrics"""
    he: float = 0.0
    """encrypting, computing on ciphertexts, masking, decrypting"""
    wait: float = 0.0
    """waiting for a peer (in a simulation this includes the peers' own work: one process takes turns)"""


class EpochRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch: loss, validation metrics, and each party's time and bytes."""

    epoch: int
    """from 1"""
    train_loss: float | None
    """None in the report of a party that does not know it"""
    valid: dict[str, float]
    """metrics on the validation rows: auc, accuracy, log_loss, ks (what the task defines)"""
    seconds: float
    phases: dict[str, Phases]
    """party → phases"""
    bytes: dict[str, int]
    """"sender -> receiver" → bytes in this epoch"""


class EpsilonRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one party's releases cost so far; one row's content is replaced (bounded differential privacy)."""

    party: str
    """whose data it protects"""
    what: str
    """"activations", "z", "representations", "gradients", "labels" (randomised response), "model" (DP-SGD)"""
    epsilon_rdp: float
    epsilon_prv: float
    delta: float
    releases: int
    """times that one row was released"""
    noise_multiplier: float
    """standard deviation of the noise over the sensitivity; 0 for randomised response"""
    clip: float
    """0 for randomised response"""
    epsilon_exact: float | None = None
    """by the exact formula of Gaussian noise, where the noise was sized by it; reports then state this one"""


class EpsilonTotal(msgspec.Struct, frozen=True, kw_only=True):
    """What all releases of one party that protect the same thing cost together, composed by the accountants."""

    party: str
    protects: str
    """"features", "labels", or "features and labels" of one row"""
    epsilon_rdp: float
    epsilon_prv: float
    delta: float
    releases: int
    """of one row, all kinds together"""
    adjacency: str
    """what two neighbouring tables differ in"""
    epsilon_exact: float | None = None
    """as in `EpsilonRecord`, where it holds for all of these releases"""


class ReceiptLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the protection receipt: what went over one link, counted from the ledgers."""

    sender: str
    receiver: str
    what: str
    """in words: "gradient at the cut", "masked shares of the weights", …"""
    kind: str
    """the message kind, from the closed list"""
    protection: str
    """"Paillier-2048, key 3f2a…", "masked (statistical, 40 bits)", "none" …"""
    protected: bool
    """False where the receiver can read the content itself"""
    messages: int
    bytes: int


class FigureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What attacks got from one sight on recorded runs without noise, the worst over data, algorithms and seeds."""

    got: float
    """AUC of labels, R² of features"""
    without: float
    """of the same attacker without the message"""
    attribute: float = 0.5
    """of features: AUC of a yes-or-no attribute"""
    attribute_without: float = 0.5
    cell: str = ""
    """where that was: data, algorithm, protection, seed"""
    after: dict[str, float] = {}
    """of boosted trees: how many are grown → share of the party's cells whose bin is computed; `got` is the last"""


class SightRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a message reveals; see `securevfl.transport.Sight`."""

    of: str
    """"features", "labels" or "rows" """
    severity: str
    through: str
    epsilon: float | None = None
    """planned over all looks; None without noise, or where the plan sets no bound (`auc` is 1 then)"""
    auc: float | None = None
    budget: str = ""
    result: bool = False
    """whether it is what the job is for, which its receiver is given under every protection"""
    numbers: int | None = None
    """of a result: the most numbers of each row that its receiver is ever given; None where nothing bounds them"""
    measured: FigureRecord | None = None


class LearnedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that one party can learn from what it received."""

    party: str
    about: str
    learns: str
    severity: str
    """"ok" (by design, harmless), "note" (a known leak, limited), "leak" (data that can be read or computed)"""
    sights: list[SightRecord] = []
    """the same, taken apart; empty where nobody did: the severity holds for all that `about` has"""


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one party learns of who is whose customer: which rows the parties have in common."""

    party: str
    standing: str
    """"reads it" (also rows that are not common), "by design" (the common ones) or "nothing found" """
    says: str


class OwnShareRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a party's own table gives away at worst, computed from the table, for the party alone."""

    party: str
    """whose table"""
    asker: str
    """who is answered"""
    numbers: int | None
    """the most of each row, ever; None without a bound"""
    used: int | None
    """of these, so far; None where nobody counted"""
    columns: int
    share: float
    """of their spread, on average, at most about; 1 without a bound"""
    known: int
    """whole rows that the attacker was given"""
    judged: int
    measured: float | None = None
    """share that attacks got from one number of such jobs"""
    granted: int = 0
    """of `numbers`, those that grants in force add"""


class LinkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Messages and bytes of one direction of one link."""

    sender: str
    receiver: str
    messages: int
    bytes: int


class PartyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One party's table: its role, rows and columns."""

    name: str
    role: str
    """"active" or "passive" """
    rows: int
    """0 in the report of a party that does not know it"""
    columns: list[str]


class AlignmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How the parties were aligned, and what came of it."""

    protocol: str
    common: int
    train: int
    valid: int
    test: int
    pairwise: dict[str, int]
    """passive party → size of its intersection with the active party (which the active party learns)"""
    seconds: float
    links: list[LinkRecord]
    verified_by: list[str]
    digest: str
    """first 16 hex digits of what names the run of the alignment, the same at all parties"""


class LedgerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which key signed one party's ledger, and who holds its signed word on it."""

    party: str
    fingerprint: str
    """of its public key, as `securevfl audit --pin` takes it"""
    messages: int
    """of all runs, sent and received"""
    cross_signed_by: list[str]
    """peers whose own signed closing lines hold this party's signed head, in every run that both were in"""


class PreparedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How one column was prepared. No value of the table stands in it."""

    column: str
    holds: str
    """"numbers", "truth values", "dates" or "categories" """
    missing: float
    """share of the training rows without a value"""
    how: str
    width: int
    """numbers that a row becomes; 0 where the column was dropped"""


class PointsBin(msgspec.Struct, frozen=True, kw_only=True):
    """One bin of a scorecard's column."""

    up_to: float | None
    """where it ends, this value included; None for the last one"""
    rows: int
    woe: float | None = None
    """weight of evidence; None where points alone were opened"""
    points: float


class PointsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a scorecard."""

    column: str
    units: str
    """"own": bins end at values of the column; "prepared": at values that it was prepared to"""
    information_value: float | None = None
    """None where points alone were opened"""
    bins: list[PointsBin]


class ShapeBin(msgspec.Struct, frozen=True, kw_only=True):
    """One bin of a column of an additive model."""

    bin: str
    """in words"""
    share: float
    """of the training rows, as the model has it"""
    values: list[float]
    """what it adds to the score, one number for each output"""
    deviation: float
    """standard deviation of these from the noise alone"""
    points: float


class ShapeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One column's shape in an additive model."""

    column: str
    importance: float
    """spread of the shape over the rows, in units of the score"""
    noise: float
    """spread that the noise alone would have"""
    bins: list[ShapeBin]


class GainRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How much better a run is on the test rows than what the active party has without the others."""

    metric: str
    """"auc", "accuracy" or "r2" """
    over: str
    """key of the baseline: the better one of "alone" and "alone_boosted" on the test rows; empty where it is not
    the same one in all folds"""
    gain: float
    low: float | None = None
    """of the 95 % interval, for these two models; None where scores of the test rows are missing, or where these rows
    are too few or too alike to show chance"""
    high: float | None = None
    rows: int
    """test rows"""


class CandidateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One algorithm that a run with ``algorithm = "auto"`` tried, or did not try."""

    key: str
    """of its run; the algorithm's name"""
    title: str
    valid: float | None = None
    """metric of the validation rows, by the epoch that was kept; None where it was not trained"""
    epochs: int = 0
    best_epoch: int = 0
    seconds: float = 0.0
    bytes: int = 0
    """of the whole run, all links"""
    chosen: bool = False
    why: str = ""
    """why it was not trained, or how its training failed; empty for the others"""


class ChoiceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which algorithm a run kept, of those that it tried."""

    metric: str
    """of the validation rows: "auc", "log_loss", "r2", …"""
    chosen: str
    """key of the run that was kept"""
    rows: int
    """that validate"""
    candidates: list[CandidateRecord]
    """the best first, those that were not trained last"""
    margin: float | None = None
    """by how much it is better than the second; None where nothing else was trained"""
    half: float | None = None
    """half the width of the 95 % interval of that difference on the validation rows; None where their scores are not
    here"""
    shares: int = 1
    """of how many candidates each had an equal part of the job's ε and δ; 1 without noise"""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one algorithm under one protection (or one baseline)."""

    key: str
    """"alone", "pooled", "plain", "paillier", "dp", …: unique in the record"""
    title: str
    """as shown: "SplitNN, Paillier 2048 bits" """
    baseline: bool
    """True for runs that need no federation (alone) or that nobody may do (pooled)"""
    protection: str
    epochs: list[EpochRecord]
    best_epoch: int
    stopped: str
    """why training ended: "all epochs done", "no gain on validation rows for 3 epochs", … """
    test: dict[str, float]
    seconds: float
    """training and evaluation, alignment not counted"""
    links: list[LinkRecord] = []
    epsilon: list[EpsilonRecord] = []
    epsilon_totals: list[EpsilonTotal] = []
    receipt: list[ReceiptLine] = []
    learned: list[LearnedRecord] = []
    assumes: str = ""
    """the condition under which no more is learned: which parties do not pool their data"""
    members: list[MemberRecord] = []
    """what each party learns of who is whose customer"""
    rows_trained: int = 0
    notes: list[str] = []
    warnings: list[str] = []
    """what to look at before the figures: training that went nowhere, classes with hardly any rows"""
    self_training: str = ""
    """of an algorithm that labels rows itself: how many it labelled and dropped, and how many are right"""
    constant: dict[str, float] = {}
    """accuracy and log-loss on the test rows of always giving the training rows' class shares"""
    alone: dict[str, float] = {}
    """metrics on the test rows, scored from the active party's own columns without a message"""
    calibration: dict[str, dict[str, int | float | list[float]]] = {}
    """"whole", "alone" → temperature, intercept (one number for each class, or none), validation rows, gain in log-loss
    by cross-validation, expected calibration error on the test rows before and after; missing where it gains nothing"""
    evaluation: Evaluation | None = None
    """the test rows per class, by confidence and by rank; None in the report of a party without labels"""
    gained: GainRecord | None = None
    """what joining was worth; None for a baseline, and where none of the active party alone ran"""
    deviation: dict[str, float] = {}
    """metric → standard deviation over `draws`; `test` holds the means then"""
    prepared: dict[str, list[PreparedRecord]] = {}
    """party → how each of its columns was prepared: of all parties in a simulation, of itself in a party's report"""
    points: dict[str, list[PointsRecord]] = {}
    """of a scorecard: party → its columns, those with more than one bin; as with `prepared`, in whose report"""
    base_points: float | None = None
    """of a scorecard, where the active party's part is known: what each row begins with"""
    shapes: dict[str, list[ShapeRecord]] = {}
    """of an additive model: party → its columns' shapes, the most important first; as with `prepared`, in whose
    report"""
    statistics: StatisticsRecord | None = None
    """of columns, where the job computes them in the place of a model"""
    draws: int = 1
    """how often the run was repeated with new noise"""

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {value:.4g}" for name, value in self.test.items())
        return f"RunRecord({self.key!r}, {self.title!r}, {len(self.epochs)} epochs: {figures or 'no test rows'})"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run or comparison: all figures, as in `metrics.json`."""

    format: int = FORMAT
    name: str
    title: str
    created: str
    """UTC, ISO 8601"""
    command: str
    """what makes these figures again"""
    versions: dict[str, str]
    machine: dict[str, str]
    job: dict[str, object]
    parties: list[PartyRecord]
    alignment: AlignmentRecord
    runs: list[RunRecord]
    ledgers: list[LedgerRecord] = []
    choice: ChoiceRecord | None = None
    """of a run with ``algorithm = "auto"``: what was tried, and why one is kept"""
    known_to: str = ""
    """the party that wrote it from what it alone knows: times and bytes are its own; empty for a simulation"""
    own_shares: list[OwnShareRecord] = []
    """in a party's own report: what its own table gives away; for no other party's eyes"""

    def __repr__(self) -> str:
        return f"Record({self.title!r}, {self.created}: {', '.join(run.key for run in self.runs)})"

    def to_json(self) -> bytes:
        """UTF-8 JSON, indented."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read `metrics.json`.

        Raises:
            InputError: no such file, or not a record of this format.
        """
        missing = "name the folder of a finished run, e.g. runs/credit"
        return read_record(path, cls, format=FORMAT, what="a run", missing=missing, again="run the job again")
