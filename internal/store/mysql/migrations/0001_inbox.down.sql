DROP VIEW IF EXISTS posthouse_message_log
-- next
DROP TABLE IF EXISTS posthouse_counter
-- next
DROP TABLE IF EXISTS posthouse_attempt
-- next
DROP TABLE IF EXISTS posthouse_outcome
-- next
DROP TABLE IF EXISTS posthouse_work
-- next
DROP TABLE IF EXISTS posthouse_message
-- next
DROP TABLE IF EXISTS posthouse_lease
-- next
DROP TABLE IF EXISTS posthouse_instance
-- next
DROP TABLE IF EXISTS posthouse_source
