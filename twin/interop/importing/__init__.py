"""From files of other tools to ours: a released model's configuration to a catalog model."""

from twin.interop.importing.catalog_part import catalog_part
from twin.interop.importing.hf_config import FAMILIES, Imported, read_hf_config

__all__ = ["FAMILIES", "Imported", "catalog_part", "read_hf_config"]
