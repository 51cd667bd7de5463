"""Every route: the API, the admin, liveness, metrics."""

from django.contrib import admin
from django.urls import include, path

from config import views

urlpatterns = [
    path("v1/", include("bookings.api.urls")),
    path("livez", views.live),
    path("metrics", views.metrics),
    path("admin/", admin.site.urls),
]
handler400 = "bookings.api.problems.handler400"
handler403 = "bookings.api.problems.handler403"
handler404 = "bookings.api.problems.handler404"
handler500 = "bookings.api.problems.handler500"
