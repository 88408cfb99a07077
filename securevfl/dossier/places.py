"""The places that a person fills in, each with its key in the answers file. The same place may be in several documents:
an answer is given once.
"""

from __future__ import annotations

from collections.abc import Mapping

from securevfl.dossier.sentences import FillIn

__all__ = ["PLACES", "ask"]

_PLACES = (
    # who
    FillIn("controller", "name and contact details of this organisation and of its representative, if it has one"),
    FillIn("dpo", "name and contact details of the data protection officer"),
    FillIn(
        "controllers",
        "who is controller, joint controller (Art. 26) or processor (Art. 28), each with name and contact details",
    ),
    FillIn(
        "fingerprints",
        "who compared the keys that the agreement names with the other organisations, how and when",
        "not over the channel that the file came by; securevfl agreement show prints them",
    ),
    FillIn("processor_contract", "contract with each controller (Art. 28(3))"),
    FillIn("provider", "name and address of the provider of the AI system, and of the deployer if it is another"),
    FillIn("owner", "owner of the model, its developers and users, each by name or unit"),
    FillIn("contact", "where to send questions and complaints about the model"),
    # why
    FillIn("purpose", "purpose of the processing", "an agreement has one: securevfl propose --purpose"),
    FillIn("use", "which decisions the scores are used for, and by whom"),
    FillIn("misuse", "uses for which the model is not meant"),
    FillIn("legal_basis", "legal basis of the processing (Art. 6), and the legitimate interest if it is that one"),
    FillIn("automated_decisions", "whether a decision rests on the score alone (Art. 22), and the safeguards"),
    FillIn(
        "dpia_required",
        "whether the processing is likely to result in a high risk, and why",
        "evaluation or scoring, large scale, matching of data sets; the authority's list under Art. 35(4)",
    ),
    FillIn(
        "high_risk",
        "whether the system is high-risk, by which point, and from when this applies to it",
        "Annex III(5)(b): creditworthiness and credit scores of natural persons; dates of application have been "
        "amended, read the consolidated text",
    ),
    FillIn("materiality", "materiality of the model: exposure (volume, decisions) and purpose, and the resulting tier"),
    # data
    FillIn("data_subjects", "categories of people in the tables: customers, applicants, minors, employees"),
    FillIn("special_categories", "columns with special categories (Art. 9) or criminal offences (Art. 10), or none"),
    FillIn("provenance", "origin of each table: which system, which period, how rows were selected"),
    FillIn("labelling", "how the label was determined, and how reliable it is"),
    FillIn("input_data", "which rows the model may score: population, period, ranges of columns"),
    FillIn("retention", "retention period of tables, model parts, scores, reports and ledgers"),
    FillIn("minimisation", "why each column is needed, and which were left out (Art. 5(1)(c))"),
    FillIn("accuracy", "how wrong or outdated rows are found and corrected (Art. 5(1)(d))"),
    FillIn("recipients", "other recipients, also in third countries: service providers, authorities, group companies"),
    FillIn(
        "protected",
        "which columns tell age, sex, marital status, origin or stand in for them, and why they may be used",
        "equal treatment law; for credit in the US the Equal Credit Opportunity Act",
    ),
    FillIn("transfers", "transfers to third countries and their safeguards (Chapter V), or none"),
    # people
    FillIn("information", "how people are informed (Art. 13 and 14), of the joint use in particular"),
    FillIn("rights", "how access, rectification, erasure, restriction and objection are served (Art. 15 to 21)"),
    FillIn("views", "views of the people concerned or their representatives, or why they were not asked (Art. 35(9))"),
    FillIn("explanation", "how a single score is explained to the person it is about"),
    FillIn(
        "groups",
        "accuracy for groups of people (age, sex, origin, where lawful to measure) and whether it differs",
        "the report has no figures by group",
    ),
    # model
    FillIn("alternatives", "which less intrusive way was considered: own columns alone, fewer columns, noise"),
    FillIn(
        "benefit",
        "what joining is worth over the organisation's own columns",
        "a comparison with the baseline “alone” on the test rows measures it",
    ),
    FillIn("design_rationale", "why this algorithm and this protection, and what was traded for it"),
    FillIn("theory", "why these columns should predict this label, and which assumptions that makes"),
    FillIn("metrics_choice", "why these figures fit the decision, and which value of them is good enough"),
    FillIn("threshold", "from which score a decision changes, who set it, and its costs of error"),
    FillIn("pretrained", "pre-trained models or tools of third parties that were used, or none"),
    FillIn("unintended", "foreseeable unintended outcomes and sources of risk to people's rights"),
    FillIn(
        "validation", "who validated the model independently of its developers, what was challenged, with which result"
    ),
    FillIn("test_signature", "test reports, dated and signed by the persons responsible"),
    # operation
    FillIn("system_version", "version of the AI system, and how it relates to earlier ones"),
    FillIn("interactions", "other systems that feed the model or take its scores"),
    FillIn("hardware", "hardware on which the system is to run"),
    FillIn("interface", "interface of the deployer's staff, with pictures if it is part of a product"),
    FillIn("instructions", "instructions for use"),
    FillIn("oversight", "who oversees the system, who can stop it, and how scores are overridden (Art. 14)"),
    FillIn("planned_changes", "changes that are determined in advance: retraining, new columns; or none"),
    FillIn("changes", "changes of the system since its first version, with dates"),
    FillIn("monitoring", "who watches the model, how often, by which figures and limits, and what happens beyond them"),
    FillIn("inventory", "number of the model in the inventory, its status, and the date of its next review"),
    FillIn("vendor", "how software and data of other organisations are assessed and replaced if they fail"),
    # measures
    FillIn("policy", "the policy of this organisation ([policy] in its party file)"),
    FillIn("access", "who can log in to the machines, and how keys, tables and state folders are protected at rest"),
    FillIn("codes", "approved codes of conduct and certifications that are followed (Art. 35(8), 40, 42), or none"),
    FillIn("organisation", "training, contracts with the other organisations, and handling of breaches (Art. 33, 34)"),
    FillIn("assumption", "why this assumption is believed", "who operates, pays or owns the computing parties"),
    FillIn("leak", "why the cells “reads it” are acceptable, or which protection replaces this one"),
    FillIn(
        "attacks",
        "result of attacks on this job, or why none is needed",
        "securevfl attack JOB.toml --out FOLDER on public or simulated data, then securevfl dossier … --attacks FOLDER",
    ),
    FillIn("risk_management", "risk management system of the provider (Art. 9)"),
    FillIn("standards", "harmonised standards applied, or the solutions adopted in place of them"),
    FillIn("declaration", "copy of the EU declaration of conformity (Art. 47)"),
    # risks
    FillIn(
        "risk_read",
        "likelihood and severity: another organisation reads columns or labels (“who could read”)",
    ),
    FillIn("risk_membership", "likelihood and severity: another organisation learns who is in both tables"),
    FillIn("risk_scores", "likelihood and severity: a wrong score harms a person"),
    FillIn("risk_groups", "likelihood and severity: scores are worse, or more often adverse, for a group of people"),
    FillIn("risk_files", "likelihood and severity: somebody reads tables, model parts or ledgers on own machines"),
    # decision
    FillIn("dpo_advice", "advice of the data protection officer (Art. 35(2)), name and date"),
    FillIn("prior_consultation", "whether the authority has to be consulted before (Art. 36)"),
    FillIn("review", "when this is reviewed, and which change starts a review (Art. 35(11))"),
    FillIn("decision", "decision, name, date and signature of the controller"),
    FillIn("approval", "approval of the model: by whom, when, with which conditions"),
)

PLACES: Mapping[str, FillIn] = {place.key: place for place in _PLACES}
"""Key → place."""


def ask(key: str) -> FillIn:
    """The place with this key.

    Raises:
        KeyError: there is none.
    """
    return PLACES[key]
