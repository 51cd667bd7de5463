"""Every route: the API, the admin, liveness, readiness, metrics."""

from django.contrib import admin
from django.urls import include, path

from config import bench_views, views

urlpatterns = [
    path("v1/", include("bookings.api.urls")),
    path("livez", views.live),
    path("readyz", views.ready),
    path("metrics", views.metrics),
    path("admin/", admin.site.urls),
    *bench_views.urls(),
]
handler400 = "bookings.api.problems.handler400"
handler403 = "bookings.api.problems.handler403"
handler404 = "bookings.api.problems.handler404"
handler500 = "bookings.api.problems.handler500"
