"""`python -m doi_proxy` is `doi-proxy`."""

import sys

from doi_proxy.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
