"""Two documents about the model: one in the order of US model-risk guidance, and a model card.

The guidance is the interagency one of 17 April 2026 (Federal Reserve SR 26-2, OCC Bulletin 2026-13), which replaced
SR 11-7 and OCC Bulletin 2011-12. The card has the sections of Mitchell et al., *Model Cards for Model Reporting*, 2019.
"""

from __future__ import annotations

from securevfl.dossier import about_basis, about_job, about_ledgers, about_model, about_privacy
from securevfl.dossier.evidence import DossierEvidence
from securevfl.dossier.places import ask
from securevfl.dossier.sentences import Document, Item, Section, Source, write_sentence

__all__ = ["write_model_card", "write_model_risk"]

_GUIDANCE = "SR 26-2 / OCC 2026-13"
_CARD = "Mitchell et al. 2019"


def write_model_risk(evidence: DossierEvidence) -> Document:
    """Draft the model document: development and use, validation and monitoring, governance, third parties."""
    development = f"{_GUIDANCE}, model development"
    return Document(
        name="model-risk",
        title="Model document (draft)",
        law="Revised Guidance on Model Risk Management, 17 April 2026 (SR 26-2, OCC Bulletin 2026-13; "
        "before: SR 11-7, OCC 2011-12)",
        warning=about_basis.warn_of_kind(evidence),
        sections=(
            Section(
                "Purpose and materiality",
                f"{_GUIDANCE}, model risk",
                (*about_job.describe_purpose(evidence), ask("materiality"), *about_basis.describe_basis(evidence)),
            ),
            Section("Data", development, _describe_data(evidence)),
            Section("Methodology", development, _describe_methodology(evidence)),
            Section("Limitations and use", f"{_GUIDANCE}, model use", _describe_limits(evidence)),
            Section(
                "Conceptual soundness",
                f"{_GUIDANCE}, model validation",
                (ask("theory"), *about_model.describe_importance(evidence), ask("validation")),
            ),
            Section(
                "Testing and outcomes analysis",
                f"{_GUIDANCE}, model validation",
                (
                    *about_model.describe_metrics(evidence),
                    *about_model.describe_benefit(evidence),
                    *about_model.describe_classes(evidence),
                    *about_model.describe_groups(evidence),
                    ask("metrics_choice"),
                    ask("threshold"),
                ),
            ),
            Section(
                "Ongoing monitoring", f"{_GUIDANCE}, model monitoring", tuple(about_model.describe_monitoring(evidence))
            ),
            Section("Governance and controls", f"{_GUIDANCE}, governance and controls", _describe_controls(evidence)),
            Section(
                "Software and data of others",
                f"{_GUIDANCE}, vendor and other third-party products",
                _describe_others(evidence),
            ),
        ),
    )


def _describe_data(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (
        *about_job.describe_parties(evidence),
        *about_job.describe_columns(evidence),
        *about_job.describe_rows(evidence),
        *about_model.describe_preparation(evidence),
        ask("provenance"),
        ask("labelling"),
        ask("protected"),
    )


def _describe_methodology(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (
        *about_job.describe_method(evidence),
        *about_job.describe_settings(evidence),
        *about_model.describe_training(evidence),
        ask("design_rationale"),
    )


def _describe_limits(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (
        *about_model.describe_limitations(evidence),
        *about_job.describe_use(evidence),
        ask("misuse"),
        ask("input_data"),
        ask("oversight"),
    )


def _describe_controls(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (
        *about_ledgers.describe_ledgers(evidence),
        *about_job.describe_limits(evidence),
        ask("owner"),
        ask("inventory"),
        ask("approval"),
        ask("changes"),
    )


def _describe_others(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (
        *about_model.describe_versions(evidence),
        write_sentence(
            "Every package of the installation that wrote this dossier is listed in sbom.cdx.json.",
            Source("file", "sbom.cdx.json"),
        ),
        *about_privacy.describe_card(evidence),
        ask("vendor"),
    )


def write_model_card(evidence: DossierEvidence) -> Document:
    """Draft a model card, for people who use the model and do not audit it."""
    sections: tuple[tuple[str, tuple[Item, ...]], ...] = (
        (
            "Model details",
            (
                *about_job.describe_method(evidence),
                *about_model.describe_training(evidence),
                *about_job.describe_parties(evidence),
                *about_model.describe_versions(evidence, machine=False),
                ask("owner"),
                ask("contact"),
            ),
        ),
        (
            "Intended use",
            (*about_job.describe_purpose(evidence), *about_job.describe_use(evidence), ask("misuse")),
        ),
        ("Factors", tuple(about_model.describe_groups(evidence))),
        ("Metrics", (*about_model.list_figures(evidence), ask("metrics_choice"), ask("threshold"))),
        ("Evaluation data", (*about_job.describe_rows(evidence), ask("provenance"))),
        (
            "Training data",
            (
                *about_job.describe_columns(evidence),
                *about_model.describe_preparation(evidence),
                ask("labelling"),
            ),
        ),
        (
            "Quantitative analyses",
            (
                *about_model.describe_metrics(evidence),
                *about_model.describe_classes(evidence),
                *about_model.describe_calibration(evidence),
            ),
        ),
        (
            "Ethical considerations",
            (
                *about_privacy.describe_card(evidence),
                *about_privacy.describe_epsilon(evidence),
                *about_privacy.describe_attacks(evidence),
                ask("unintended"),
            ),
        ),
        ("Caveats and recommendations", (*about_model.describe_limitations(evidence), ask("input_data"))),
    )
    return Document(
        name="model-card",
        title="Model card (draft)",
        law="Mitchell et al., Model Cards for Model Reporting, 2019",
        warning=about_basis.warn_of_kind(evidence),
        sections=tuple(
            Section(title, f"{_CARD}, section 4.{number}", items) for number, (title, items) in enumerate(sections, 1)
        ),
    )
