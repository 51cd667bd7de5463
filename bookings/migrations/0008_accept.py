"""What a stay costs, and the booking of it, as functions: see ledger.0009_submit for why, and for how they change."""

from django.db import migrations

# Exactly one row, whatever is missing; its columns are the members of prices.Offer. `is_on_offer`: Offer.check has nothing
# to say.
OFFER = """
CREATE FUNCTION bookings_offer(
    hotel text, room_type text, arrival date, nights integer, expected_minor bigint, expected_currency text,
    horizon_days integer,
    OUT subject uuid, OUT hotel_id bigint, OUT room_type_id bigint, OUT currency text, OUT today date,
    OUT nights_priced bigint, OUT amount_minor bigint, OUT is_on_offer boolean
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT uuidv7(), h.id, t.id, h.currency, (ledger_now() AT TIME ZONE h.timezone)::date,
           priced.nights, priced.amount_minor
    INTO subject, hotel_id, room_type_id, currency, today, nights_priced, amount_minor
    FROM (SELECT) AS always
    LEFT JOIN bookings_hotel h ON h.code = hotel
    LEFT JOIN bookings_roomtype t ON t.hotel_id = h.id AND t.code = room_type
    CROSS JOIN LATERAL (
        SELECT count(*) AS nights, coalesce(sum(m.rate_minor), 0)::bigint AS amount_minor
        FROM generate_series(0, nights - 1) AS day
        JOIN bookings_roommonth m ON m.room_type_id = t.id
         AND m.month = date_trunc('month', (arrival + day)::timestamp)::date
    ) AS priced;
    is_on_offer := coalesce(nights_priced = nights
        AND arrival - today BETWEEN 0 AND horizon_days
        AND amount_minor = coalesce(expected_minor, amount_minor)
        AND currency = coalesce(expected_currency, currency), false);
END $$
"""
# Prices the stay and writes the booking, its job and the use of its key, where it is on offer; or, to be taken back, the
# job and the use of its key `anyway`. `job_id` is NULL where the key is known, or nothing was written.
ACCEPT = """
CREATE FUNCTION bookings_accept(
    tenant uuid, key text, fingerprint bytea, request jsonb, saga text, version integer, input jsonb, lane text,
    deadline double precision,
    hotel text, room_type text, arrival date, nights integer, expected_minor bigint, expected_currency text,
    horizon_days integer, guest text, client_reference text, anyway boolean,
    OUT job_id uuid, OUT created_at timestamptz,
    OUT subject uuid, OUT hotel_id bigint, OUT room_type_id bigint, OUT currency text, OUT today date,
    OUT nights_priced bigint, OUT amount_minor bigint, OUT is_on_offer boolean
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT * INTO subject, hotel_id, room_type_id, currency, today, nights_priced, amount_minor, is_on_offer
    FROM bookings_offer(hotel, room_type, arrival, nights, expected_minor, expected_currency, horizon_days);
    IF NOT (is_on_offer OR anyway) THEN
        RETURN;
    END IF;
    job_id := ledger_submit(tenant, key, fingerprint, request, saga, version,
        input || jsonb_build_object('amount_minor', amount_minor, 'currency', currency, 'subject', subject),
        lane, deadline);
    IF job_id IS NOT NULL AND is_on_offer THEN
        INSERT INTO bookings_booking AS b (id, job_id, tenant_id, hotel_id, room_type_id, arrival, nights, guest,
            client_reference, amount_minor, currency)
        VALUES (subject, job_id, tenant, hotel_id, room_type_id, arrival, nights, guest,
            client_reference, amount_minor, currency)
        RETURNING b.created_at INTO created_at;
    END IF;
END $$
"""


class Migration(migrations.Migration):
    dependencies = [("bookings", "0007_tenancy"), ("ledger", "0009_submit")]

    operations = [
        migrations.RunSQL(OFFER, "DROP FUNCTION bookings_offer"),
        migrations.RunSQL(ACCEPT, "DROP FUNCTION bookings_accept"),
    ]
