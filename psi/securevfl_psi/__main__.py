"""``python -m securevfl_psi``."""

from securevfl_psi.command import main

main()
