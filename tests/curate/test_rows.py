"""Output lines: the same, byte for byte, as the records' own JSON."""

from hypothesis import given
from hypothesis import strategies as st

from posttrain.curate.batch import Batch
from posttrain.curate.ledger import KINDS
from posttrain.curate.rows import lines
from posttrain.records import Demonstration, Preference, Prompt, RawRow, Record, content_id

RECORDS: dict[str, type[Record]] = {
    "evaluation": Prompt,
    "demonstrations": Demonstration,
    "preferences": Preference,
    "prompts": Prompt,
}
texts = st.text(max_size=20) | st.sampled_from(
    ['"\\/\b\f\n\r\t', "\0\x1f\x7f", "é\u2028🙂", "</script>"]
)
odd = st.none() | texts


@given(
    row=st.builds(
        RawRow.of,
        source=texts,
        task=st.just("text"),
        prompt=texts,
        split=st.sampled_from(["train", "eval"]),
        answer=odd,
        response=odd,
        chosen=odd,
        rejected=odd,
        difficulty=st.none() | st.integers(-9, 9),
    )
)
def test_a_line_is_the_json_of_the_record(row: RawRow) -> None:
    made = {kind: list(lines(Batch.of([row]), kind)) for kind in KINDS}
    assert [kind for kind in KINDS if made[kind]] == [row.kind]
    (line,) = made[row.kind]
    record = RECORDS[row.kind].model_validate_json(line)
    assert line == record.model_dump_json(exclude_none=True).encode() + b"\n"


def test_a_demonstration_says_whether_it_was_verified() -> None:
    fields = {"source": "s", "task": "number", "prompt": "2 + 2?"}
    rows = [
        RawRow.of(**fields, answer="4", response="#### 4"),  # type: ignore[arg-type]
        RawRow.of(**fields, answer="5", response="#### 4"),  # type: ignore[arg-type]
        RawRow.of(**fields, response="#### 4"),  # type: ignore[arg-type]
    ]
    made = [Demonstration.model_validate_json(e) for e in lines(Batch.of(rows), "demonstrations")]
    assert [row.reward for row in made] == [1, 0, 0]
    assert {row.prompt_id for row in made} == {content_id("number", "2 + 2?")}
