"""`python -m drivetrain`: the same as the `drivetrain` command."""

from .console import main

if __name__ == "__main__":
    main()
