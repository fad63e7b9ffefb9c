"""`python -m flightlog`."""

from flightlog.cli import main

if __name__ == "__main__":
    main()
