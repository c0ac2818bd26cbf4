"""IFEval's instructions, each checked by rule (arXiv:2311.07911).

To add an instruction type, write a function of the response with the type's own parameters as
keyword-only ones, and a line in INSTRUCTIONS. A type that is not there is counted, never guessed.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

Check = Callable[..., bool | None]
"""Whether a response follows; None where no rule can tell."""

LONGEST = 200_000
"""Characters beyond which a response is cut before it is checked (assumed)."""

_SENTENCE = re.compile(r"[.!?…。！？।]+[\"'”’)\]]*(?=\s|$)")
_BULLET = re.compile(r"^[ \t]*(?:\*(?!\*)|-).*\S", re.MULTILINE)
_MARKED = re.compile(r"\*\*([^\n*]+)\*\*|\*([^\n*]+)\*")


def related(count: int, relation: str, wanted: int) -> bool:
    """Whether a count is `less than` or `at least` what is wanted."""
    return count < wanted if relation == "less than" else count >= wanted


def all_keywords(text: str, *, keywords: Sequence[str]) -> bool:
    """Every keyword occurs, in whatever case, inside a longer word too."""
    return all(word.casefold() in text.casefold() for word in keywords)


def keyword_count(text: str, *, keyword: str, frequency: int, relation: str) -> bool:
    """A keyword occurs so often."""
    return related(text.casefold().count(keyword.casefold()), relation, frequency)


def no_forbidden_words(text: str, *, forbidden_words: Sequence[str]) -> bool:
    """None of the words occurs as a word of its own."""
    words = "|".join(re.escape(word) for word in forbidden_words)
    return not re.search(rf"\b(?:{words})\b", text, re.IGNORECASE)


def letter_count(text: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    """A character occurs so often, in whatever case."""
    return related(text.lower().count(letter.lower()), let_relation, let_frequency)


def capital_words(text: str, *, capital_frequency: int, capital_relation: str) -> bool:
    """So many words are in capitals throughout."""
    count = sum(word.isupper() for word in re.findall(r"\w[\w'-]*", text))
    return related(count, capital_relation, capital_frequency)


def all_capitals(text: str) -> bool:
    """No lower-case letter, and Latin ones for the most part."""
    return text.isupper() and latin(text)


def all_lowercase(text: str) -> bool:
    """No capital letter, and Latin ones for the most part."""
    return text.islower() and latin(text)


def latin(text: str) -> bool:
    """Whether most letters are Latin; that the language is English is not checked."""
    return script_share(text, "LATIN") > 0.5


def script_share(text: str, script: str) -> float:
    """The share of letters whose Unicode name begins with the script's; 0 without letters."""
    letters = [each for each in text[:5000] if each.isalpha()]
    named = sum(unicodedata.name(each, "").startswith(script) for each in letters)
    return named / len(letters) if letters else 0.0


SCRIPTS = {
    "pa": "GURMUKHI",
    "gu": "GUJARATI",
    "ta": "TAMIL",
    "te": "TELUGU",
    "kn": "KANNADA",
    "bn": "BENGALI",
    "th": "THAI",
    "ko": "HANGUL",
}
"""Languages that alone write their script, so far as these data go."""

SHARED_SCRIPTS = {
    **dict.fromkeys(("ar", "fa", "ur"), "ARABIC"),
    **dict.fromkeys(("hi", "mr", "ne"), "DEVANAGARI"),
    **dict.fromkeys(("ru", "bg", "uk"), "CYRILLIC"),
}


def in_language(text: str, *, language: str) -> bool | None:
    """The response is in a language, told by its script.

    Where several languages share a script, another script tells that it is not, and nothing tells
    that it is: None.
    """
    if language in SCRIPTS:
        return script_share(text, SCRIPTS[language]) > 0.5
    if script_share(text, SHARED_SCRIPTS.get(language, "LATIN")) <= 0.5:
        return False
    return None


def two_responses(text: str) -> bool:
    """Two different responses, six asterisks between them."""
    parts = [part.strip() for part in text.split("******")]
    inner = [part for at, part in enumerate(parts) if part or 0 < at < len(parts) - 1]
    return len(inner) == 2 and all(inner) and inner[0] != inner[1]


def repeats_prompt(text: str, *, prompt_to_repeat: str) -> bool:
    """The response begins with the request."""
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def placeholders(text: str, *, num_placeholders: int) -> bool:
    """At least so many `[...]`."""
    return len(re.findall(r"\[[^\[\]\n]*\]", text)) >= num_placeholders


def postscript(text: str, *, postscript_marker: str) -> bool:
    """A line of postscript, with or without spaces after the points of P.S. and P.P.S."""
    letters = [re.escape(each) for each in postscript_marker.lower() if each not in ". "]
    if postscript_marker.upper().replace(".", "").replace(" ", "") not in ("PS", "PPS"):
        return postscript_marker.lower() in text.lower()
    return bool(re.search(r"\b" + r"\.\s?".join(letters) + r"\b", text.lower()))


ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def constrained(text: str) -> bool:
    """One of the three answers that the request allows is given."""
    return any(answer in text for answer in ANSWERS)


