-- A step that alters a table asks first whether that was done: DDL commits by
-- itself, and only MariaDB knows IF NOT EXISTS for columns.
--
-- Where work stands among its source's: slot tells the partition, key_hash the
-- key where keys block (0 where they do not). A claim or a settlement changes the
-- state; an index with it would be written for all work, whether it has keys or
-- not.
SET @posthouse = if((SELECT count(*) FROM information_schema.columns
        WHERE table_schema = database() AND table_name = 'posthouse_work' AND column_name = 'slot') = 0,
    'ALTER TABLE posthouse_work
        ADD COLUMN slot INT NOT NULL DEFAULT 0, ADD COLUMN key_hash BIGINT NOT NULL DEFAULT 0,
        DROP KEY posthouse_work_due, ADD KEY posthouse_work_due (queue, state, slot, due_at, seq),
        ADD KEY posthouse_work_key (queue, key_hash, seq)', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
-- What holds for a source; ordering is '' where nothing was agreed yet. next_…
-- is what will hold when a source that drains has drained.
SET @posthouse = if((SELECT count(*) FROM information_schema.columns
        WHERE table_schema = database() AND table_name = 'posthouse_source' AND column_name = 'ordering') = 0,
    'ALTER TABLE posthouse_source
        ADD COLUMN ordering VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '''',
        ADD COLUMN partitions INT NOT NULL DEFAULT 0, ADD COLUMN key_id INT NOT NULL DEFAULT 0,
        ADD COLUMN generation BIGINT NOT NULL DEFAULT 0, ADD COLUMN draining BOOLEAN NOT NULL DEFAULT 0,
        ADD COLUMN next_ordering VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '''',
        ADD COLUMN next_partitions INT NOT NULL DEFAULT 0, ADD COLUMN next_key_id INT NOT NULL DEFAULT 0', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
SET @posthouse = if((SELECT count(*) FROM information_schema.columns
        WHERE table_schema = database() AND table_name = 'posthouse_lease' AND column_name = 'part') = 0,
    'ALTER TABLE posthouse_lease
        ADD COLUMN part INT NOT NULL DEFAULT 0 AFTER queue, DROP PRIMARY KEY, ADD PRIMARY KEY (queue, part)', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
DEALLOCATE PREPARE posthouse
-- next
-- What the numbers of keys stand for. Rows never change. Expressions are
-- compared byte for byte.
CREATE TABLE IF NOT EXISTS posthouse_key (
    queue      INT        NOT NULL,
    id         INT        NOT NULL, -- from 1
    expression MEDIUMBLOB NOT NULL,
    blocks     BOOLEAN    NOT NULL,
    PRIMARY KEY (queue, id)
) ENGINE = InnoDB
-- next
-- What instances want of the queues that they consume.
CREATE TABLE IF NOT EXISTS posthouse_want (
    instance   BIGINT NOT NULL,
    queue      INT    NOT NULL,
    ordering   VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    partitions INT    NOT NULL,
    key_id     INT    NOT NULL,
    PRIMARY KEY (instance, queue)
) ENGINE = InnoDB
-- next
-- Keys of senders, and whose they are.
CREATE TABLE IF NOT EXISTS posthouse_dedup (
    source     INT        NOT NULL,
    hash       BINARY(32) NOT NULL,
    id         BINARY(16) NOT NULL, -- of the message that was kept
    expires_at BIGINT     NOT NULL,
    PRIMARY KEY (source, hash),
    KEY posthouse_dedup_expiry (expires_at)
) ENGINE = InnoDB
