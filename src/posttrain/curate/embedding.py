"""Texts as unit vectors: by their letters, or by an encoder model."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posttrain.curate.likeness import mixed
from posttrain.errors import ConfigError, Fault

Vectors = NDArray[np.float16]

CHAR_NGRAMS = "char_ngrams"
_WIDTH = 512
_LENGTHS = (3, 4, 5)
_BATCH = 32


def embedded(texts: Sequence[str], encoder: str, where: str) -> Vectors:
    """[N, D] unit vectors. `encoder` is `char_ngrams`, or a local folder of a sentence encoder."""
    if encoder == CHAR_NGRAMS:
        return char_ngrams(texts)
    return encoded(texts, encoder, where)


def char_ngrams(texts: Sequence[str], width: int = _WIDTH) -> Vectors:
    """The square roots of the counts of all runs of 3 to 5 bytes, hashed with a sign into `width`
    places (arXiv:0902.2206). It knows spelling and not meaning."""
    parts = [
        f" {' '.join(text.lower().split())} ".encode("utf-8", "surrogatepass") for text in texts
    ]
    letters = np.frombuffer(b"".join(parts), dtype=np.uint8).astype(np.uint64)
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    found = np.zeros(len(parts) * width)
    for n in _LENGTHS:
        starts = np.arange(max(0, len(letters) - n + 1))
        starts = starts[owner[starts] == owner[starts + n - 1]]
        grams = np.full(len(starts), n, dtype=np.uint64)
        for place in range(n):
            grams = (grams << np.uint64(8)) | letters[starts + place]
        hashes = mixed(grams)
        sign = np.where(hashes >> np.uint64(63), 1.0, -1.0)
        places = owner[starts] * width + (hashes % np.uint64(width)).astype(np.int64)
        found += np.bincount(places, weights=sign, minlength=len(found))
    damped = np.sign(found) * np.sqrt(np.abs(found))
    return _unit(damped.reshape(len(parts), width))


def _unit(vectors: NDArray[Any]) -> Vectors:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float16)


def encoded(texts: Sequence[str], folder: str, where: str) -> Vectors:
    """The mean of the last hidden states over a text's tokens (arXiv:1908.10084); on a GPU where
    there is one. Texts are cut to what the model takes."""
    import torch

    tokenizer, model = _encoder(folder, where)
    longest = min(int(tokenizer.model_max_length), int(model.config.max_position_embeddings))
    found = []
    for start in range(0, len(texts), _BATCH):
        given = tokenizer(
            list(texts[start : start + _BATCH]),
            padding=True,
            truncation=True,
            max_length=longest,
            return_tensors="pt",
        ).to(model.device)
        with torch.inference_mode():
            hidden_BTH = model(**given).last_hidden_state.float()
        mask_BT1 = given["attention_mask"][:, :, None]
        found.append(((hidden_BTH * mask_BT1).sum(1) / mask_BT1.sum(1)).cpu().numpy())
    width = int(model.config.hidden_size)
    return _unit(np.concatenate(found) if found else np.zeros((0, width)))


@functools.cache
def _encoder(folder: str, where: str) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModel, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModel.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        mend = f"give `{CHAR_NGRAMS}` or the folder of an encoder model"
        raise ConfigError(
            Fault(f"no encoder `{folder}`", where, str(error).split("\n")[0], mend)
        ) from None
    return tokenizer, model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
