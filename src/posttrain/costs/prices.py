"""The price table: what an hour of an accelerator and of a core costs. Nothing is priced unless
its user says so; without a table an account holds seconds and tokens."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from posttrain.errors import ConfigError, Fault
from posttrain.plugins import option_faults

VARIABLE = "POSTTRAIN_PRICES"
TABLE = "prices.yaml"
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Prices(BaseModel):
    """Prices in one currency. `accelerator_hour` maps a kind, such as H200, to an hour of one;
    a kind counts where its name is part of the device's. `server_1k_tokens` is for tokens that
    an engine on a server draws."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    currency: str = ""
    accelerator_hour: Mapping[str, Price] = {}
    core_hour: Price = 0.0
    server_1k_tokens: Price = 0.0

    def accelerator_price(self, kind: str) -> float | None:
        """The price of an hour of one accelerator; None where the table does not name its kind."""
        named = [k for k in self.accelerator_hour if k.casefold() in kind.casefold()]
        return self.accelerator_hour[max(named, key=len)] if named else None


def read_prices(given: Path | None = None) -> Prices | None:
    """The table in the file, else what POSTTRAIN_PRICES names or holds (a launcher hands the table
    itself to tasks that may see no file of its), else `prices.yaml` in the store; None without any.

    Raises ConfigError for a file that is absent or no price table.
    """
    named = os.environ.get(VARIABLE, "")
    if given is None and named.lstrip().startswith("{"):
        return parsed(named, VARIABLE)
    shared = Path(os.environ.get("POSTTRAIN_STORE", ""), TABLE)
    path = given or (Path(named) if named else shared)
    if path is shared and not ("POSTTRAIN_STORE" in os.environ and shared.is_file()):
        return None
    try:
        return parsed(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        mend = f"give the path of a YAML file by --prices or {VARIABLE}"
        raise ConfigError(Fault("no price table", str(path), str(error), mend)) from None


def parsed(text: str, where: str) -> Prices:
    """A table from YAML."""
    try:
        return Prices.model_validate(yaml.safe_load(text) or {})
    except yaml.YAMLError as error:
        cause = str(error).split("\n")[0]
        raise ConfigError(Fault("prices are not YAML", where, cause, "mend it")) from None
    except ValidationError as error:
        raise ConfigError(*option_faults(error, where, Prices)) from None
