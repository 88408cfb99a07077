"""`python -m securevfl`: the command line, where the script `securevfl` is not on the path."""

from securevfl.cli import main

if __name__ == "__main__":
    main()
