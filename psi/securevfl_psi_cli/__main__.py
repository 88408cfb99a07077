"""``python -m securevfl_psi_cli``."""

from securevfl_psi_cli import main

main()
