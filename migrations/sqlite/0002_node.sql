-- The nodes that work on this store. A boot that has no row here is over, and what it left under way is nobody's.
CREATE TABLE node (
    name            TEXT    NOT NULL PRIMARY KEY,
    boot            TEXT    NOT NULL UNIQUE,
    started_at      INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
