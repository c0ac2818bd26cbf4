"""Filters: a batch of raw rows in, for each row None to keep it or the reason to drop it.

A filter is made once for a run. The local ones judge each row by itself, the others by the rows
before it (`posttrain.curate.operators`); put those behind the local ones, so that a bad row is
never the reason to drop a good one. To add a filter, write a class with keyword-only options
and add a line to FILTERS; one that looks at one row at a time returns `by_row(batch, judge)`.
"""

from collections.abc import Callable

from posttrain.curate.filters.contamination import Contamination
from posttrain.curate.filters.duplicates import ExactDuplicate, NearDuplicate
from posttrain.curate.filters.form import IdenticalPair, Length, Schema, WrongAnswer
from posttrain.curate.filters.labels import Agreement, Contradiction, RepeatedId
from posttrain.curate.filters.meaning import KCenter, SemanticDuplicate
from posttrain.curate.filters.text import Boilerplate, LanguageCheck, Repetition
from posttrain.curate.operators import Operator

FILTERS: dict[str, Callable[..., Operator]] = {
    "schema": Schema,
    "length": Length,
    "language": LanguageCheck,
    "repetition": Repetition,
    "boilerplate": Boilerplate,
    "identical_pair": IdenticalPair,
    "wrong_answer": WrongAnswer,
    "agreement": Agreement,
    "contamination": Contamination,
    "repeated_id": RepeatedId,
    "contradiction": Contradiction,
    "exact_duplicate": ExactDuplicate,
    "near_duplicate": NearDuplicate,
    "semantic_duplicate": SemanticDuplicate,
    "k_center": KCenter,
}
