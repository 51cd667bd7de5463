"""The form by which staff log in: passwords are guessed no faster than PASSWORDS_PER_MINUTE, by address and by account.

Over that nobody is looked up, so that a right password is refused like a wrong one; who is logged in stays so.
"""

import hashlib
from typing import Any, override

from django.contrib.admin.forms import AdminAuthenticationForm
from django.core.exceptions import ValidationError

from bookings.api import faults, limits

PASSWORDS_PER_MINUTE = 10


class LoginForm(AdminAuthenticationForm):
    @override
    def clean(self) -> dict[str, Any]:
        assert self.request is not None, "the site's login view hands it over"
        address = limits.address_of(self.request)
        account = hashlib.sha256(self.cleaned_data.get("username", "").encode()).hexdigest()
        try:
            with limits.guess(
                f"staff-{address}",
                f"staff-{account}",
                wrong=ValidationError,
                most=PASSWORDS_PER_MINUTE,
            ):
                return super().clean()
        except faults.Problem:
            text = "Too many wrong passwords came from your address or for this account: wait a minute."
            raise ValidationError(text, code="too_many") from None
