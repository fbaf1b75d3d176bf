-- Where work stands among its source's: slot tells the partition, key_hash the
-- key where keys block (0 where they do not).
ALTER TABLE posthouse_work ADD COLUMN slot INTEGER NOT NULL DEFAULT 0
-- next
ALTER TABLE posthouse_work ADD COLUMN key_hash INTEGER NOT NULL DEFAULT 0
-- next
DROP INDEX posthouse_work_due
-- next
CREATE INDEX posthouse_work_due ON posthouse_work (queue, state, slot, due_at, seq)
-- next
CREATE INDEX posthouse_work_key ON posthouse_work (queue, key_hash, seq) WHERE key_hash <> 0 AND state < 2
-- next
-- What holds for a source; ordering is '' where nothing was agreed yet. next_…
-- is what will hold when a source that drains has drained.
ALTER TABLE posthouse_source ADD COLUMN ordering TEXT NOT NULL DEFAULT ''
-- next
ALTER TABLE posthouse_source ADD COLUMN partitions INTEGER NOT NULL DEFAULT 0
-- next
ALTER TABLE posthouse_source ADD COLUMN key_id INTEGER NOT NULL DEFAULT 0
-- next
ALTER TABLE posthouse_source ADD COLUMN generation INTEGER NOT NULL DEFAULT 0
-- next
ALTER TABLE posthouse_source ADD COLUMN draining INTEGER NOT NULL DEFAULT 0
-- next
ALTER TABLE posthouse_source ADD COLUMN next_ordering TEXT NOT NULL DEFAULT ''
-- next
ALTER TABLE posthouse_source ADD COLUMN next_partitions INTEGER NOT NULL DEFAULT 0
-- next
ALTER TABLE posthouse_source ADD COLUMN next_key_id INTEGER NOT NULL DEFAULT 0
-- next
-- What the numbers of keys stand for. Rows never change.
CREATE TABLE posthouse_key (
    queue      INTEGER NOT NULL,
    id         INTEGER NOT NULL, -- from 1
    expression TEXT    NOT NULL,
    blocks     INTEGER NOT NULL,
    PRIMARY KEY (queue, id)
) WITHOUT ROWID
-- next
-- What instances want of the queues that they consume.
CREATE TABLE posthouse_want (
    instance   INTEGER NOT NULL,
    queue      INTEGER NOT NULL,
    ordering   TEXT    NOT NULL,
    partitions INTEGER NOT NULL,
    key_id     INTEGER NOT NULL,
    PRIMARY KEY (instance, queue)
) WITHOUT ROWID
-- next
CREATE TABLE posthouse_lease_of_partition (
    queue  INTEGER NOT NULL,
    part   INTEGER NOT NULL,
    holder INTEGER NOT NULL,       -- 0: nobody
    since  INTEGER NOT NULL,
    PRIMARY KEY (queue, part)
) WITHOUT ROWID
-- next
INSERT INTO posthouse_lease_of_partition (queue, part, holder, since) SELECT queue, 0, holder, since FROM posthouse_lease
-- next
DROP TABLE posthouse_lease
-- next
ALTER TABLE posthouse_lease_of_partition RENAME TO posthouse_lease
-- next
-- Keys of senders, and whose they are.
CREATE TABLE posthouse_dedup (
    source     INTEGER NOT NULL,
    hash       BLOB    NOT NULL,
    id         BLOB    NOT NULL, -- of the message that was kept
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (source, hash)
) WITHOUT ROWID
-- next
CREATE INDEX posthouse_dedup_expiry ON posthouse_dedup (expires_at)
