DROP VIEW posthouse_message_log
-- next
DROP TABLE posthouse_counter
-- next
DROP TABLE posthouse_attempt
-- next
DROP TABLE posthouse_outcome
-- next
DROP TABLE posthouse_work
-- next
DROP TABLE posthouse_message
-- next
DROP TABLE posthouse_lease
-- next
DROP TABLE posthouse_instance
-- next
DROP TABLE posthouse_source
