DROP TABLE IF EXISTS posthouse_dedup
-- next
DROP TABLE IF EXISTS posthouse_want
-- next
DROP TABLE IF EXISTS posthouse_key
-- next
SET @there = (SELECT count(*) FROM information_schema.columns
    WHERE table_schema = database() AND table_name = 'posthouse_lease' AND column_name = 'part')
-- next
SET @posthouse = if(@there, 'DELETE FROM posthouse_lease WHERE part > 0', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
SET @posthouse = if(@there,
    'ALTER TABLE posthouse_lease DROP PRIMARY KEY, DROP COLUMN part, ADD PRIMARY KEY (queue)', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
SET @posthouse = if((SELECT count(*) FROM information_schema.columns
        WHERE table_schema = database() AND table_name = 'posthouse_source' AND column_name = 'ordering') = 1,
    'ALTER TABLE posthouse_source DROP COLUMN ordering, DROP COLUMN partitions, DROP COLUMN key_id, DROP COLUMN generation,
        DROP COLUMN draining, DROP COLUMN next_ordering, DROP COLUMN next_partitions, DROP COLUMN next_key_id', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
SET @posthouse = if((SELECT count(*) FROM information_schema.columns
        WHERE table_schema = database() AND table_name = 'posthouse_work' AND column_name = 'slot') = 1,
    'ALTER TABLE posthouse_work
        DROP KEY posthouse_work_key, DROP KEY posthouse_work_due, ADD KEY posthouse_work_due (queue, state, due_at, seq),
        DROP COLUMN slot, DROP COLUMN key_hash', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
DEALLOCATE PREPARE posthouse
