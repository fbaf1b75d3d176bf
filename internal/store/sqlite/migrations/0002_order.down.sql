DROP TABLE posthouse_dedup
-- next
CREATE TABLE posthouse_lease_of_queue (
    queue  INTEGER PRIMARY KEY,
    holder INTEGER NOT NULL,       -- 0: nobody
    since  INTEGER NOT NULL
)
-- next
INSERT INTO posthouse_lease_of_queue (queue, holder, since) SELECT queue, holder, since FROM posthouse_lease WHERE part = 0
-- next
DROP TABLE posthouse_lease
-- next
ALTER TABLE posthouse_lease_of_queue RENAME TO posthouse_lease
-- next
DROP TABLE posthouse_want
-- next
DROP TABLE posthouse_key
-- next
ALTER TABLE posthouse_source DROP COLUMN next_key_id
-- next
ALTER TABLE posthouse_source DROP COLUMN next_partitions
-- next
ALTER TABLE posthouse_source DROP COLUMN next_ordering
-- next
ALTER TABLE posthouse_source DROP COLUMN draining
-- next
ALTER TABLE posthouse_source DROP COLUMN generation
-- next
ALTER TABLE posthouse_source DROP COLUMN key_id
-- next
ALTER TABLE posthouse_source DROP COLUMN partitions
-- next
ALTER TABLE posthouse_source DROP COLUMN ordering
-- next
DROP INDEX posthouse_work_key
-- next
DROP INDEX posthouse_work_due
-- next
ALTER TABLE posthouse_work DROP COLUMN key_hash
-- next
ALTER TABLE posthouse_work DROP COLUMN slot
-- next
CREATE INDEX posthouse_work_due ON posthouse_work (queue, state, due_at, seq)
