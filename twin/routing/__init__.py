"""How tokens spread over experts, as what the fullest rank gets: the slowest expert rank decides
when an expert layer ends, and no layer is silently balanced.

Expert e of E lies on rank e // (E / ranks), as in Megatron-LM and DeepSeek's code. A member of this
package says how popular experts are, and what that makes of ranks.

Chance adds to that in `random` alone (`twin.routing.chance`). 16 ranks x 4,096 tokens x 8 experts
are 32,768 rows per rank; if every copy chose for itself, that number would differ by 175 (0.5 %)
from micro-batch to micro-batch, and the fullest of 16 ranks have 0.9 % more than the mean (of 64:
1.3 %), half of what `zipf` with s = 0.05 does. It matters where tokens are few (a hundred per
expert: the fullest expert has 30 % more), or alike (all of one topic).

Which rank is the fullest differs from layer to layer. For time that changes nothing, since a layer
ends with its fullest rank, whichever that is: the rank that is simulated is the fullest in each.
What a rank keeps is the sum over its layers: `over_layers`.

A new routing is one new module in this package, with one final subclass of `Routing`.
"""

from twin.routing.balanced import Balanced
from twin.routing.base import Routing, load, rank_loads

__all__ = ["Balanced", "Routing", "load", "rank_loads"]
