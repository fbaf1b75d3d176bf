-- A queue is of messages (0), or of the deliveries of a channel (1). on_uncertain
-- is the number of model.OnUncertain, jitter is in microseconds.
ALTER TABLE posthouse_source ADD COLUMN tenant INTEGER NOT NULL DEFAULT 0
-- next
ALTER TABLE posthouse_source ADD COLUMN on_uncertain INTEGER NOT NULL DEFAULT 0
-- next
ALTER TABLE posthouse_source ADD COLUMN jitter INTEGER NOT NULL DEFAULT 0
-- next
ALTER TABLE posthouse_source ADD COLUMN hold_until INTEGER NOT NULL DEFAULT 0
-- next
-- Deliveries: the provider's id for what it has accepted, and when a receipt came.
ALTER TABLE posthouse_outcome ADD COLUMN provider_id TEXT NOT NULL DEFAULT ''
-- next
ALTER TABLE posthouse_outcome ADD COLUMN delivered_at INTEGER NOT NULL DEFAULT 0
-- next
CREATE INDEX posthouse_outcome_delivered ON posthouse_outcome (source, seq) WHERE delivered_at <> 0
-- next
ALTER TABLE posthouse_attempt ADD COLUMN code TEXT NOT NULL DEFAULT ''
-- next
-- Deliveries that have ended without success, in the order of lists. Their seqs
-- begin at 1 << 62; messages stay below.
CREATE INDEX posthouse_work_ended ON posthouse_work (queue, state, seq) WHERE state > 1 AND seq >= 4611686018427387904
-- next
-- Versions of templates. Rows never change.
CREATE TABLE posthouse_template (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    hash    BLOB NOT NULL UNIQUE,
    code    TEXT NOT NULL,
    kind    TEXT NOT NULL,
    locale  TEXT NOT NULL,
    subject TEXT NOT NULL,
    html    TEXT NOT NULL,
    body    TEXT NOT NULL,
    schema  TEXT NOT NULL
)
-- next
-- What happened and whom to tell. Rows never change, but that somebody asks for
-- a request to be cancelled.
CREATE TABLE posthouse_request (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           BLOB    NOT NULL UNIQUE,
    idem_key     BLOB    NOT NULL UNIQUE CHECK (length(idem_key) <= 128),
    accepted_at  INTEGER NOT NULL,
    cancelled_at INTEGER NOT NULL,
    secret       INTEGER NOT NULL, -- it had sensitive values
    not_before   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    priority     TEXT    NOT NULL,
    biz_type     TEXT    NOT NULL,
    template     TEXT    NOT NULL,
    recipient    TEXT    NOT NULL,
    locale       TEXT    NOT NULL,
    content_key  TEXT    NOT NULL,
    content      BLOB    NOT NULL,
    success      TEXT    NOT NULL, -- JSON, like the next two
    choices      TEXT    NOT NULL,
    tags         TEXT    NOT NULL,
    variables    BLOB    NOT NULL
)
-- next
-- Sensitive values, sealed. Erased when the last delivery is final.
CREATE TABLE posthouse_secret (
    request INTEGER PRIMARY KEY,
    key_id  TEXT NOT NULL,
    sealed  BLOB NOT NULL
)
-- next
-- One channel's task. Rows never change: what is to be done is in work.
CREATE TABLE posthouse_delivery (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          BLOB    NOT NULL UNIQUE,
    request     INTEGER NOT NULL,
    channel     INTEGER NOT NULL,
    purpose     INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    template    INTEGER NOT NULL,
    done        INTEGER NOT NULL,
    locale      TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    masked      TEXT    NOT NULL,
    address_key TEXT    NOT NULL,
    address     BLOB    NOT NULL,
    UNIQUE (request, channel, purpose)
)
-- next
INSERT INTO sqlite_sequence (name, seq) VALUES ('posthouse_delivery', 4611686018427387903)
-- next
CREATE INDEX posthouse_delivery_channel ON posthouse_delivery (channel, seq)
-- next
-- Deliveries that expire; those that have ended stay until they would have.
CREATE TABLE posthouse_expiry (
    expires_at INTEGER NOT NULL,
    delivery   INTEGER NOT NULL,
    PRIMARY KEY (expires_at, delivery)
) WITHOUT ROWID
-- next
-- The last number that was given to a message of a user.
CREATE TABLE posthouse_user (
    id       INTEGER PRIMARY KEY,
    user_id  TEXT    NOT NULL UNIQUE,
    last_seq INTEGER NOT NULL
)
-- next
CREATE TABLE posthouse_user_message (
    user       INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    id         BLOB    NOT NULL UNIQUE,
    request    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    read_at    INTEGER NOT NULL,
    title      TEXT    NOT NULL,
    body       TEXT    NOT NULL,
    PRIMARY KEY (user, seq)
)
-- next
-- What people did, and why. Rows never change.
CREATE TABLE posthouse_audit (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    target  TEXT    NOT NULL,
    reason  TEXT    NOT NULL,
    details TEXT    NOT NULL  -- JSON
)
-- next
CREATE INDEX posthouse_audit_target ON posthouse_audit (target, seq)
-- next
CREATE VIEW posthouse_message_request AS
SELECT lower(printf('%s-%s-%s-%s-%s', substr(hex(r.id), 1, 8), substr(hex(r.id), 9, 4), substr(hex(r.id), 13, 4),
           substr(hex(r.id), 17, 4), substr(hex(r.id), 21))) AS id,
       CAST(r.idem_key AS TEXT) AS idempotency_key,
       r.biz_type, r.template, r.recipient AS recipient_id, r.priority, r.locale,
       printf('%s.%06dZ', strftime('%Y-%m-%dT%H:%M:%S', r.accepted_at / 1000000, 'unixepoch'), r.accepted_at % 1000000)
           AS accepted_time
