-- A channel is a source of tenant 1 (see model.Tenant); jitter is microseconds.
SET @posthouse = if((SELECT count(*) FROM information_schema.columns
        WHERE table_schema = database() AND table_name = 'posthouse_source' AND column_name = 'tenant') = 0,
    'ALTER TABLE posthouse_source
        ADD COLUMN tenant TINYINT NOT NULL DEFAULT 0, ADD COLUMN on_uncertain TINYINT NOT NULL DEFAULT 0,
        ADD COLUMN jitter BIGINT NOT NULL DEFAULT 0, ADD COLUMN hold_until BIGINT NOT NULL DEFAULT 0', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
-- What the provider says of a delivery: its id, and when it has reached whom it
-- is for.
SET @posthouse = if((SELECT count(*) FROM information_schema.columns
        WHERE table_schema = database() AND table_name = 'posthouse_outcome' AND column_name = 'provider_id') = 0,
    'ALTER TABLE posthouse_outcome
        ADD COLUMN provider_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '''',
        ADD COLUMN delivered_at BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN delivered BOOLEAN GENERATED ALWAYS AS (delivered_at > 0) STORED,
        DROP KEY posthouse_outcome_source, ADD KEY posthouse_outcome_source (source, delivered, seq)', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
SET @posthouse = if((SELECT count(*) FROM information_schema.columns
        WHERE table_schema = database() AND table_name = 'posthouse_attempt' AND column_name = 'code') = 0,
    'ALTER TABLE posthouse_attempt
        ADD COLUMN code VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT ''''', 'DO 0')
-- next
PREPARE posthouse FROM @posthouse
-- next
EXECUTE posthouse
-- next
DEALLOCATE PREPARE posthouse
-- next
-- Versions of templates. hash is of everything that follows it. Rows never change.
CREATE TABLE IF NOT EXISTS posthouse_template (
    id          INT           NOT NULL AUTO_INCREMENT PRIMARY KEY,
    hash        BINARY(32)    NOT NULL,
    code        VARBINARY(64) NOT NULL,
    kind        VARBINARY(64) NOT NULL,
    locale      VARBINARY(35) NOT NULL,
    subject     LONGBLOB      NOT NULL,
    html        LONGBLOB      NOT NULL,
    text        LONGBLOB      NOT NULL,
    json_schema LONGBLOB      NOT NULL,
    created_at  BIGINT        NOT NULL,
    UNIQUE KEY posthouse_template_hash (hash)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
-- next
-- What happened, and whom to tell. Only cancelled changes. content_fields are
-- fingerprints of 16 bytes; secret says that there were sensitive values. put_by
-- names the call that inserted the row.
CREATE TABLE IF NOT EXISTS posthouse_request (
    seq            BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id             BINARY(16)     NOT NULL,
    idem_key       VARBINARY(128) NOT NULL,
    put_by         BIGINT         NOT NULL,
    accepted_at    BIGINT         NOT NULL,
    not_before     BIGINT         NOT NULL,
    expires_at     BIGINT         NOT NULL,
    secret         BOOLEAN        NOT NULL,
    cancelled      BOOLEAN        NOT NULL,
    content_key    VARBINARY(255) NOT NULL,
    content_fields VARBINARY(255) NOT NULL,
    priority       VARBINARY(16)  NOT NULL,
    locale         VARBINARY(35)  NOT NULL,
    biz_type       VARBINARY(128) NOT NULL,
    template       VARBINARY(64)  NOT NULL,
    recipient      VARBINARY(128) NOT NULL,
    tags           BLOB           NOT NULL, -- JSON, as the next three
    success        MEDIUMBLOB     NOT NULL,
    choices        MEDIUMBLOB     NOT NULL,
    variables      MEDIUMBLOB     NOT NULL,
    UNIQUE KEY posthouse_request_id (id),
    UNIQUE KEY posthouse_request_key (idem_key)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
-- next
-- The sensitive values of requests, sealed. Erasing them deletes the row.
CREATE TABLE IF NOT EXISTS posthouse_secret (
    request BIGINT         NOT NULL PRIMARY KEY,
    key_id  VARBINARY(255) NOT NULL,
    sealed  MEDIUMBLOB     NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
-- next
-- Tasks of channels. Rows never change. Their numbers begin at
-- model.DeliverySeqs: they share posthouse_work, posthouse_outcome and
-- posthouse_attempt with messages. The key_hash of their work, which has no keys,
-- tells 0 (never failed since the last replay), 1 (failed before), or the state
-- in which it ended: with it the index posthouse_work_key lists what is alike in
-- the order of seq.
CREATE TABLE IF NOT EXISTS posthouse_delivery (
    seq         BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id          BINARY(16)     NOT NULL,
    request     BIGINT         NOT NULL,
    channel     INT            NOT NULL,
    purpose     SMALLINT       NOT NULL,
    template    INT            NOT NULL,
    done        BOOLEAN        NOT NULL, -- it had succeeded with the insert
    created_at  BIGINT         NOT NULL,
    locale      VARBINARY(35)  NOT NULL,
    reason      TEXT           CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    masked      VARCHAR(512)   CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    address_key VARBINARY(255) NOT NULL,
    address     BLOB           NOT NULL, -- sealed
    UNIQUE KEY posthouse_delivery_id (id),
    UNIQUE KEY posthouse_delivery_purpose (request, channel, purpose),
    KEY posthouse_delivery_channel (channel, seq),
    KEY posthouse_delivery_created (created_at, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC AUTO_INCREMENT = 4611686018427387904
-- next
-- When deliveries expire that have not ended by then.
CREATE TABLE IF NOT EXISTS posthouse_expiry (
    expires_at BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    PRIMARY KEY (expires_at, seq)
) ENGINE = InnoDB
-- next
-- The number of the last message of each user.
CREATE TABLE IF NOT EXISTS posthouse_user (
    user_id  VARBINARY(128) NOT NULL PRIMARY KEY,
    last_seq BIGINT         NOT NULL
) ENGINE = InnoDB
-- next
-- What users see.
CREATE TABLE IF NOT EXISTS posthouse_user_message (
    user_id    VARBINARY(128) NOT NULL,
    seq        BIGINT         NOT NULL,
    id         BINARY(16)     NOT NULL,
    request    BIGINT         NOT NULL,
    created_at BIGINT         NOT NULL,
    read_at    BIGINT         NOT NULL,
    title      MEDIUMTEXT     CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    body       LONGTEXT       CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (user_id, seq),
    UNIQUE KEY posthouse_user_message_id (id),
    KEY posthouse_user_message_request (request)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
-- next
-- Who did what, and why.
CREATE TABLE IF NOT EXISTS posthouse_audit (
    seq     BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at      BIGINT         NOT NULL,
    action  VARBINARY(64)  NOT NULL,
    target  VARBINARY(512) NOT NULL,
    actor   TEXT           CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    reason  MEDIUMTEXT     CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    details MEDIUMBLOB     NOT NULL, -- JSON, or empty
    KEY posthouse_audit_target (target, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
-- next
CREATE OR REPLACE SQL SECURITY INVOKER VIEW posthouse_message_request AS
SELECT lower(concat_ws('-', substr(hex(r.id), 1, 8), substr(hex(r.id), 9, 4), substr(hex(r.id), 13, 4),
           substr(hex(r.id), 17, 4), substr(hex(r.id), 21))) AS id,
       convert(r.idem_key USING utf8mb4) AS idempotency_key,
       convert(r.biz_type USING utf8mb4) AS biz_type,
       convert(r.template USING utf8mb4) AS template,
       convert(r.recipient USING utf8mb4) AS recipient_id,
       convert(r.priority USING utf8mb4) AS priority,
       convert(r.locale USING utf8mb4) AS locale,
       cast('1970-01-01' AS DATETIME(6)) + INTERVAL r.accepted_at MICROSECOND AS accepted_time
FROM posthouse_request r
-- next
CREATE OR REPLACE SQL SECURITY INVOKER VIEW posthouse_delivery_task AS
SELECT lower(concat_ws('-', substr(hex(d.id), 1, 8), substr(hex(d.id), 9, 4), substr(hex(d.id), 13, 4),
           substr(hex(d.id), 17, 4), substr(hex(d.id), 21))) AS id,
       lower(concat_ws('-', substr(hex(r.id), 1, 8), substr(hex(r.id), 9, 4), substr(hex(r.id), 13, 4),
           substr(hex(r.id), 17, 4), substr(hex(r.id), 21))) AS request_id,
       substr(convert(c.name USING utf8mb4), 9) AS channel,
       d.masked AS destination,
       CASE WHEN o.delivered_at > 0 THEN 'DELIVERED'
            WHEN o.seq IS NOT NULL THEN 'SUCCEEDED'
            WHEN w.state = 0 AND w.retry_count > 0 THEN 'RETRY_WAIT'
            WHEN w.state = 0 THEN 'PENDING'
            WHEN w.state = 1 THEN 'PROCESSING'
            WHEN w.state = 2 THEN 'FAILED'
            WHEN w.state = 4 THEN 'DEAD'
            WHEN w.state = 5 THEN 'UNCERTAIN'
            WHEN w.state = 6 THEN 'CANCELLED' END AS status,
       coalesce(greatest(o.n, o.retry_count), w.retry_count) AS attempt_count,
       CASE WHEN w.state = 0 THEN cast('1970-01-01' AS DATETIME(6)) + INTERVAL w.due_at MICROSECOND END AS next_attempt_at,
       CASE WHEN w.state = 1 THEN coalesce(i.name, cast(w.owner AS CHAR)) END AS lease_owner,
       CASE WHEN w.state = 1 THEN cast('1970-01-01' AS DATETIME(6)) + INTERVAL i.lease_until MICROSECOND END AS lease_until,
       o.provider_id AS provider_msg_id,
       a.code AS last_error_code,
       a.error AS last_error_text,
       cast('1970-01-01' AS DATETIME(6)) + INTERVAL d.created_at MICROSECOND AS create_time,
       cast('1970-01-01' AS DATETIME(6)) + INTERVAL CASE WHEN o.seq IS NOT NULL THEN greatest(o.finished_at, o.delivered_at)
            WHEN w.state > 1 THEN w.due_at
            ELSE greatest(d.created_at, w.started_at, coalesce(a.ended_at, 0)) END MICROSECOND AS update_time
FROM posthouse_delivery d
JOIN posthouse_request r ON r.seq = d.request
JOIN posthouse_source c ON c.id = d.channel
LEFT JOIN posthouse_work w ON w.seq = d.seq
LEFT JOIN posthouse_outcome o ON o.seq = d.seq
LEFT JOIN posthouse_instance i ON i.id = w.owner
LEFT JOIN posthouse_attempt a ON a.seq = d.seq AND a.replay = coalesce(o.replay, w.replay) AND a.n = coalesce(o.retry_count, w.retry_count)
