"""`python -m distgnn`."""

from distgnn.cli import main

raise SystemExit(main())
