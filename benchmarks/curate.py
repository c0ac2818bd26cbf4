"""Curation against datatrove, `datasets.map`, rensa and datasketch, in one run on the same rows.

`python benchmarks/curate.py [--rows 20000] [--growth 10000,100000] [--workers 2]` prints rows per
second of CPU time per operator, MinHash documents per second with recall and precision against
exact Jaccard on a labelled set, and seconds and memory of the standard chain as rows grow.
`--plot docs/curate_growth.svg` draws that growth, from what it and earlier calls wrote beside the
drawing, `docs/curate_growth.json`.
The others are no dependencies of posttrain: `pip install datatrove spacy datasketch` brings them
into an environment of your own, and what is absent is left out. CPU time of one thread is
counted, so a busy machine changes little; text-dedup's MinHash is datasketch's arithmetic.
"""

import argparse
import gc
import itertools
import json
import multiprocessing
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from growth import Measured, plot

from posttrain.artifacts import write_json
from posttrain.curate.batch import Batch
from posttrain.curate.filters import FILTERS
from posttrain.curate.likeness import bands, shingles, sketched, words_of
from posttrain.curate.operators import Sketch, remembers
from posttrain.curate.stage import CurateConfig, run
from posttrain.journal import Journal
from posttrain.records import RawRow

OUTPUTS = ("prompts", "demonstrations", "preferences", "evaluation")
THRESHOLD = 0.6
ROUNDS = 3


