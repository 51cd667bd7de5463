"""What drf-spectacular is told of the schema as a whole. Each operation is described in `bookings.api.contract`."""

from typing import Any

from django.utils.csp import CSP

DESCRIPTION = """\
Bookings of hotel stays that end settled or visible. A booking is accepted with 202 and worked on after that: read it until
its `state` is none of `in_progress` and `compensating`. While `outcome_known` is false, nobody knows yet, and it has not
failed.

Every error is a problem document (RFC 9457). Wherever GET is described, HEAD is answered too, without a body. A parameter
or a member that is not described is an error.
"""
# For every page, the admin's too: files of ours alone, nothing written into a page, nobody's frame.
POLICY = {
    "default-src": [CSP.NONE],
    **{
        of: [CSP.SELF]
        for of in ("script-src", "style-src", "connect-src", "font-src", "form-action")
    },
    "img-src": [CSP.SELF, "data:"],
    "base-uri": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
}
PLAIN = "rest_framework.permissions.AllowAny"
SPECTACULAR: dict[str, Any] = {
    "TITLE": "Amends",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "DESCRIPTION": DESCRIPTION,
    "SCHEMA_PATH_PREFIX": "/v1/",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": [PLAIN],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "bookings.api.openapi.share",
    ],
    "ENUM_NAME_OVERRIDES": {
        "ClientState": "bookings.api.shapes.STATES",
        "Class": "bookings.api.shapes.CLASSES",
        "Direction": "bookings.api.shapes.DIRECTIONS",
        "DeliveryStatus": "bookings.api.answers.STATUSES",
    },
}
