"""The technical part of Annex IV of the EU AI Act, items 1 to 9, as far as a program can carry it.

The items and their letters are those of Regulation (EU) 2024/1689, Annex IV, which Article 11(1) refers to.
"""

from __future__ import annotations

from securevfl.dossier import about_basis, about_job, about_ledgers, about_model, about_privacy
from securevfl.dossier.evidence import DossierEvidence
from securevfl.dossier.places import ask
from securevfl.dossier.sentences import Document, Fact, Item, Section, Source, write_sentence

__all__ = ["write_annex_iv"]


def write_annex_iv(evidence: DossierEvidence) -> Document:
    """Draft the technical documentation; what the provider alone knows is a place to fill in."""
    return Document(
        name="ai-act-annex-iv",
        title="Technical documentation (draft)",
        law="Regulation (EU) 2024/1689 (AI Act), Article 11(1) and Annex IV",
        warning=about_basis.warn_of_kind(evidence),
        sections=(
            Section("Does this apply?", "AI Act Art. 6 and Annex III", _ask_scope(evidence)),
            *_describe_system(evidence),
            *_describe_development(evidence),
            Section("Monitoring, functioning and control", "AI Act Annex IV(3)", _describe_control(evidence)),
            Section("Are the metrics appropriate?", "AI Act Annex IV(4)", _describe_metrics(evidence)),
            Section("Risk management", "AI Act Annex IV(5) and Art. 9", _ask_risks(evidence)),
            Section("Changes through the lifecycle", "AI Act Annex IV(6)", _describe_changes(evidence)),
            Section("Standards applied", "AI Act Annex IV(7)", (ask("standards"),)),
            Section("EU declaration of conformity", "AI Act Annex IV(8) and Art. 47", (ask("declaration"),)),
            Section("After placing on the market", "AI Act Annex IV(9) and Art. 72", _describe_market(evidence)),
        ),
    )


def _ask_scope(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (*about_basis.describe_basis(evidence), ask("high_risk"))


def _describe_system(evidence: DossierEvidence) -> tuple[Section, ...]:
    return (
        Section(
            "Purpose, provider and version",
            "AI Act Annex IV(1)(a)",
            (*about_job.describe_purpose(evidence), ask("provider"), ask("system_version")),
        ),
        Section("Other hardware and software", "AI Act Annex IV(1)(b)", (ask("interactions"),)),
        Section("Versions of software", "AI Act Annex IV(1)(c)", _describe_versions(evidence)),
        Section(
            "Forms, hardware, product and interface",
            "AI Act Annex IV(1)(d) to (g)",
            (
                *about_job.describe_use(evidence),
                ask("hardware"),
                ask("interface"),
            ),
        ),
        Section("Instructions for use", "AI Act Annex IV(1)(h)", (ask("instructions"),)),
    )


def _describe_versions(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (
        *about_model.describe_versions(evidence),
        write_sentence(
            "Every package of the installation that wrote this dossier is listed in sbom.cdx.json.",
            Source("file", "sbom.cdx.json"),
        ),
    )


def _describe_development(evidence: DossierEvidence) -> tuple[Section, ...]:
    return (
        Section(
            "Methods and steps of development",
            "AI Act Annex IV(2)(a)",
            (*about_job.describe_method(evidence), *about_model.describe_training(evidence), ask("pretrained")),
        ),
        Section(
            "Design: logic, choices, trade-offs",
            "AI Act Annex IV(2)(b)",
            (*about_job.describe_settings(evidence), ask("design_rationale")),
        ),
        Section(
            "Architecture and computing resources",
            "AI Act Annex IV(2)(c)",
            (
                *about_job.describe_parties(evidence),
                *_describe_resources(evidence),
                *about_ledgers.describe_messages(evidence),
            ),
        ),
        Section(
            "Data",
            "AI Act Annex IV(2)(d)",
            (
                *about_job.describe_columns(evidence),
                *about_job.describe_rows(evidence),
                *about_model.describe_preparation(evidence),
                ask("provenance"),
                ask("labelling"),
                ask("protected"),
            ),
        ),
        Section("Human oversight", "AI Act Annex IV(2)(e) and Art. 14", (ask("oversight"),)),
        Section("Changes determined in advance", "AI Act Annex IV(2)(f)", (ask("planned_changes"),)),
        Section(
            "Validation and testing",
            "AI Act Annex IV(2)(g)",
            (*about_model.describe_metrics(evidence), *about_model.describe_groups(evidence), ask("test_signature")),
        ),
        Section(
            "Cybersecurity",
            "AI Act Annex IV(2)(h)",
            (
                *about_privacy.describe_protection(evidence),
                *about_privacy.describe_attacks(evidence),
                *about_ledgers.describe_ledgers(evidence),
                ask("access"),
            ),
        ),
    )


def _describe_resources(evidence: DossierEvidence) -> list[Item]:
    """What training took: time and traffic."""
    run = evidence.run
    if run is None or not run.seconds:
        return []
    facts = {"seconds": evidence.of_run("seconds")}
    text = "The run took {seconds} seconds on the machine of section 4"
    if run.links:
        total = sum(link.bytes for link in run.links)
        facts["megabytes"] = Fact(total, Source("report", f"runs.{run.key}.links"), f"{total / 1e6:,.4g}")
        text += " and sent {megabytes} MB between parties, as far as this report knows"
    return [write_sentence(f"{text}.", **facts)]


def _describe_control(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (
        *about_model.describe_classes(evidence),
        *about_model.describe_limitations(evidence),
        *about_privacy.describe_card(evidence),
        ask("unintended"),
        ask("oversight"),
        ask("input_data"),
    )


def _describe_metrics(evidence: DossierEvidence) -> tuple[Item, ...]:
    return (*about_model.describe_calibration(evidence), ask("metrics_choice"))


def _ask_risks(evidence: DossierEvidence) -> tuple[Item, ...]:
    source = Source("file", "impact-assessment.html")
    return (
        write_sentence("Risks to people's data are in the impact assessment of this dossier.", source),
        ask("risk_management"),
    )


def _describe_changes(evidence: DossierEvidence) -> tuple[Item, ...]:
    found: list[Item] = []
    attempts = sorted({chain.attempt for chain in evidence.chains() if chain.attempt})
    if attempts:
        found.append(
            write_sentence(f"The ledger has {len(attempts)} attempt(s) at this job.", *evidence.ledger_sources)
        )
    return (*found, ask("changes"))


def _describe_market(evidence: DossierEvidence) -> tuple[Item, ...]:
    return tuple(about_model.describe_monitoring(evidence))
