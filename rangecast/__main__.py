"""`python -m rangecast` is the command `rangecast`."""

from rangecast.cli.main import main

if __name__ == "__main__":
    main()
