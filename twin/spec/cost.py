"""What the run costs: GPUs rented or bought, and the site with its energy.

Bought GPUs cost their share of what was paid for them: node, network and facility over the years of
their use, and what it takes to run them, spread over the hours in which some job pays (the total
cost of ownership of Barroso, Hoelzle and Ranganathan 2018, The Datacenter as a Computer, chapter 6,
without interest). It breaks where prices of new GPUs fall faster than the years of use say.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, Strict, ValidationInfo, field_validator, model_validator
from pydantic.config import JsonDict

from twin.errors import FieldError
from twin.spec.base import (
    Dollars,
    DollarsPerKwh,
    Flag,
    GramsPerKwh,
    Price,
    Share,
    Spec,
)

Years = Annotated[float, Strict(), Field(ge=0.1, le=100)]
"""Years of 365.25 days."""
Surcharge = Annotated[float, Strict(), Field(ge=0, le=100)]
"""What is paid on top, as a multiple of a price."""


class PurchaseSpec(Spec):
    """A cluster that is bought: prices, and the years and hours over which they are spread."""

    name: str = "purchase"
    """what reports call the price"""
    node: Price | None = None
    """price of one node with its GPUs"""
    gpu: Price | None = None
    """price of one GPU with its share of the node; instead of `node`"""
    network: Surcharge = 0.0
    """switches, cables and transceivers, as a part of the nodes' price"""
    facility: Surcharge = 0.0
    """building, power and cooling, as a part of the nodes' price"""
    years: Years
    """years over which nodes and network are paid off"""
    facility_years: Years | None = None
    """years over which the facility is; null: as `years`"""
    utilisation: Share
    """share of those years in which some job pays"""
    operations: Surcharge = 0.0
    """staff, repairs and insurance of a year, without energy, as a part of the nodes' price"""

    @model_validator(mode="after")
    def _one_price(self) -> PurchaseSpec:
        if (self.node is None) == (self.gpu is None):
            both = self.node is not None
            message = (
                "a purchase has the price of a node " + ("and" if both else "or") + " of a GPU"
            )
            fix = "keep `node` or `gpu`, not both" if both else "add `node: 310kUSD`, or `gpu`"
            raise FieldError("TW017", message, fix)
        return self


class SiteSpec(Spec):
    """Where the cluster stands: what it takes beside its computers, and its electricity."""

    name: str = "site"
    """what reports call the site"""
    pue: Annotated[float, Strict(), Field(ge=1, le=10)]
    """power usage effectiveness: what the site draws over what its computers do"""
    electricity: DollarsPerKwh | None = None
    """price of energy; null: unknown"""
    carbon: GramsPerKwh | None = None
    """CO2e of the grid's energy, location-based; null: unknown"""


def _says_something(schema: JsonDict) -> None:
    """What the validators below refuse, for editors."""
    schema["minProperties"] = 1
    bought: JsonDict = {"gpu_hour": {"type": "string"}, "purchase": {"type": ["string", "object"]}}
    schema["not"] = {"properties": bought, "required": ["gpu_hour", "purchase"]}


class CostSpec(Spec, json_schema_extra=_says_something):
    """Prices in US dollars; no conversion between currencies happens. Either `gpu_hour` or
    `purchase` decides what the run costs; `site` tells its energy."""

    gpu_hour: Dollars | None = None
    """price of one rented GPU for one hour"""
    purchase: PurchaseSpec | None = None
    """prices of GPUs that are bought, instead of `gpu_hour`"""
    site: SiteSpec | None = None
    """where the cluster stands; null: its energy is unknown"""
    pays_energy: Flag | None = None
    """energy is paid beside; null: with `purchase`, and not with `gpu_hour`"""

    @field_validator("purchase")
    @classmethod
    def _rented_or_bought(cls, purchase: Any, info: ValidationInfo) -> Any:
        if purchase is not None and info.data.get("gpu_hour") is not None:
            message = "GPUs are rented or bought: both `gpu_hour` and `purchase` have a price"
            raise FieldError("TW017", message, "write `gpu_hour: null`, or leave `purchase` out")
        return purchase

    @model_validator(mode="after")
    def _no_empty_section(self) -> CostSpec:
        if not self.priced and self.site is None:
            message = "a cost has a price of rent or of purchase, or a site"
            raise FieldError("TW017", message, "write `gpu_hour: 2.0USD`, with your price")
        return self

    @property
    def priced(self) -> bool:
        """Whether GPUs have a price at all."""
        return self.gpu_hour is not None or self.purchase is not None

    @property
    def with_energy(self) -> bool:
        """Whether energy is paid beside the GPUs."""
        return self.purchase is not None if self.pays_energy is None else self.pays_energy