FROM posthouse_request r
-- next
CREATE VIEW posthouse_delivery_task AS
SELECT lower(printf('%s-%s-%s-%s-%s', substr(hex(d.id), 1, 8), substr(hex(d.id), 9, 4), substr(hex(d.id), 13, 4),
           substr(hex(d.id), 17, 4), substr(hex(d.id), 21))) AS id,
       lower(printf('%s-%s-%s-%s-%s', substr(hex(r.id), 1, 8), substr(hex(r.id), 9, 4), substr(hex(r.id), 13, 4),
           substr(hex(r.id), 17, 4), substr(hex(r.id), 21))) AS request_id,
       substr(s.name, 9) AS channel,
       CASE WHEN o.delivered_at <> 0 THEN 'DELIVERED'
            WHEN o.seq IS NOT NULL THEN 'SUCCEEDED'
            WHEN w.state = 0 AND w.retry_count > 0 THEN 'RETRY_WAIT'
            WHEN w.state = 0 THEN 'PENDING'
            WHEN w.state = 1 THEN 'PROCESSING'
            WHEN w.state = 2 THEN 'FAILED'
            WHEN w.state = 4 THEN 'DEAD'
            WHEN w.state = 5 THEN 'UNCERTAIN'
            WHEN w.state = 6 THEN 'CANCELLED' END AS status,
       CASE WHEN o.n > 0 THEN o.n ELSE coalesce(o.retry_count, w.retry_count) END AS attempt_count,
       CASE WHEN w.state = 0
            THEN printf('%s.%06dZ', strftime('%Y-%m-%dT%H:%M:%S', w.due_at / 1000000, 'unixepoch'), w.due_at % 1000000)
            END AS next_attempt_at,
       CASE WHEN w.state = 1 THEN coalesce(i.name, printf('%d', w.owner)) END AS lease_owner,
       CASE WHEN w.state = 1 AND i.id IS NOT NULL
            THEN printf('%s.%06dZ', strftime('%Y-%m-%dT%H:%M:%S', i.lease_until / 1000000, 'unixepoch'), i.lease_until % 1000000)
            END AS lease_until,
       d.masked AS destination,
       o.provider_id AS provider_msg_id,
       a.code AS last_error_code,
       a.error AS last_error_text,
       printf('%s.%06dZ', strftime('%Y-%m-%dT%H:%M:%S', d.created_at / 1000000, 'unixepoch'), d.created_at % 1000000)
           AS create_time,
       (SELECT printf('%s.%06dZ', strftime('%Y-%m-%dT%H:%M:%S', at / 1000000, 'unixepoch'), at % 1000000)
        FROM (SELECT CASE WHEN o.seq IS NOT NULL THEN max(o.finished_at, o.delivered_at)
                          WHEN w.state > 1 THEN w.due_at
                          ELSE max(d.created_at, w.started_at, coalesce(a.ended_at, 0)) END AS at))
           AS update_time
FROM posthouse_delivery d
JOIN posthouse_request r ON r.seq = d.request
JOIN posthouse_source s ON s.id = d.channel
LEFT JOIN posthouse_work w ON w.seq = d.seq
LEFT JOIN posthouse_outcome o ON o.seq = d.seq
LEFT JOIN posthouse_instance i ON i.id = w.owner AND w.state = 1
LEFT JOIN posthouse_attempt a ON a.seq = d.seq AND a.replay = coalesce(o.replay, w.replay)
    AND a.n = coalesce(o.retry_count, w.retry_count)
