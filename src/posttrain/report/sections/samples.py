"""The same item, answered by every policy of the ladder."""

from posttrain.report.facts import Answer, Example, Facts
from posttrain.report.markup import Html, el, join
from posttrain.report.sections import Section, absent
from posttrain.report.times import Times

LONGEST = 1600


def draw(facts: Facts, times: Times | None) -> Section:
    """One block an item: question, reference answer, and the answers side by side."""
    if not facts.examples:
        return absent("Samples", "No benchmark rows that all policies share among the inputs.")
    lead = (
        "First answer of each policy to the same held-out item. Items are chosen by what they show"
        " and by the digest of their text, not by hand."
    )
    return Section("Samples", lead, join([block(e) for e in facts.examples]))


def block(example: Example) -> Html:
    """An item and its answers."""
    band = f", difficulty {example.difficulty}" if example.difficulty is not None else ""
    return el(
        "article",
        el("h3", example.why, el("small", f" {example.suite}{band} · {example.item_id}")),
        el("pre", cut(example.prompt), class_="prompt"),
        el("p", "Reference answer: ", el("code", cut(example.answer))),
        el("div", [answer(a) for a in example.answers], class_="answers"),
        class_="example",
    )


def answer(given: Answer) -> Html:
    """One policy's answer with its mark: sign and word, not colour alone."""
    right = given.correct >= 0.5
    mark = el("b", "✓ right" if right else "✕ wrong", class_="right" if right else "wrong")
    note = el("small", " cut at the token limit") if given.truncated else None
    body = (
        el("pre", cut(given.response))
        if given.response.strip()
        else el("p", "(empty)", class_="soft")
    )
    return el("div", el("h4", given.policy, " ", mark, note), body)


def cut(text: str) -> str:
    """Long texts end with how much was left out."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]} … ({len(text) - LONGEST} more characters)"
