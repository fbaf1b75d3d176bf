-- Times are microseconds since 1970 UTC; 0 means "not set". States are the
-- numbers of model.State. DDL commits by itself: every statement can be
-- repeated.
CREATE TABLE IF NOT EXISTS posthouse_source (
    id           INT            NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name         VARBINARY(255) NOT NULL,
    enabled      BOOLEAN        NOT NULL,
    max_retry    INT            NOT NULL,
    backoff      TEXT CHARACTER SET ascii NOT NULL, -- waits in microseconds, separated by commas
    orphan_after BIGINT         NOT NULL, -- microseconds
    created_at   BIGINT         NOT NULL,
    UNIQUE KEY posthouse_source_name (name)
) ENGINE = InnoDB
-- next
CREATE TABLE IF NOT EXISTS posthouse_instance (
    id           BIGINT  NOT NULL PRIMARY KEY,
    name         VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    started_at   BIGINT  NOT NULL,
    lease_until  BIGINT  NOT NULL,
    dead         BOOLEAN NOT NULL,
    left_started INT     NOT NULL -- works that it had started when it was declared dead
) ENGINE = InnoDB
-- next
CREATE TABLE IF NOT EXISTS posthouse_lease (
    queue  INT    NOT NULL PRIMARY KEY,
    holder BIGINT NOT NULL, -- 0: nobody
    since  BIGINT NOT NULL
) ENGINE = InnoDB
-- next
-- What was received. Rows never change. put_by names the call that inserted
-- the row.
CREATE TABLE IF NOT EXISTS posthouse_message (
    seq          BIGINT     NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id           BINARY(16) NOT NULL,
    source       INT        NOT NULL,
    received_at  BIGINT     NOT NULL,
    put_by       BIGINT     NOT NULL,
    size         INT        NOT NULL,
    content_type VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    check_note   MEDIUMTEXT   CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    headers      LONGBLOB   NOT NULL,
    query        LONGBLOB   NOT NULL,
    body         LONGBLOB   NOT NULL,
    UNIQUE KEY posthouse_message_id (id),
    KEY posthouse_message_source (source, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
-- next
-- What is still to be done. A row lives until its message has succeeded.
CREATE TABLE IF NOT EXISTS posthouse_work (
    seq         BIGINT  NOT NULL PRIMARY KEY,
    queue       INT     NOT NULL,
    state       TINYINT NOT NULL,
    due_at      BIGINT  NOT NULL,
    token       BIGINT  NOT NULL,
    owner       BIGINT  NOT NULL,
    started_at  BIGINT  NOT NULL,
    retry_count INT     NOT NULL,
    lost        INT     NOT NULL,
    replay      INT     NOT NULL,
    KEY posthouse_work_due (queue, state, due_at, seq)
) ENGINE = InnoDB
-- next
-- What has succeeded. n is 0 where nothing was executed (an import).
CREATE TABLE IF NOT EXISTS posthouse_outcome (
    seq         BIGINT NOT NULL PRIMARY KEY,
    source      INT    NOT NULL,
    started_at  BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    n           INT    NOT NULL,
    retry_count INT    NOT NULL,
    replay      INT    NOT NULL,
    http_status INT    NOT NULL,
    KEY posthouse_outcome_source (source, seq)
) ENGINE = InnoDB
-- next
-- Attempts that did not succeed.
CREATE TABLE IF NOT EXISTS posthouse_attempt (
    seq         BIGINT NOT NULL,
    replay      INT    NOT NULL,
    n           INT    NOT NULL,
    started_at  BIGINT NOT NULL,
    ended_at    BIGINT NOT NULL,
    http_status INT    NOT NULL,
    outcome     VARCHAR(16)  CHARACTER SET ascii   COLLATE ascii_bin   NOT NULL,
    reason      VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    error       VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (seq, replay, n)
) ENGINE = InnoDB
-- next
-- How many outcomes there are, without counting them.
CREATE TABLE IF NOT EXISTS posthouse_counter (
    source    INT    NOT NULL,
    shard     INT    NOT NULL,
    succeeded BIGINT NOT NULL,
    PRIMARY KEY (source, shard)
) ENGINE = InnoDB
-- next
CREATE OR REPLACE SQL SECURITY INVOKER VIEW posthouse_message_log AS
SELECT lower(concat_ws('-', substr(hex(m.id), 1, 8), substr(hex(m.id), 9, 4), substr(hex(m.id), 13, 4),
           substr(hex(m.id), 17, 4), substr(hex(m.id), 21))) AS id,
       convert(s.name USING utf8mb4) AS source,
       CASE WHEN o.seq IS NOT NULL THEN 'success'
            WHEN w.state = 0 THEN 'pending'
            WHEN w.state = 1 THEN 'processing'
            WHEN w.state = 2 THEN 'failed' END AS process_status,
       coalesce(o.retry_count, w.retry_count) AS retry_count,
       CASE WHEN w.state = 0 AND w.retry_count > 0
            THEN cast('1970-01-01' AS DATETIME(6)) + INTERVAL w.due_at MICROSECOND END AS next_retry_time,
       a.error AS error_message,
       cast('1970-01-01' AS DATETIME(6)) + INTERVAL m.received_at MICROSECOND AS create_time,
       cast('1970-01-01' AS DATETIME(6)) + INTERVAL coalesce(o.finished_at,
            greatest(m.received_at, w.started_at, coalesce(a.ended_at, 0))) MICROSECOND AS update_time
FROM posthouse_message m
JOIN posthouse_source s ON s.id = m.source
LEFT JOIN posthouse_work w ON w.seq = m.seq
LEFT JOIN posthouse_outcome o ON o.seq = m.seq
LEFT JOIN posthouse_attempt a ON a.seq = w.seq AND a.replay = w.replay AND a.n = w.retry_count
