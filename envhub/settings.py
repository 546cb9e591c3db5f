"""Settings: strict, frozen, each owned by the room it configures."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Base of every config section: a misspelt key is an error, not a default; values never change after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
