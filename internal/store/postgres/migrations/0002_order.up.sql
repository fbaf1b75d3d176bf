-- Where work stands among its source's: slot tells the partition, key_hash the
-- key where keys block (0 where they do not).
ALTER TABLE posthouse_work
    ADD COLUMN slot     integer NOT NULL DEFAULT 0,
    ADD COLUMN key_hash bigint  NOT NULL DEFAULT 0
-- next
DROP INDEX posthouse_work_due
-- next
CREATE INDEX posthouse_work_due ON posthouse_work (queue, state, slot, due_at, (seq + 0))
-- next
CREATE INDEX posthouse_work_key ON posthouse_work (queue, key_hash, seq) WHERE key_hash <> 0 AND state < 2
-- next
-- What holds for a source; ordering is '' where nothing was agreed yet. next_…
-- is what will hold when a source that drains has drained.
ALTER TABLE posthouse_source
    ADD COLUMN ordering        text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN partitions      integer NOT NULL DEFAULT 0,
    ADD COLUMN key_id          integer NOT NULL DEFAULT 0,
    ADD COLUMN generation      bigint  NOT NULL DEFAULT 0,
    ADD COLUMN draining        boolean NOT NULL DEFAULT false,
    ADD COLUMN next_ordering   text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN next_partitions integer NOT NULL DEFAULT 0,
    ADD COLUMN next_key_id     integer NOT NULL DEFAULT 0
-- next
-- What the numbers of keys stand for. Rows never change.
CREATE TABLE posthouse_key (
    queue      integer NOT NULL,
    id         integer NOT NULL, -- from 1
    expression text    COLLATE "C" NOT NULL,
    blocks     boolean NOT NULL,
    PRIMARY KEY (queue, id)
)
-- next
-- What instances want of the queues that they consume.
CREATE TABLE posthouse_want (
    instance   bigint  NOT NULL,
    queue      integer NOT NULL,
    ordering   text    COLLATE "C" NOT NULL,
    partitions integer NOT NULL,
    key_id     integer NOT NULL,
    PRIMARY KEY (instance, queue)
)
-- next
ALTER TABLE posthouse_lease ADD COLUMN part integer NOT NULL DEFAULT 0
-- next
ALTER TABLE posthouse_lease DROP CONSTRAINT posthouse_lease_pkey
-- next
ALTER TABLE posthouse_lease ADD CONSTRAINT posthouse_lease_pkey PRIMARY KEY (queue, part)
-- next
-- Keys of senders, and whose they are.
CREATE TABLE posthouse_dedup (
    source     integer NOT NULL,
    hash       bytea   NOT NULL,
    id         uuid    NOT NULL, -- of the message that was kept
    expires_at bigint  NOT NULL,
    PRIMARY KEY (source, hash)
)
-- next
CREATE INDEX posthouse_dedup_expiry ON posthouse_dedup (expires_at)
-- next
-- What was added to the counters since it was last gathered there. A counter's
-- own row is changed seldom: while somebody holds on to an old snapshot, every
-- change makes a row slower to find.
CREATE TABLE posthouse_counted (
    source    integer NOT NULL,
    succeeded bigint  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)
