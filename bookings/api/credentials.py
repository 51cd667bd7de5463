"""Whether a text holds what lets somebody in, or what a card is checked by. We need neither in a text: whoever sends one is
told, and it is neither stored nor logged.

Looked for is what says so itself: a check code by its name (CVV, CVC, CVN, CID), secrets by their issuer's prefix, and
keys of our own. Pure, and linear in the text.
"""

import re

_CODE = re.compile(r"\b(?:cv[vc]2?|cvn2?|cid)\b[\s:=#.-]{0,3}[0-9]{3,4}\b", re.IGNORECASE)
# As Stripe marks its keys and tokens (docs.stripe.com/keys), and Standard Webhooks its secrets.
_MARKED = re.compile(r"\b(?:(?:sk|rk|pk)_(?:live|test)_|(?:tok|pm|src|whsec)_)[A-Za-z0-9+/=]{14,}")
_OWN_KEY = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{8}\.[A-Za-z0-9]{32}(?![A-Za-z0-9])")


def is_in(text: str) -> bool:
    return any(kind.search(text) for kind in (_CODE, _MARKED, _OWN_KEY))
