-- See migrations/sqlite.
CREATE TABLE callback_target (
    name            TEXT     COLLATE "C" NOT NULL PRIMARY KEY,
    pos             BIGINT   NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE callback (
    target          TEXT     COLLATE "C" NOT NULL REFERENCES callback_target (name),
    pos             BIGINT   NOT NULL,
    notification    BYTEA    NOT NULL CHECK (octet_length(notification) = 16),
    change          TEXT     COLLATE "C" NOT NULL
                             CHECK (change IN ('dispatched', 'failed', 'expired', 'cancelled', 'superseded',
                             'dispatch_unknown', 'delivered', 'undelivered', 'sent_changed')),
    state           TEXT     COLLATE "C" NOT NULL
                             CHECK (state IN ('accepted', 'dispatching', 'retry_wait', 'dispatch_unknown',
                             'dispatched', 'failed', 'expired', 'cancelled', 'superseded')),
    tries           INTEGER  NOT NULL,
    due_at          BIGINT   NOT NULL,
    PRIMARY KEY (target, pos)
) WITH (
    -- Rows come and go, as those of `work`.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX callback_due ON callback (target, due_at, pos);
CREATE INDEX callback_order ON callback (target, notification, pos);
