"""`python -m vrt_host` is `vrt`."""

import sys

from vrt_host.cli import main

sys.exit(main())
