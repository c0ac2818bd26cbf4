"""-> policy: bring in the base policy.

The embedded model, a Hugging Face folder, or a model of the hub becomes an artifact after a
check that it can serve as one: safetensors only, a tokenizer, a chat template that round-trips.
Left out on purpose: remote code and pickled weights (they run what they hold), conversion.
"""

import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from posttrain.artifacts import ABOUT, POLICY, Out, content_files, digest_of, file_digest
from posttrain.config import Field, Report, StageConfig
from posttrain.errors import ConfigError, DataError, Fault, TransientError
from posttrain.exposure import Exposure
from posttrain.journal import Journal

EMBEDDED = Path(__file__).parent / "tiny"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
WANTED = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
PICKLED = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_LARGEST_HEADER = 100 * 2**20


class BaseConfig(StageConfig):
    """Which model the run starts from."""

    model: str = Field(
        "embedded", description="`embedded`, the path of a Hugging Face folder, or a hub id"
    )
    revision: str | None = Field(None, description="commit or tag of a hub model; pin it")


class BaseReport(Report):
    """What was brought in; `digest` covers every file of the policy."""

    parameters: int
    vocabulary: int
    architecture: str
    files: int
    megabytes: float
    digest: str


def run(
    config: BaseConfig, *, policy: Annotated[Path, Out(POLICY)], journal: Journal
) -> BaseReport:
    """Copy the files of the model that a policy needs, and no others."""
    source = locate(config)
    if faults := list(folder_faults(source)):
        raise DataError(*faults)
    if source != EMBEDDED:
        check_chat(source)
    policy.mkdir(parents=True)
    for path in wanted_files(source):
        shutil.copyfile(path, policy / path.name)
        (policy / path.name).chmod(0o644)
    settings = json.loads((policy / "config.json").read_bytes())
    files = content_files(policy)
    return BaseReport(
        parameters=sum(tensor_sizes(path) for path in policy.glob("*.safetensors")),
        vocabulary=int(settings["vocab_size"]),
        architecture=str((settings.get("architectures") or ["unknown"])[0]),
        files=len(files),
        megabytes=sum(path.stat().st_size for path in policy.iterdir()) / 1e6,
        digest=digest_of(files),
    )


def still_holds(outputs: Mapping[str, Path], config: BaseConfig) -> str | None:
    """A stored copy of a local folder no longer holds when that folder has changed."""
    if HUB_ID.fullmatch(config.model) and not Path(config.model).is_dir():
        return None
    now = {path.name: file_digest(path) for path in wanted_files(locate(config))}
    same = now == content_files(outputs["policy"])
    return None if same else "the model's folder has changed"


def exposure(config: BaseConfig, report: Mapping[str, Any]) -> Exposure | None:
    """The embedded model saw problems of the train split alone; of others nobody can tell."""
    return Exposure() if config.model == "embedded" else None


def locate(config: BaseConfig) -> Path:
    """The folder that holds the model; a hub model is downloaded into the hub's cache."""
    if config.model == "embedded":
        return EMBEDDED
    if Path(config.model).is_dir():
        return Path(config.model)
    if HUB_ID.fullmatch(config.model) and not config.model.startswith("."):
        return download(config.model, config.revision)
    mend = "give `embedded`, the path of a folder, or a hub id such as `Qwen/Qwen3-0.6B-Base`"
    why = "no folder of that name, and not a hub id"
    raise ConfigError(Fault(f"no such model `{config.model}`", "base.model", why, mend))


def download(name: str, revision: str | None) -> Path:
    """Fetch what a policy needs of a hub model."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(WANTED)))
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        mend = "check `model` and `revision`; a gated model needs a login"
        fault = Fault("no such hub model", f"base.model: {name}", first_line(error), mend)
        raise ConfigError(fault) from None
    except OSError as error:
        mend = "run again, or give the path of a folder that holds the model"
        fault = Fault("the hub is out of reach", f"base.model: {name}", first_line(error), mend)
        raise TransientError(fault) from None


def first_line(error: Exception) -> str:
    """A message without the hints that libraries add below it."""
    return str(error).strip().split("\n")[0]


def wanted_files(folder: Path) -> list[Path]:
    """The files of a model folder that a policy needs, by name."""
    found = {path for pattern in WANTED for path in folder.glob(pattern)}
    return sorted(path for path in found if path.name not in ABOUT)


def folder_faults(folder: Path) -> Iterator[Fault]:
    """Everything that keeps a folder from being a policy, the chat template aside."""
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        pickled = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLED)
        why = f"it holds {', '.join(pickled)}, which run code when read" if pickled else "none"
        mend = "save the model with `save_pretrained`, which writes safetensors"
        yield Fault("no safetensors", str(folder), why, mend)
    for path in weights:
        try:
            tensor_sizes(path)
        except (ValueError, KeyError, TypeError) as error:
            mend = "fetch the file again; a Git LFS pointer needs `git lfs pull`"
            yield Fault("not a safetensors file", str(path), str(error), mend)
    yield from config_faults(folder / "config.json")
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model")):
        why = "neither tokenizer.json nor tokenizer.model is there"
        yield Fault("no tokenizer", str(folder), why, "save the tokenizer beside the model")


def config_faults(path: Path) -> Iterator[Fault]:
    """What is wrong with config.json."""
    try:
        settings: dict[str, Any] = json.loads(path.read_bytes())
        known = "vocab_size" in settings
    except (OSError, ValueError, TypeError) as error:
        yield Fault("no readable config.json", str(path), first_line(error), "save the model again")
        return
    if not known:
        yield Fault("config without `vocab_size`", str(path), "not a language model", "check it")
    if "auto_map" in settings:
        why = "`auto_map` asks for code from the folder to be run"
        yield Fault("remote code", str(path), why, "use an architecture that transformers has")


def tensor_sizes(path: Path) -> int:
    """Elements in a safetensors file, from its header alone. Raises ValueError when damaged."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _LARGEST_HEADER:
            raise ValueError(f"its header would be {length} bytes long")
        header = json.loads(file.read(length))
    tensors = [entry for name, entry in header.items() if name != "__metadata__"]
    end = max((entry["data_offsets"][1] for entry in tensors), default=0)
    if path.stat().st_size != 8 + length + end:
        raise ValueError(f"{path.stat().st_size} bytes, {8 + length + end} by its header")
    return sum(math.prod(entry["shape"]) for entry in tensors)


def check_chat(folder: Path) -> None:
    """Raise DataError unless a chat survives the tokenizer and a prompt is a prefix of it."""
    from transformers import AutoTokenizer

    from posttrain.policies import chat_texts, check_tokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    check_tokenizer(tokenizer, folder)
    prompt, response = "Ann has 12 pens.\nHow many?", "12 + 3 = 15\n#### 15"
    opening = chat_texts(tokenizer, [prompt])[0]
    decoded = tokenizer.decode(tokenizer(opening, add_special_tokens=False)["input_ids"])
    faults = []
    if decoded != opening:
        why = f"{opening!r} comes back as {decoded!r}"
        faults.append(Fault("tokenizer does not round-trip", str(folder), why, "mend it"))
    turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
    whole = tokenizer.apply_chat_template(turns, tokenize=False)
    if not (whole.startswith(opening) and response in whole):
        why = "the prompt with its generation prompt is not a prefix of the whole chat"
        mend = "use a template that writes history as it writes prompts"
        faults.append(Fault("chat template without prefix property", str(folder), why, mend))
    if faults:
        raise DataError(*faults)
