-- Times are microseconds since 1970 UTC; 0 means "not set". States are the
-- numbers of model.State.
CREATE TABLE posthouse_source (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT    NOT NULL UNIQUE,
    enabled      INTEGER NOT NULL,
    max_retry    INTEGER NOT NULL,
    backoff      TEXT    NOT NULL, -- waits in microseconds, separated by commas
    orphan_after INTEGER NOT NULL, -- microseconds
    created_at   INTEGER NOT NULL
)
-- next
CREATE TABLE posthouse_instance (
    id           INTEGER PRIMARY KEY,
    name         TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    lease_until  INTEGER NOT NULL,
    dead         INTEGER NOT NULL,
    left_started INTEGER NOT NULL  -- works that it had started when it was declared dead
)
-- next
CREATE TABLE posthouse_lease (
    queue  INTEGER PRIMARY KEY,
    holder INTEGER NOT NULL,       -- 0: nobody
    since  INTEGER NOT NULL
)
-- next
-- What was received. Rows never change. The wide columns come last, so that
-- the others are read without them.
CREATE TABLE posthouse_message (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           BLOB    NOT NULL UNIQUE,
    source       INTEGER NOT NULL,
    received_at  INTEGER NOT NULL,
    content_type TEXT    NOT NULL CHECK (length(content_type) <= 255),
    size         INTEGER NOT NULL,
    check_note   TEXT    NOT NULL,
    headers      BLOB    NOT NULL,
    query        BLOB    NOT NULL,
    body         BLOB    NOT NULL
)
-- next
CREATE INDEX posthouse_message_source ON posthouse_message (source, seq)
-- next
-- What is still to be done. A row lives until its message has succeeded.
CREATE TABLE posthouse_work (
    seq         INTEGER PRIMARY KEY,
    queue       INTEGER NOT NULL,
    state       INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    token       INTEGER NOT NULL,
    owner       INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    retry_count INTEGER NOT NULL,
    lost        INTEGER NOT NULL,
    replay      INTEGER NOT NULL
)
-- next
CREATE INDEX posthouse_work_due ON posthouse_work (queue, state, due_at, seq)
-- next
-- What has succeeded. n is 0 where nothing was executed (an import).
CREATE TABLE posthouse_outcome (
    seq         INTEGER PRIMARY KEY,
    source      INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    n           INTEGER NOT NULL,
    retry_count INTEGER NOT NULL,
    replay      INTEGER NOT NULL,
    http_status INTEGER NOT NULL
)
-- next
CREATE INDEX posthouse_outcome_source ON posthouse_outcome (source, seq)
-- next
-- Attempts that did not succeed.
CREATE TABLE posthouse_attempt (
    seq         INTEGER NOT NULL,
    replay      INTEGER NOT NULL,
    n           INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER NOT NULL,
    outcome     TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    error       TEXT    NOT NULL,
    http_status INTEGER NOT NULL,
    PRIMARY KEY (seq, replay, n)
) WITHOUT ROWID
-- next
-- How many outcomes there are, without counting them.
CREATE TABLE posthouse_counter (
    source    INTEGER NOT NULL,
    shard     INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    PRIMARY KEY (source, shard)
) WITHOUT ROWID
-- next
CREATE VIEW posthouse_message_log AS
SELECT lower(printf('%s-%s-%s-%s-%s', substr(hex(m.id), 1, 8), substr(hex(m.id), 9, 4), substr(hex(m.id), 13, 4),
           substr(hex(m.id), 17, 4), substr(hex(m.id), 21))) AS id,
       s.name AS source,
       CASE WHEN o.seq IS NOT NULL THEN 'success'
            WHEN w.state = 0 THEN 'pending'
            WHEN w.state = 1 THEN 'processing'
            WHEN w.state = 2 THEN 'failed' END AS process_status,
       coalesce(o.retry_count, w.retry_count) AS retry_count,
       CASE WHEN w.state = 0 AND w.retry_count > 0
            THEN printf('%s.%06dZ', strftime('%Y-%m-%dT%H:%M:%S', w.due_at / 1000000, 'unixepoch'), w.due_at % 1000000)
            END AS next_retry_time,
       a.error AS error_message,
       printf('%s.%06dZ', strftime('%Y-%m-%dT%H:%M:%S', m.received_at / 1000000, 'unixepoch'), m.received_at % 1000000)
            AS create_time,
       (SELECT printf('%s.%06dZ', strftime('%Y-%m-%dT%H:%M:%S', at / 1000000, 'unixepoch'), at % 1000000)
        FROM (SELECT coalesce(o.finished_at, max(m.received_at, w.started_at, coalesce(a.ended_at, 0))) AS at))
            AS update_time
FROM posthouse_message m
JOIN posthouse_source s ON s.id = m.source
LEFT JOIN posthouse_work w ON w.seq = m.seq
LEFT JOIN posthouse_outcome o ON o.seq = m.seq
LEFT JOIN posthouse_attempt a ON a.seq = w.seq AND a.replay = w.replay AND a.n = w.retry_count
