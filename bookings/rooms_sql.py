"""The statements of `rooms`, which alone runs them. Set-based: one statement changes all nights of a stay.

Every change of a reservation names its holder and version, every comparison with the clock uses `ledger_now()`; it
is volatile, so it is asked once, in a subquery, where an index is to be used.
"""

# Locks nights in the order of the arrays.
LOCK_NIGHTS = """
    SELECT n.id
    FROM unnest(%s::text[], %s::text[], %s::date[])
         WITH ORDINALITY AS key (hotel, room_type, night, place)
    JOIN bookings_hotel h ON h.code = key.hotel
    JOIN bookings_roomtype t ON t.hotel_id = h.id AND t.code = key.room_type
    JOIN bookings_roomnight n ON n.room_type_id = t.id AND n.night = key.night
    ORDER BY key.place
    FOR UPDATE OF n
"""

# Takes all nights or none and says what it found; a holder that is known takes nothing more.
HOLD = """
    WITH stay AS (
        SELECT n.id, n.room_type_id, n.taken < n.capacity AS is_free
        FROM bookings_hotel h
        JOIN bookings_roomtype t ON t.hotel_id = h.id AND t.code = %(room_type)s
        JOIN bookings_roomnight n ON n.room_type_id = t.id
         AND n.night >= %(arrival)s::date AND n.night < %(arrival)s::date + %(nights)s::int
        WHERE h.code = %(hotel)s
    ), verdict AS (
        SELECT count(*) AS found, count(*) FILTER (WHERE is_free) AS free,
               min(room_type_id) AS room_type_id
        FROM stay
    ), known AS (
        SELECT id FROM bookings_reservation WHERE holder = %(holder)s
    ), granted AS (
        SELECT room_type_id FROM verdict
        WHERE free = %(nights)s::int AND NOT EXISTS (SELECT FROM known)
    ), taken AS (
        UPDATE bookings_roomnight SET taken = taken + 1
        WHERE id IN (SELECT id FROM stay) AND EXISTS (SELECT FROM granted)
    ), made AS (
        INSERT INTO bookings_reservation (holder, room_type_id, arrival, nights, state, expires_at)
        SELECT %(holder)s, room_type_id, %(arrival)s::date, %(nights)s::int, 'held',
               ledger_now() + make_interval(secs => %(seconds)s)
        FROM granted
        RETURNING id
    )
    SELECT found, free, coalesce((SELECT id FROM known), (SELECT id FROM made)) FROM verdict
"""

# Who keeps the nights of a stay that have no room left, those first whose hold may end; and whether waiting may help:
# this kind of room is waited for, and each such night has at least one hold.
KEPT_BY = """
    WITH full_night AS (
        SELECT n.room_type_id, n.night, t.when_held
        FROM bookings_hotel h
        JOIN bookings_roomtype t ON t.hotel_id = h.id AND t.code = %(room_type)s
        JOIN bookings_roomnight n ON n.room_type_id = t.id
         AND n.night >= %(arrival)s::date AND n.night < %(arrival)s::date + %(nights)s::int
        WHERE h.code = %(hotel)s AND n.taken >= n.capacity
    ), kept AS (
        SELECT f.night, f.when_held, r.holder, r.state
        FROM full_night f LEFT JOIN bookings_reservation r ON r.room_type_id = f.room_type_id
         AND r.state IN ('held', 'secured')
         AND r.arrival > f.night - %(longest)s::int AND r.arrival <= f.night
         AND r.arrival + r.nights > f.night
    )
    SELECT ARRAY(SELECT holder FROM kept WHERE holder IS NOT NULL
                 GROUP BY holder ORDER BY min(state), holder LIMIT %(most)s),
           coalesce((SELECT bool_and(may_help) FROM (
               SELECT bool_or(coalesce(state = 'held' AND when_held = 'wait', false)) AS may_help
               FROM kept GROUP BY night) AS per_night), false)
"""

