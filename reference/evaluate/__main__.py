"""`python -m reference.evaluate CONFIG`: see `reference.evaluate.command`."""

import sys

from reference.evaluate.command import main

sys.exit(main())
