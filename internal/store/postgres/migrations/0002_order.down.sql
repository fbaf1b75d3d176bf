-- What is not gathered yet.
INSERT INTO posthouse_counter (source, shard, succeeded)
SELECT source, 0, sum(succeeded) FROM posthouse_counted GROUP BY source
ON CONFLICT (source, shard) DO UPDATE SET succeeded = posthouse_counter.succeeded + excluded.succeeded
-- next
DROP TABLE posthouse_counted
-- next
DROP TABLE posthouse_dedup
-- next
DELETE FROM posthouse_lease WHERE part <> 0
-- next
ALTER TABLE posthouse_lease DROP CONSTRAINT posthouse_lease_pkey
-- next
ALTER TABLE posthouse_lease DROP COLUMN part
-- next
ALTER TABLE posthouse_lease ADD CONSTRAINT posthouse_lease_pkey PRIMARY KEY (queue)
-- next
DROP TABLE posthouse_want
-- next
DROP TABLE posthouse_key
-- next
ALTER TABLE posthouse_source
    DROP COLUMN ordering,
    DROP COLUMN partitions,
    DROP COLUMN key_id,
    DROP COLUMN generation,
    DROP COLUMN draining,
    DROP COLUMN next_ordering,
    DROP COLUMN next_partitions,
    DROP COLUMN next_key_id
-- next
DROP INDEX posthouse_work_key
-- next
DROP INDEX posthouse_work_due
-- next
ALTER TABLE posthouse_work DROP COLUMN key_hash, DROP COLUMN slot
-- next
CREATE INDEX posthouse_work_due ON posthouse_work (queue, state, due_at, (seq + 0))
