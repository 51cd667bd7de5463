"""Routes under /v1/. Ids are taken as text, so that a malformed one gets the same 404 as an unknown one."""

from django.urls import path

from bookings.api import views

urlpatterns = [
    path("bookings", views.Bookings.as_view(), name="bookings"),
    path("bookings/<str:booking_id>", views.OneBooking.as_view(), name="booking"),
]
