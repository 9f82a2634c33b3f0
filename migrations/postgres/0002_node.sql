CREATE TABLE node (
    name            TEXT     COLLATE "C" NOT NULL PRIMARY KEY,
    boot            TEXT     COLLATE "C" NOT NULL UNIQUE,
    started_at      BIGINT   NOT NULL,
    expires_at      BIGINT   NOT NULL
);
