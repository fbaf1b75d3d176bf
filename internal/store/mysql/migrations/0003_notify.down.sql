DROP VIEW IF EXISTS posthouse_delivery_task
-- next
DROP VIEW IF EXISTS posthouse_message_request
-- next
DROP TABLE IF EXISTS posthouse_audit
-- next
DROP TABLE IF EXISTS posthouse_user_message
-- next
DROP TABLE IF EXISTS posthouse_user
-- next
DROP TABLE IF EXISTS posthouse_expiry
-- next
DROP TABLE IF EXISTS posthouse_delivery
-- next
DROP TABLE IF EXISTS posthouse_secret
-- next
DROP TABLE IF EXISTS posthouse_request
-- next
DROP TABLE IF EXISTS posthouse_template
-- next
-- What channels have of the tables that were there before.
DELETE FROM posthouse_work WHERE seq >= 4611686018427387904
-- next
DELETE FROM posthouse_outcome WHERE seq >= 4611686018427387904
-- next
DELETE FROM posthouse_attempt WHERE seq >= 4611686018427387904
-- next
DELETE FROM posthouse_counter WHERE source IN (SELECT id FROM posthouse_source WHERE name LIKE 'channel/%')
-- next
DELETE FROM posthouse_lease WHERE queue IN (SELECT id FROM posthouse_source WHERE name LIKE 'channel/%')
-- next
DELETE FROM posthouse_want WHERE queue IN (SELECT id FROM posthouse_source WHERE name LIKE 'channel/%')
-- next
DELETE FROM posthouse_key WHERE queue IN (SELECT id FROM posthouse_source WHERE name LIKE 'channel/%')
-- next
DELETE FROM posthouse_source WHERE name LIKE 'channel/%'
-- next
SET @posthouse = if((SELECT count(*) FROM information_schema.columns
        WHERE table_schema = database() AND table_name = 'posthouse_attempt' AND column_name = 'code') = 1,
    'ALTER TABLE posthouse_attempt DROP COLUMN code', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
SET @posthouse = if((SELECT count(*) FROM information_schema.columns
        WHERE table_schema = database() AND table_name = 'posthouse_outcome' AND column_name = 'provider_id') = 1,
    'ALTER TABLE posthouse_outcome
        DROP KEY posthouse_outcome_source, ADD KEY posthouse_outcome_source (source, seq),
        DROP COLUMN delivered, DROP COLUMN delivered_at, DROP COLUMN provider_id', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
SET @posthouse = if((SELECT count(*) FROM information_schema.columns
        WHERE table_schema = database() AND table_name = 'posthouse_source' AND column_name = 'tenant') = 1,
    'ALTER TABLE posthouse_source DROP COLUMN tenant, DROP COLUMN on_uncertain, DROP COLUMN jitter, DROP COLUMN hold_until', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
DEALLOCATE PREPARE posthouse
