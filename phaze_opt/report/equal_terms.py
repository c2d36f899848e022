"""Optima on the terms of a machine (`certify.equal_terms`) as a table, a sentence and JSON."""

from typing import Any

from phaze_opt.certify.equal_terms import EqualTerms, Terms
from phaze_opt.certify.result import CertifyResult
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.silicon.die_report import die_of, die_to_json
from phaze_opt.jobs.machines_beside import rate_of
from phaze_opt.objective.evaluation import THROUGHPUT, Evaluation, architecture_to_json
from phaze_opt.report.certificate import format_gap
from phaze_opt.report.die import hbm_words
from phaze_opt.report.front import front_to_json
from phaze_opt.report.table import Fields, TableContent, number, table_of, words
from phaze_opt.report.text import format_mib, format_number, format_ratio

AS_FOUND = "as found"
TERMS = {
    Terms.AREA: "at its area",
    Terms.WATTS: "at its watts",
    Terms.AREA_AND_MEMORIES: "at its area, HBM rate and buffer",
}
"""Terms in a table and in a sentence."""


def equal_table(equal: EqualTerms, plain: CertifyResult) -> TableContent:
    """Optima on the terms of a machine, a row each, between the optimum as found and the machine itself."""
    rows = [(AS_FOUND, plain), *((TERMS[each.terms], each.result) for each in equal.found)]
    evaluations = [(name, result, result.best[0].evaluation) for name, result in rows if result.best]
    shown: list[tuple[str, CertifyResult | None, Evaluation]] = [*evaluations, (equal.name, None, equal.evaluation)]
    fields: Fields[tuple[str, CertifyResult | None, Evaluation]] = (
        words("fastest of the front" if plain.certificate.axes else "best design", lambda row: row[0]),
        number("samples/s", lambda row: format_number(rate_of(row[2]))),
        number("ratio", lambda row: "1" if row[1] is None else format_ratio(equal.ratio(row[1]))),
        number("mm2", lambda row: format_number(row[2].area_mm2)),
        number("W", lambda row: format_number(row[2].tdp_w)),
        number("GB/s", lambda row: hbm_words(row[2].accelerator)),
        number("buffer", lambda row: format_mib(row[2].accelerator.glb_bytes)),
        *([number("front", _front_size)] if plain.certificate.axes else []),
        number("gap", lambda row: "" if row[1] is None else format_gap(row[1].certificate.claim.gap)),
    )
    nothing = [f"nothing is feasible {name}" for name, result in rows if not result.best]
    note = "; ".join(
        [f"ratio: over {equal.name}, modelled as a die too; gap: by how much a better one may exceed it"] + nothing
    )
    return table_of(f"On the terms of {equal.name}", fields, shown, note, emphasis=lambda row: row[0] == AS_FOUND)


def _front_size(row: tuple[str, CertifyResult | None, Evaluation]) -> str:
    """Designs on the front on some terms."""
    return "" if row[1] is None else f"{len(row[1].front):,}"


def equal_sentence(equal: EqualTerms, plain: CertifyResult) -> str:
    """All ratios to a machine in one sentence; of fronts those of the fastest designs."""
    parts = [f"{TERMS[each.terms]} {_ratio_words(equal, each.result)}" for each in equal.found]
    who = "The fastest is " if plain.certificate.axes else ""
    return f"{who}{_ratio_words(equal, plain)} {equal.name}; {'; '.join(parts)}."


def left_out_sentences(equal: EqualTerms) -> tuple[str, ...]:
    """Why nothing is proved on some terms, a sentence each."""
    return tuple(f"Nothing is proved {TERMS[each.terms]}: {each.reason}." for each in equal.left_out)


def _ratio_words(equal: EqualTerms, result: CertifyResult) -> str:
    ratio = equal.ratio(result)
    return f"{ratio:.2f} times" if ratio > 0.0 else "nothing feasible"


def equal_to_json(equal: EqualTerms | None, plain: CertifyResult, constants: Constants) -> dict[str, Any] | None:
    """Optima on a machine's terms, each with its certificate; null where none were asked for."""
    if equal is None:
        return None
    found = []
    for each in equal.found:
        claim, scenario = each.result.certificate.claim, each.result.certificate.scenario
        best = each.result.best[0].evaluation if each.result.best else None
        found.append(
            {
                "terms": each.terms.value,
                "max_area_mm2": scenario.max_area_mm2,
                "max_tdp_w": scenario.max_tdp_w,
                THROUGHPUT: None if best is None else rate_of(best),
                "ratio": equal.ratio(each.result) or None,
                "front": front_to_json(each.result),
                "gap": claim.gap if claim.is_feasible else None,
                "is_proved": claim.is_proved,
                "architecture": None if best is None else architecture_to_json(best.accelerator),
                "die": None if best is None else die_to_json(die_of(best.accelerator, constants)),
                "wall_s": each.result.wall_s,
                "file": str(each.result.directory),
            }
        )
    return {
        "name": equal.name,
        THROUGHPUT: rate_of(equal.evaluation),
        "ratio": equal.ratio(plain) or None,
        "die": die_to_json(equal.die),
        "found": found,
        "left_out": [{"terms": each.terms.value, "reason": each.reason} for each in equal.left_out],
    }