def is_json(text: str) -> bool:
    """The whole response is JSON, inside a code fence or not."""
    inner = text.strip().removeprefix("```json").removeprefix("```JSON").removeprefix("```Json")
    try:
        json.loads(inner.removeprefix("```").removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    """At least so many sections, each opened by the word and a number."""
    opened = re.findall(rf"\s?{re.escape(section_spliter)}\s?\d+\s?", text)
    return len(opened) >= num_sections


def bullets(text: str, *, num_bullets: int) -> bool:
    """Exactly so many lines that begin with `*` or `-`."""
    return len(_BULLET.findall(text)) == num_bullets


def highlights(text: str, *, num_highlights: int) -> bool:
    """At least so many `*marked*` or `**marked**` pieces."""
    found = [(bold or plain).strip() for bold, plain in _MARKED.findall(text)]
    return sum(map(bool, found)) >= num_highlights


def title(text: str) -> bool:
    """A title in double angular brackets."""
    return any(each.strip("<> ") for each in re.findall(r"<<[^\n<>]+>>", text))


def paragraph_count(text: str, *, num_paragraphs: int) -> bool:
    """Exactly so many paragraphs, three asterisks between them."""
    parts = [part.strip() for part in text.split("***")]
    inner = [part for at, part in enumerate(parts) if part or 0 < at < len(parts) - 1]
    return len(inner) == num_paragraphs and all(inner)


def paragraph_begins(
    text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    """So many paragraphs, blank lines between them, of which one begins with a word."""
    parts = [part.strip() for part in text.split("\n\n") if part.strip()]
    if len(parts) != num_paragraphs or not 1 <= nth_paragraph <= len(parts):
        return False
    word = re.match(r"[\"'“‘(*]*([\w'’-]+)", parts[nth_paragraph - 1])
    return word is not None and word[1].lower() == first_word.lower()


def sentence_count(text: str, *, num_sentences: int, relation: str) -> bool:
    """So many sentences, told by their ends; an abbreviation with a point counts as an end."""
    ends = _SENTENCE.findall(text)
    rest = _SENTENCE.sub("\n", text).rstrip().split("\n")[-1] if ends else text
    return related(
        len(ends) + bool(re.search(r"\w", rest) and not _ended(text)), relation, num_sentences
    )


def _ended(text: str) -> bool:
    return bool(re.search(r"[.!?…。！？।]+[\"'”’)\]]*$", text.rstrip()))


def word_count(text: str, *, num_words: int, relation: str) -> bool:
    """So many words, runs of letters and digits."""
    return related(len(re.findall(r"\w+", text)), relation, num_words)


def ends_with(text: str, *, end_phrase: str) -> bool:
    """The response ends with a phrase, in whatever case, a closing quotation mark apart."""
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def no_comma(text: str) -> bool:
    """Not one comma."""
    return "," not in text


def quoted(text: str) -> bool:
    """Quotation marks around the whole."""
    inner = text.strip()
    return len(inner) > 1 and inner[0] == inner[-1] == '"'


INSTRUCTIONS: dict[str, Check] = {
    "change_case:capital_word_frequency": capital_words,
    "change_case:english_capital": all_capitals,
    "change_case:english_lowercase": all_lowercase,
    "combination:repeat_prompt": repeats_prompt,
    "combination:two_responses": two_responses,
    "detectable_content:number_placeholders": placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:constrained_response": constrained,
    "detectable_format:json_format": is_json,
    "detectable_format:multiple_sections": sections,
    "detectable_format:number_bullet_lists": bullets,
    "detectable_format:number_highlighted_sections": highlights,
    "detectable_format:title": title,
    "keywords:existence": all_keywords,
    "keywords:forbidden_words": no_forbidden_words,
    "keywords:frequency": keyword_count,
    "keywords:letter_frequency": letter_count,
    "language:response_language": in_language,
    "length_constraints:nth_paragraph_first_word": paragraph_begins,
    "length_constraints:number_paragraphs": paragraph_count,
    "length_constraints:number_sentences": sentence_count,
    "length_constraints:number_words": word_count,
    "punctuation:no_comma": no_comma,
    "startend:end_checker": ends_with,
    "startend:quotation": quoted,
}


def follows(kind: str, parameters: Mapping[str, Any], response: str) -> bool | None:
    """Whether a response follows one instruction; None for an unknown type, or when no rule can
    tell. Parameters that upstream leaves empty are left out; an empty response follows nothing."""
    if kind not in INSTRUCTIONS:
        return None
    check: Callable[[str], bool | None] = partial(
        INSTRUCTIONS[kind], **{name: of for name, of in parameters.items() if of is not None}
    )
    return check(response[:LONGEST]) if response.strip() else False


def loosened(response: str) -> Iterator[str]:
    """A response without its first line, its last or both, and each without asterisks: an opening
    phrase or Markdown does not count against the loose score."""
    lines = response.split("\n")
    for part in (lines, lines[1:], lines[:-1], lines[1:-1]):
        text = "\n".join(part).strip()
        yield text
        yield text.replace("*", "")