FIND = """
    SELECT id, holder, state, version, nights FROM bookings_reservation
    WHERE holder = %s FOR UPDATE
"""

# Ends a hold and gives its nights back; counts the nights.
RELEASE = """
    WITH released AS (
        UPDATE bookings_reservation
        SET state = 'released', expires_at = NULL, version = version + 1
        WHERE holder = %(holder)s AND version = %(version)s AND state = 'held'
        RETURNING room_type_id, arrival, nights
    )
    UPDATE bookings_roomnight n SET taken = n.taken - 1
    FROM released r
    WHERE n.room_type_id = r.room_type_id
      AND n.night >= r.arrival AND n.night < r.arrival + r.nights
"""

SECURE = """
    UPDATE bookings_reservation
    SET state = 'secured', expires_at = NULL, version = version + 1
    WHERE holder = %(holder)s AND version = %(version)s AND state = 'held'
"""

BACK_TO_HELD = """
    UPDATE bookings_reservation
    SET state = 'held', expires_at = ledger_now() + make_interval(secs => %(seconds)s),
        version = version + 1
    WHERE holder = %(holder)s AND version = %(version)s AND state = 'secured'
"""

# Secures an expired hold if all of its nights are free; counts the nights taken.
TAKE_AGAIN = """
    WITH lost AS (
        SELECT id, room_type_id, arrival, nights FROM bookings_reservation
        WHERE holder = %(holder)s AND version = %(version)s AND state = 'expired'
    ), stay AS (
        SELECT n.id, n.taken < n.capacity AS is_free
        FROM lost l JOIN bookings_roomnight n ON n.room_type_id = l.room_type_id
         AND n.night >= l.arrival AND n.night < l.arrival + l.nights
    ), secured AS (
        UPDATE bookings_reservation r SET state = 'secured', version = r.version + 1
        FROM lost l
        WHERE r.id = l.id AND r.version = %(version)s
          AND l.nights = (SELECT count(*) FROM stay WHERE is_free)
        RETURNING r.id
    )
    UPDATE bookings_roomnight SET taken = taken + 1
    WHERE id IN (SELECT id FROM stay) AND EXISTS (SELECT FROM secured)
"""

DUE = """
    SELECT expires_at, id FROM bookings_reservation
    WHERE state = 'held' AND expires_at <= (SELECT ledger_now())
      AND (expires_at, id) > (%s::timestamptz, %s::bigint)
    ORDER BY expires_at, id
    LIMIT %s
"""

NIGHTS_OF = """
    SELECT DISTINCT h.code, t.code, to_char(r.arrival + day, 'YYYY-MM-DD')
    FROM bookings_reservation r
    JOIN bookings_roomtype t ON t.id = r.room_type_id
    JOIN bookings_hotel h ON h.id = t.hotel_id
    CROSS JOIN LATERAL generate_series(0, r.nights - 1) AS day
    WHERE r.id = ANY (%s)
"""

# Gives up those of these reservations that are still due and that nobody else has locked.
EXPIRE = """
    WITH due AS (
        SELECT id FROM bookings_reservation
        WHERE id = ANY (%s) AND state = 'held' AND expires_at <= (SELECT ledger_now())
        ORDER BY id
        FOR UPDATE SKIP LOCKED
    ), expired AS (
        UPDATE bookings_reservation r
        SET state = 'expired', expires_at = NULL, version = r.version + 1
        FROM due
        WHERE r.id = due.id
        RETURNING r.room_type_id, r.arrival, r.nights
    ), freed AS (
        SELECT e.room_type_id, e.arrival + day AS night, count(*) AS rooms
        FROM expired e CROSS JOIN LATERAL generate_series(0, e.nights - 1) AS day
        GROUP BY 1, 2
    ), given_back AS (
        UPDATE bookings_roomnight n SET taken = n.taken - freed.rooms
        FROM freed
        WHERE n.room_type_id = freed.room_type_id AND n.night = freed.night
    )
    SELECT count(*) FROM expired
"""
