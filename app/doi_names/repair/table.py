"""All repairs, each with the stable name of its rule and its certainty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from doi_names.repair import characters, ends, prefix, surroundings


class Certainty(Enum):
    """How certain it is that a repair changes an error and not a part of the name."""

    #: No registered name contains the error. A name that still contains it is not suggested.
    SURE = "sure"
    #: Few registered names look like this. The unrepaired name is suggested after the repaired one.
    LIKELY = "likely"
    #: Many registered names look like this. The repaired name is suggested after the others.
    DOUBTFUL = "doubtful"


@dataclass(frozen=True, slots=True)
class Repair:
    """A function that undoes one copying error. `rule` is its stable name in suggestions, in kebab case."""

    rule: str
    apply: Callable[[str], str]
    certainty: Certainty = Certainty.SURE


#: In the order in which they are tried: the text around the name, then the name, then its end.
REPAIRS: Final = (
    Repair("html-entity", characters.without_html_entities),
    Repair("full-width", characters.without_full_width),
    Repair("other-digits", characters.with_ascii_digits, Certainty.LIKELY),
    Repair("ligature", characters.without_ligatures),
    Repair("slash", characters.with_slashes),
    Repair("dash", characters.with_hyphens, Certainty.LIKELY),
    Repair("angle-bracket", characters.with_angle_brackets, Certainty.LIKELY),
    Repair("invisible-character", characters.without_invisible, Certainty.LIKELY),
    Repair("latex-escape", characters.without_latex_escapes),
    Repair("backslash", characters.with_slash_for_backslash),
    Repair("emphasis", surroundings.without_emphasis),
    Repair("query", surroundings.parameter_value),
    Repair("percent-encoding", characters.decode_again, Certainty.LIKELY),
    Repair("letter-for-digit", prefix.with_digits),
    Repair("unreadable-character", prefix.without_unreadable),
    Repair("cut-prefix", prefix.with_whole_prefix),
    Repair("digit-before", prefix.without_digit_before),
    Repair("letter-in-prefix", prefix.without_letter_in_prefix),
    Repair("comma-for-dot", prefix.with_dot),
    Repair("lost-zero", prefix.with_lost_zero),
    Repair("repetition", surroundings.before_repetition),
    Repair("blank", surroundings.without_blanks),
    Repair("first-word", surroundings.first_word),
    Repair("missing-slash", prefix.with_first_slash),
    Repair("name-in-text", surroundings.name_inside),
    Repair("session-id", ends.without_session),
    Repair("query-or-fragment", ends.without_query_or_fragment, Certainty.LIKELY),
    Repair("markup", ends.without_markup),
    Repair("trailing-slash", ends.without_trailing_slash, Certainty.LIKELY),
    Repair("trailing-punctuation", ends.without_trailing_punctuation),
    Repair("footnote", ends.without_footnote, Certainty.LIKELY),
    Repair("next-word", ends.without_next_word, Certainty.LIKELY),
    Repair("next-cells", ends.without_next_cells, Certainty.LIKELY),
    Repair("page-part", ends.without_page_part, Certainty.LIKELY),
    Repair("version", ends.without_version, Certainty.LIKELY),
    Repair("title", ends.without_title, Certainty.LIKELY),
    Repair("another-name", surroundings.next_name, Certainty.DOUBTFUL),
    Repair("next-cell", ends.without_next_cell, Certainty.DOUBTFUL),
    Repair("short-doi", surroundings.short_doi_inside, Certainty.DOUBTFUL),
    Repair("blank-inside", surroundings.without_inner_blank, Certainty.DOUBTFUL),
    Repair("missing-10", prefix.with_ten, Certainty.DOUBTFUL),
    Repair("missing-dot", prefix.with_lost_dot, Certainty.DOUBTFUL),
    Repair("double-slash", prefix.with_one_slash, Certainty.DOUBTFUL),
    Repair("sici-bracket", surroundings.with_other_brackets, Certainty.DOUBTFUL),
)
