"""`python -m reference.rl`."""

import sys

if __name__ == "__main__":
    # Within: workers import this module anew, and need nothing of it.
    from reference.rl.command import main

    sys.exit(main())
