"""A draft of the data protection impact assessment: GDPR Article 35, in the order of its paragraph 7."""

from __future__ import annotations

from securevfl.dossier import about_basis, about_job, about_ledgers, about_model, about_privacy
from securevfl.dossier.evidence import DossierEvidence
from securevfl.dossier.places import ask
from securevfl.dossier.sentences import Document, Item, Section, write_sentence

__all__ = ["write_impact_assessment"]

_RISKS = ("risk_read", "risk_membership", "risk_scores", "risk_groups", "risk_files")
"""Places for risks whose likelihood and severity only a person can judge."""

_DECISION = ("dpo_advice", "views", "prior_consultation", "review", "decision")


def write_impact_assessment(evidence: DossierEvidence) -> Document:
    """Draft the assessment from what is known; the judgements are places to fill in."""
    return Document(
        name="impact-assessment",
        title="Data protection impact assessment (draft)",
        law="Regulation (EU) 2016/679 (GDPR), Article 35",
        warning=about_basis.warn_of_kind(evidence),
        sections=(
            _write_threshold(evidence),
            Section("Processing and purposes", "GDPR Art. 35(7)(a)", _describe_processing(evidence)),
            Section("Data flows", "GDPR Art. 35(7)(a)", tuple(about_ledgers.describe_messages(evidence))),
            Section("Necessity and proportionality", "GDPR Art. 35(7)(b)", _assess_need(evidence)),
            Section("Risks to rights and freedoms", "GDPR Art. 35(7)(c)", _assess_risks(evidence)),
            Section("Measures", "GDPR Art. 35(7)(d)", _list_measures(evidence)),
            Section("Advice, views and decision", "GDPR Art. 35(2), 35(9), 35(11) and 36", tuple(map(ask, _DECISION))),
        ),
    )


def _write_threshold(evidence: DossierEvidence) -> Section:
    facts: list[Item] = [
        write_sentence(
            "This job matches rows of {count} organisations' tables, and trains a model that scores rows they have in "
            "common.",
            count=about_job.count_parties(evidence),
        )
    ]
    return Section(
        "Is an assessment required?",
        "GDPR Art. 35(1), 35(3) and 35(4)",
        (
            *facts,
            ask("dpia_required"),
            *about_basis.describe_basis(evidence),
        ),
    )


def _describe_processing(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (
        *about_job.describe_purpose(evidence),
        ask("legal_basis"),
        *about_job.describe_parties(evidence),
        ask("controllers"),
        *about_job.describe_columns(evidence),
        ask("data_subjects"),
        ask("special_categories"),
        *about_job.describe_rows(evidence),
        *about_job.describe_method(evidence),
        *about_job.describe_use(evidence),
        ask("automated_decisions"),
        ask("retention"),
    )


def _assess_need(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (
        *about_model.describe_benefit(evidence),
        *about_privacy.describe_protection(evidence),
        ask("minimisation"),
        *about_model.describe_preparation(evidence),
        ask("alternatives"),
        *about_job.describe_limits(evidence),
        ask("accuracy"),
        ask("information"),
        ask("rights"),
        ask("transfers"),
    )


def _assess_risks(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (
        *about_privacy.describe_card(evidence),
        *about_privacy.describe_membership(evidence),
        *about_privacy.describe_table_share(evidence),
        *about_privacy.describe_epsilon(evidence),
        *about_privacy.describe_attacks(evidence),
        *about_model.describe_classes(evidence),
        *about_model.describe_groups(evidence),
        *about_model.describe_limitations(evidence),
        *map(ask, _RISKS),
    )


def _list_measures(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (
        *about_privacy.describe_protection(evidence),
        *about_ledgers.list_policies(evidence),
        *about_ledgers.describe_ledgers(evidence),
        ask("access"),
        ask("organisation"),
        ask("codes"),
    )
