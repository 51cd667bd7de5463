"""The secrets of an endpoint go when it ends, whoever ends it; those of endpoints that have ended already go now."""

from django.db import migrations

# By trigger, so that no way of ending can forget it, and after the endpoint's row is locked, so that it sees what a rotation
# has just made; as its owner, so that no role needs the right. Every name is written out: it has no search_path of its own.
FORGET = """
CREATE FUNCTION bookings_forget_secrets() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    DELETE FROM public.bookings_webhooksecret WHERE endpoint_id OPERATOR(pg_catalog.=) NEW.id;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION bookings_forget_secrets() FROM PUBLIC;
CREATE TRIGGER bookings_webhookendpoint_forget AFTER UPDATE OF disabled_at ON bookings_webhookendpoint FOR EACH ROW
    WHEN (NEW.disabled_at IS NOT NULL) EXECUTE FUNCTION bookings_forget_secrets();
DELETE FROM bookings_webhooksecret s USING bookings_webhookendpoint p WHERE p.id = s.endpoint_id AND p.disabled_at IS NOT NULL
"""
REMEMBER = """
DROP TRIGGER bookings_webhookendpoint_forget ON bookings_webhookendpoint;
DROP FUNCTION bookings_forget_secrets()
"""


class Migration(migrations.Migration):
    dependencies = [("bookings", "0008_accept")]

    operations = [migrations.RunSQL(FORGET, REMEMBER)]
