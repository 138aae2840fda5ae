"""All repairs, each with the stable name of its rule and its certainty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from doi_names.repair import characters, ends, prefix, programs, sici, surroundings

#: How certain a reading is: the text as it stands, or its most doubtful repair; or derived from another identifier.
Confidence = Literal["literal", "sure", "likely", "doubtful", "derived"]


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


#: The pipeline, in its order: what programs did, the ends that characters show, the characters, the prefix, the name
#: inside the text, all other ends; then what is doubtful.
REPAIRS: Final = (
    Repair("html-entity", programs.without_html_entities),
    Repair("latex-escape", programs.without_latex_escapes),
    Repair("backslash", programs.with_slash_for_backslash),
    Repair("escape", programs.without_escapes),
    Repair("link", programs.without_links),
    Repair("inline-tag", programs.without_inline_tags),
    Repair("sici-angle", sici.restore_angle_brackets),
    Repair("east-asian-punctuation", ends.at_east_asian_punctuation),
    Repair("escaped-control", ends.at_escaped_control),
    Repair("full-width", characters.without_full_width),
    Repair("other-digits", characters.with_ascii_digits, Certainty.LIKELY),
    Repair("ligature", characters.without_ligatures),
    Repair("slash", characters.with_slashes),
    Repair("dash", characters.with_hyphens, Certainty.LIKELY),
    Repair("angle-bracket", characters.with_angle_brackets, Certainty.LIKELY),
    Repair("invisible-character", characters.without_invisible, Certainty.LIKELY),
    Repair("emphasis", surroundings.without_emphasis),
    Repair("query", programs.parameter_value),
    Repair("percent-encoding", programs.decode_again, Certainty.LIKELY),
    Repair("letter-for-digit", prefix.with_digits),
    Repair("unreadable-character", prefix.without_unreadable),
    Repair("cut-prefix", prefix.with_whole_prefix),
    Repair("digit-before", prefix.without_digit_before),
    Repair("letter-in-prefix", prefix.without_letter_in_prefix),
    Repair("comma-for-dot", prefix.with_dot),
    Repair("lost-zero", prefix.with_lost_zero),
    Repair("repeated-prefix", prefix.without_repetition, Certainty.LIKELY),
    Repair("double-slash", prefix.with_one_slash, Certainty.LIKELY),
    Repair("markup", ends.at_markup),
    Repair("sign", ends.at_sign),
    Repair("repetition", surroundings.before_repetition),
    Repair("blank", surroundings.without_blanks, Certainty.LIKELY),
    Repair("chapter", surroundings.with_chapter, Certainty.LIKELY),
    Repair("first-word", surroundings.first_word),
    Repair("missing-slash", prefix.with_first_slash, Certainty.LIKELY),
    Repair("name-in-text", surroundings.name_inside),
    Repair("session-id", ends.at_session),
    Repair("query-or-fragment", ends.at_query_or_fragment, Certainty.LIKELY),
    Repair("second-name", ends.at_second_name, Certainty.LIKELY),
    Repair("next-word", ends.at_next_word, Certainty.LIKELY),
    Repair("other-script", ends.at_other_script, Certainty.LIKELY),
    Repair("item-number", ends.at_item_number),
    Repair("trailing-slash", ends.without_trailing_slash, Certainty.LIKELY),
    Repair("trailing-punctuation", ends.without_trailing_punctuation),
    Repair("unpaired-bracket", ends.at_unpaired_bracket, Certainty.LIKELY),
    Repair("footnote", ends.at_footnote, Certainty.LIKELY),
    Repair("year", ends.at_year, Certainty.LIKELY),
    Repair("next-cells", ends.at_next_cells, Certainty.LIKELY),
    Repair("badge", ends.at_badge, Certainty.LIKELY),
    Repair("page-part", ends.at_page_part, Certainty.LIKELY),
    Repair("version", ends.at_version, Certainty.LIKELY),
    Repair("title", ends.at_title, Certainty.LIKELY),
    Repair("another-name", surroundings.next_name, Certainty.DOUBTFUL),
    Repair("next-cell", ends.at_next_cell, Certainty.DOUBTFUL),
    Repair("short-doi", surroundings.short_doi_inside, Certainty.DOUBTFUL),
    Repair("blank-inside", surroundings.without_inner_blank, Certainty.DOUBTFUL),
    Repair("missing-10", prefix.with_ten, Certainty.DOUBTFUL),
    Repair("missing-dot", prefix.with_lost_dot, Certainty.DOUBTFUL),
    Repair("two-slashes", prefix.with_one_of_two_slashes, Certainty.DOUBTFUL),
    Repair("hyphenation", surroundings.without_hyphenation, Certainty.DOUBTFUL),
    Repair("sici-bracket", sici.with_other_brackets, Certainty.DOUBTFUL),
)
