"""`python -m outrider`, and the `outrider` command."""

import sys


def main() -> None:
    """Run the command; Ctrl-C ends it the same way while what it takes is still being imported."""
    try:
        from cli.main import main as command  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.exit(130)
    command(prog_name="outrider")


if __name__ == "__main__":
    main()
