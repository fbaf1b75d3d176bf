DROP VIEW posthouse_delivery_task
-- next
DROP VIEW posthouse_message_request
-- next
DROP TABLE posthouse_audit
-- next
DROP TABLE posthouse_user_message
-- next
DROP TABLE posthouse_user
-- next
DROP TABLE posthouse_expiry
-- next
DROP TABLE posthouse_delivery
-- next
DROP TABLE posthouse_secret
-- next
DROP TABLE posthouse_request
-- next
DROP TABLE posthouse_template
-- next
DELETE FROM posthouse_work WHERE seq >= 4611686018427387904
-- next
DELETE FROM posthouse_outcome WHERE seq >= 4611686018427387904
-- next
DELETE FROM posthouse_attempt WHERE seq >= 4611686018427387904
-- next
DELETE FROM posthouse_counter WHERE source IN (SELECT id FROM posthouse_source WHERE tenant <> 0)
-- next
DELETE FROM posthouse_want WHERE queue IN (SELECT id FROM posthouse_source WHERE tenant <> 0)
-- next
DELETE FROM posthouse_key WHERE queue IN (SELECT id FROM posthouse_source WHERE tenant <> 0)
-- next
DELETE FROM posthouse_lease WHERE queue IN (SELECT id FROM posthouse_source WHERE tenant <> 0)
-- next
DELETE FROM posthouse_source WHERE tenant <> 0
-- next
DROP INDEX posthouse_work_ended
-- next
DROP INDEX posthouse_outcome_delivered
-- next
ALTER TABLE posthouse_attempt DROP COLUMN code
-- next
ALTER TABLE posthouse_outcome DROP COLUMN delivered_at
-- next
ALTER TABLE posthouse_outcome DROP COLUMN provider_id
-- next
ALTER TABLE posthouse_source DROP COLUMN hold_until
-- next
ALTER TABLE posthouse_source DROP COLUMN jitter
-- next
ALTER TABLE posthouse_source DROP COLUMN on_uncertain
-- next
ALTER TABLE posthouse_source DROP COLUMN tenant
