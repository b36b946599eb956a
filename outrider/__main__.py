"""`python -m outrider`: the `outrider` command."""

from cli.main import main

if __name__ == "__main__":
    main(prog_name="outrider")
