"""`python -m bookings.sandbox`: the stand-in provider as a process of its own."""

import argparse

from bookings.sandbox import server


def main() -> None:
    parser = argparse.ArgumentParser(prog="bookings.sandbox", description=__doc__)
    add_arguments(parser)
    given = parser.parse_args()
    server.run(host=given.host, port=given.port, store=given.store, seed=given.seed)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8090, help="0: let the system choose")
    parser.add_argument("--store", required=True, help="SQLite file of the books")
    parser.add_argument("--seed", type=int, default=0, help="of everything left to chance")


if __name__ == "__main__":
    main()
