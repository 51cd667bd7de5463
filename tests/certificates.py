"""Certificates for names, made by openssl, that nobody vouches for."""

import subprocess
from pathlib import Path

SECONDS = 20


def make(place: Path, name: str) -> Path:
    """A certificate for a name, its key behind it."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    named = ["-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    out = ["-keyout", str(place / "key"), "-out", str(place / "cert")]
    command = ["openssl", "req", "-x509", *curve, *named, *out]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    both = place / "both.pem"
    both.write_text((place / "cert").read_text() + (place / "key").read_text())
    return both
