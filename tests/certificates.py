"""Certificates for names, made by openssl, that nobody vouches for but who is told to."""

import subprocess
from pathlib import Path

SECONDS = 20


def make(place: Path, name: str, days: int = 2) -> Path:
    """A certificate for a name (`cert`), and one file with its key behind it. It ended before it began for -1 days."""
    asked, cert, key = place / "asked", place / "cert", place / "key"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    named = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    _openssl("req", *curve, *named, "-keyout", str(key), "-out", str(asked))
    signed = ["-in", str(asked), "-signkey", str(key), "-days", str(days), "-out", str(cert)]
    _openssl("x509", "-req", *signed, "-copy_extensions", "copyall")
    both = place / "both.pem"
    both.write_text(cert.read_text() + key.read_text())
    return both


def _openssl(*command: str) -> None:
    subprocess.run(["openssl", *command], check=True, capture_output=True, timeout=SECONDS)
