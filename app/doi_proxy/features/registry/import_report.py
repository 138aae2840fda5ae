"""What an import did with the records and the files that it read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from doi_proxy.features.registry.crossref import NO_TARGET
from doi_proxy.features.registry.import_job import MAX_NAMED, Job
from doi_proxy.features.registry.import_runs import PartReport

#: The counts of a report. The first six add up to the records read.
COUNTS: Final = ("new", "changed", "same", "older", "repeated", "before", "drafts", "refused")


@dataclass(slots=True)
class RegistryReport:
    """Counts of records by outcome, in the order of COUNTS, and the first reasons for leaving records out."""

    counts: Counter[str] = field(default_factory=Counter)
    #: Records that were refused, as "file: record N: reason".
    reasons: list[str] = field(default_factory=list)
    #: Files that were left out, with the reason.
    left_out: list[tuple[str, str]] = field(default_factory=list)
    is_continued: bool = False

    @property
    def is_useless(self) -> bool:
        """Whether records were read and all of them were refused."""
        return 0 < self.counts["read"] == self.counts["refused"]

    @property
    def lacks_targets(self) -> bool:
        """Whether the refused records are works of Crossref that do not say where their names lead."""
        return bool(self.reasons) and all(reason.endswith(NO_TARGET) for reason in self.reasons)


def count_parts(parts: Sequence[PartReport], job: Job) -> RegistryReport:
    """The report of what was read from parts. A list of states is counted, and not named."""
    report = RegistryReport(left_out=job.named[:MAX_NAMED])
    counts = report.counts
    counts.update(failures=job.failures, left_out=job.left_out)
    # A large file is read in several parts, each with a number after its name.
    counts["states"] = len({part.name.partition("#")[0] for part in parts if part.is_list_of_states})
    for part in parts:
        before = part.read - part.records - part.drafts - part.refused
        counts.update(read=part.read, drafts=part.drafts, refused=part.refused, before=before, several=part.several)
        if part.failure or part.left_out:
            counts["failures"] += bool(part.failure)
            counts["left_out"] += 1
            report.left_out.append((part.name, part.failure or part.left_out))
        report.reasons += [f"{part.name}: {reason}" for reason in part.reasons]
    del report.reasons[MAX_NAMED:], report.left_out[MAX_NAMED:]
    return report
