-- How far each target of callbacks has taken over the log, which is their outbox: what is told was recorded in the
-- transaction of the change itself.
CREATE TABLE callback_target (
    name            TEXT    NOT NULL PRIMARY KEY,
    pos             INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What is still to be told. The record itself stays in the log, from which nothing is ever removed.
CREATE TABLE callback (
    target          TEXT    NOT NULL REFERENCES callback_target (name),
    pos             INTEGER NOT NULL,
    notification    BLOB    NOT NULL CHECK (length(notification) = 16),
    change          TEXT    NOT NULL CHECK (change IN ('dispatched', 'failed', 'expired', 'cancelled', 'superseded',
                            'dispatch_unknown', 'delivered', 'undelivered', 'sent_changed')),
    state           TEXT    NOT NULL CHECK (state IN ('accepted', 'dispatching', 'retry_wait', 'dispatch_unknown',
                            'dispatched', 'failed', 'expired', 'cancelled', 'superseded')),
    tries           INTEGER NOT NULL,
    due_at          INTEGER NOT NULL,
    PRIMARY KEY (target, pos)
) STRICT, WITHOUT ROWID;
CREATE INDEX callback_due ON callback (target, due_at, pos);
CREATE INDEX callback_order ON callback (target, notification, pos);