def texts(count: int, seed: int = 0, words: int = 60) -> list[str]:
    """Texts of words as frequent as in language (Zipf), some with a line again and again."""
    rng = np.random.default_rng(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    vocabulary = ["".join(rng.choice(syllables, 1 + i % 4)) for i in range(20_000)]
    drawn = np.minimum(rng.zipf(1.2, size=(count, words)) - 1, len(vocabulary) - 1)
    made = [" ".join(vocabulary[i] for i in row) + "." for row in drawn]
    return [f"{t}\n" * 4 if i % 50 == 0 else t for i, t in enumerate(made)]


def write_rows(path: Path, count: int) -> None:
    """Raw rows of four kinds, verifiable sums among them, a twentieth of them copies."""
    rng = random.Random(0)
    names = ("Ann", "Ben", "Eva", "Tom", "Mia", "Leo")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        previous = ""
        for number in range(count):
            a, b, who = rng.randrange(10**6), rng.randrange(10**6), rng.choice(names)
            prompt = (
                f"{who} has {a} pens in a box, and some friends come by. {who} buys {b} more"
                f" of them at the market. How many has {who} now?"
            )
            right, wrong = (f"{a} + {b} = {n}\n#### {n}" for n in (a + b, a + b + 1))
            row = {"id": f"{number:016}", "source": "made", "task": "arithmetic", "prompt": prompt}
            row |= {"split": "eval" if number % 500 == 0 else "train", "answer": str(a + b)}
            if number % 500:
                pair = {"chosen": right, "rejected": wrong}
                row |= ({"response": right}, pair, {})[number % 3]
            line = json.dumps(row) + "\n"
            file.write(previous if previous and number % 20 == 0 else line)
            previous = line


def speed(work: Callable[[], object], rows: int) -> float:
    """Rows per second of CPU time, the best of a few rounds after one to warm up."""
    work()
    seconds = []
    for _ in range(ROUNDS):
        gc.collect()
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return rows / min(seconds)


def columns(rows: Sequence[RawRow], name: str, **options: Any) -> Callable[[], object]:
    """Our operator on a fresh batch: nothing derived is left from the round before."""
    table, operator = Batch.of(rows).table, FILTERS[name](**options)

    def work() -> object:
        batch = Batch(table)
        if not remembers(operator):
            return operator(batch)
        return list(operator.decide([Sketch.of(len(batch), operator.sketch(batch))]))

    return work


def trove(given: Sequence[str]) -> dict[str, Callable[[], object]]:
    """The same filters as datatrove has them, on its own documents."""
    try:
        from datatrove.data import Document
        from datatrove.pipeline.filters import (
            GopherRepetitionFilter,
            LambdaFilter,
            RegexFilter,
        )
    except ImportError:
        return {}
    from posttrain.curate.filters.text import PHRASES

    documents = [Document(text=text, id=str(i)) for i, text in enumerate(given)]
    filters = {
        "length": LambdaFilter(lambda document: len(document.text) <= 4096),
        "schema": LambdaFilter(lambda document: bool(document.text.strip())),
        "boilerplate": RegexFilter("(?i)" + "|".join(f"(?:{each})" for each in PHRASES)),
        "repetition": GopherRepetitionFilter(),
    }
    return {name: _through(each, documents) for name, each in filters.items()}


def _through(step: Any, documents: Sequence[Any]) -> Callable[[], object]:
    return lambda: sum(1 for _ in step.run(iter(documents)))


def mapped(given: Sequence[str]) -> dict[str, Callable[[], object]]:
    """The same filters as functions of a row for `datasets.filter`, which is a map."""
    import datasets

    datasets.disable_progress_bars()
    datasets.disable_caching()
    rows = datasets.Dataset.from_dict({"text": list(given)})
    tests: dict[str, Callable[[dict[str, str]], bool]] = {
        "length": lambda row: len(row["text"]) <= 4096,
        "schema": lambda row: bool(row["text"].strip()),
    }
    return {name: _filtered(rows, test) for name, test in tests.items()}


def _filtered(rows: Any, test: Callable[[dict[str, str]], bool]) -> Callable[[], object]:
    return lambda: len(rows.filter(test, keep_in_memory=True))


def cheap(count: int) -> None:
    """Rows per second of each filter that looks at one row, and of the others."""
    given = texts(count)
    pair = {"chosen": "It is 17.", "rejected": "It is 16."}
    rows = [RawRow.of(source="b", task="text", prompt=text, **pair) for text in given]
    names = ("schema", "length", "identical_pair", "boilerplate", "language", "repetition")
    memory = ("exact_duplicate", "repeated_id", "contradiction", "near_duplicate")
    others = {"datatrove": trove(given), "datasets": mapped(given)}
    print(f"filters: rows per second of CPU time, {count} rows of 60 words")
    for name in (*names, *memory, "semantic_duplicate"):
        found = {"ours": speed(columns(rows, name), count)}
        for label, family in others.items():
            if name in family:
                try:
                    found[label] = speed(family[name], count)
                except (ImportError, LookupError, OSError) as error:
                    print(f"  {label} cannot run {name}: {str(error).splitlines()[0]}")
        shown = "  ".join(f"{label} {each:,.0f}" for label, each in found.items())
        ratio = found["ours"] / found.get("datatrove", float("nan"))
        print(f"  {name:20} {shown}" + (f"  ratio {ratio:.1f}" if ratio > 0 else ""))


def sketches(given: Sequence[str]) -> dict[str, Callable[[], object]]:
    """MinHash signatures of 128 places of word pairs and words, from text to an array."""
    found: dict[str, Callable[[], object]] = {"ours": lambda: sketched(words_of(given))}

    def parts(text: str) -> list[str]:
        words = text.lower().split()
        return [*words, *map(" ".join, itertools.pairwise(words))]

    try:
        import rensa

        def with_rensa() -> object:
            matrix = rensa.RMinHash.digest_matrix_from_token_sets([*map(parts, given)], 128, 42)
            return np.array(matrix.to_rows(), dtype=np.uint32)

        found["rensa"] = with_rensa
    except ImportError:
        pass
    try:
        from datasketch import MinHash

        def with_datasketch() -> object:
            sets = [[part.encode() for part in parts(text)] for text in given]
            return np.stack([m.hashvalues for m in MinHash.generator(sets, num_perm=128)])

        found["datasketch"] = with_datasketch
    except ImportError:
        pass
    try:
        from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature

        config = MinhashConfig(n_grams=2, num_buckets=32, hashes_per_bucket=4)
        step = MinhashDedupSignature(output_folder="memory://sketches", config=config)
        found["datatrove"] = lambda: [step.get_signature(step.get_shingles(t)) for t in given]
    except ImportError:
        pass
    return found


def minhash(count: int) -> None:
    """Documents per second from text to signature, and of the signature alone."""
    given = texts(count, seed=1)
    print(f"MinHash: documents per second of CPU time, {count} documents of 60 words")
    for label, work in sketches(given).items():
        try:
            print(f"  {label:12} {speed(work, count):,.0f}")
        except (ImportError, LookupError, OSError) as error:
            print(f"  {label} cannot run: {str(error).splitlines()[0]}")
    words = words_of(given)
    print(f"  ours, from words {speed(lambda: sketched(words), count):,.0f}")
    try:
        import rensa

        made, ends = shingles(words)
        flat = rensa.RMinHash.digest_matrix_from_flat_token_hashes
        alone = speed(lambda: flat(made, ends, 128, 42), count)
        print(f"  rensa, from the same shingles, left in its matrix {alone:,.0f}")
        arrays = speed(lambda: np.array(flat(made, ends, 128, 42).to_rows(), np.uint32), count)
        print(f"  rensa, from the same shingles, read into an array {arrays:,.0f}")
    except ImportError:
        pass


def labelled(groups: int) -> Iterator[tuple[str, str]]:
    """Pairs of texts with a share of words replaced, from a tenth to most."""
    rng = random.Random(2)
    base = texts(2 * groups, seed=3)
    for number in range(groups):
        words, spare = base[2 * number].split(), base[2 * number + 1].split()
        share = rng.uniform(0, 0.5)
        yield (
            " ".join(words),
            " ".join(rng.choice(spare) if rng.random() < share else word for word in words),
        )


def recall(groups: int) -> None:
    """Recall and precision of near duplicates against exact Jaccard of the same shingles."""
    pairs = list(labelled(groups))
    sides = [words_of([pair[side] for pair in pairs]) for side in (0, 1)]
    sets = [_sets(side) for side in sides]
    exact = np.array([len(a & b) / len(a | b) for a, b in zip(*sets, strict=True)])
    one, two = map(sketched, sides)
    met = (bands(one) == bands(two)).any(axis=1)
    found = met & ((one == two).mean(axis=1) >= THRESHOLD)
    true = exact >= THRESHOLD
    far = np.abs(exact - THRESHOLD) > 0.05
    for label, own in (("all pairs", np.ones(groups, bool)), ("more than 0.05 off", far)):
        hit = (found & true & own).sum()
        print(
            f"  {label}: recall {hit / (true & own).sum():.3f}"
            f" precision {hit / max(1, (found & own).sum()):.3f} of {own.sum()} pairs"
        )


def _sets(words: Any) -> list[set[int]]:
    made, ends = shingles(words)
    return [set(made[s:e].tolist()) for s, e in itertools.pairwise(ends)]


def chain(rows: str, workers: int, answer: Any) -> None:
    """The standard chain in a process of its own."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        outputs = {port: Path(name) / port for port in OUTPUTS}
        config = CurateConfig(workers=workers)
        report = run(config, rows=Path(rows), **outputs, journal=Journal(Path(name) / "journal"))
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(each.ru_utime + each.ru_stime for each in usage)
    peak = usage[0].ru_maxrss + (workers if workers > 1 else 0) * usage[1].ru_maxrss
    answer.put((report.kept, time.perf_counter() - began, cpu, peak / 1024))


def growth(counts: Sequence[int], workers: int) -> list[Measured]:
    """Seconds and memory of the standard chain as rows grow."""
    measured: list[Measured] = []
    print(f"the standard chain, {workers} processes")
    context = multiprocessing.get_context("spawn")
    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            write_rows(Path(name) / "rows.jsonl", count)
            answer: Any = context.Queue()
            child = context.Process(target=chain, args=(name, workers, answer))
            child.start()
            kept, seconds, cpu, peak = answer.get()
            child.join()
        print(
            f"  {count:>9,} rows: {kept:,} kept, {seconds:.1f} s, {cpu:.1f} s of CPU"
            f" ({1e6 * cpu / count:.0f} us a row), at most {peak:,.0f} MiB in all processes"
        )
        costs = {"seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "mib": round(peak)}
        measured.append({"rows": count, **costs})
    return measured


def draw(target: Path, measured: Sequence[Measured]) -> None:
    """Keep what was measured beside the drawing, with what was before, and draw it all."""
    kept = target.with_suffix(".json")
    before: list[Measured] = json.loads(kept.read_text()) if kept.is_file() else []
    known = {each["rows"]: each for each in [*before, *measured]}
    told = [known[rows] for rows in sorted(known)]
    write_json(kept, told)
    plot(target, told)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--growth", default="10000,100000")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plot", type=Path, help="draw the growth into this SVG file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.rows:
        cheap(given.rows)
        minhash(given.rows)
        recall(2000)
    measured = growth([int(each) for each in given.growth.split(",") if each], given.workers)
    if given.plot:
        draw(given.plot, measured)


if __name__ == "__main__":
    main()
