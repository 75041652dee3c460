"""Run the command line as ``python -m selfexpress``."""

from selfexpress.cli import main

if __name__ == "__main__":
    main()
