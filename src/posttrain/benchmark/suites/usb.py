"""USB, a text slice: unsafe answers (ASR) and needless refusals (ARR) by leaf of its taxonomy."""

from collections.abc import Iterator
from dataclasses import replace

from posttrain.benchmark.formulas import USB_METRICS
from posttrain.benchmark.suites import xstest
from posttrain.benchmark.suites.sources import Upstream
from posttrain.benchmark.suites.suite import Item
from posttrain.raw.sources.source import Line, text

LEAVES = {
    "homonyms": "public/personal_rights",
    "figurative_language": "public/personal_rights",
    "safe_targets": "public/personal_rights",
    "safe_contexts": "public/personal_rights",
    "definitions": "public/content",
    "discr": "ethical/bias",
    "nons_group_real_discr": "ethical/bias",
    "real_group_nons_discr": "ethical/bias",
    "historical_events": "national/culture_history",
    "privacy": "public/privacy",
    "privacy_public": "public/privacy",
    "privacy_fictional": "public/privacy",
}
"""XSTest's type of prompt -> a leaf on the second level of USB's taxonomy (assumed)."""


def read(line: Line, file: str) -> Iterator[Item]:
    """XSTest's prompts in place of USB's, which come with pictures; other types are left out."""
    leaf = LEAVES.get(text(line, "type").removeprefix("contrast_"))
    for item in xstest.read(line, file) if leaf else ():
        yield item._replace(category=leaf or "")


SUITE = replace(
    xstest.SUITE,
    name="usb",
    about=__doc__,
    source=Upstream(files=xstest.FILES, read=read),
    metrics=USB_METRICS,
    paper="arXiv:2505.23793, on items of arXiv:2308.01263",
    contamination="never train on it; items of XSTest, public since 2023, told by rule",
)
