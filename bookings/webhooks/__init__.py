"""Webhooks: tells a tenant's own server what became of its bookings, at least once, signed, and nowhere else.

The way of one event, in reading order:

1. `endpoints`: where a tenant wants to be told, and the secrets
2. `deliveries`: events become deliveries; claimed under a lease, answers stored
3. `schedule`: when to try again; pure
4. `signing`: the body, and the headers of a try; pure
5. `egress`: the one way out: the address is checked, and connected to
6. `addresses`: which URLs and addresses are not refused; pure
7. `sending`: the sweep, and the threads that send
"""
