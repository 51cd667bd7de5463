"""Routes under /v1/. Ids are taken as text, so that a malformed one gets the same 404 as an unknown one."""

from django.urls import path

from bookings.api import (
    booking_views,
    bulk,
    catalogue_views,
    report_views,
    schema_views,
    webhook_views,
)

urlpatterns = [
    path("schema", schema_views.schema, name="schema"),
    path("docs", schema_views.docs, name="docs"),
    path("bookings", booking_views.Bookings.as_view(), name="bookings"),
    path("bookings/bulk", bulk.Bulk.as_view(), name="bookings-bulk"),
    path("bookings/<str:booking_id>", booking_views.OneBooking.as_view(), name="booking"),
    path("bookings/<str:booking_id>/cancel", booking_views.Cancel.as_view(), name="cancel"),
    path("bookings/<str:booking_id>/journal", booking_views.Journal.as_view(), name="journal"),
    path(
        "bookings/<str:booking_id>/operations",
        booking_views.Operations.as_view(),
        name="operations",
    ),
    path("report", report_views.Report.as_view(), name="report"),
    path("hotels", catalogue_views.Hotels.as_view(), name="hotels"),
    path(
        "hotels/<str:code>/availability",
        catalogue_views.Availability.as_view(),
        name="availability",
    ),
    path("quotes", catalogue_views.Quotes.as_view(), name="quotes"),
    path("webhooks", webhook_views.Webhooks.as_view(), name="webhooks"),
    path("webhooks/<str:endpoint_id>", webhook_views.OneWebhook.as_view(), name="webhook"),
    path(
        "webhooks/<str:endpoint_id>/secret", webhook_views.Secret.as_view(), name="webhook-secret"
    ),
    path(
        "webhooks/<str:endpoint_id>/deliveries",
        webhook_views.Deliveries.as_view(),
        name="webhook-deliveries",
    ),
]
