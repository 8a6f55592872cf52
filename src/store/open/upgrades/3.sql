-- From schema version 2 to 3: the tables that every file has.
CREATE TABLE inboxd_audit (
  id     INTEGER PRIMARY KEY,
  at_ms  INTEGER NOT NULL,
  actor  TEXT    NOT NULL,
  act    TEXT    NOT NULL,
  filter TEXT    NOT NULL,
  count  INTEGER NOT NULL,
  note   TEXT,
  CHECK (actor <> '' AND act <> '' AND count >= 0),
  CHECK (json_valid(filter))
) STRICT;
CREATE TABLE inboxd_minutes (
  minute    INTEGER NOT NULL,
  endpoint  TEXT    NOT NULL,
  outcome   TEXT    NOT NULL,
  count     INTEGER NOT NULL,
  sum_ms    INTEGER NOT NULL,
  max_ms    INTEGER NOT NULL,
  CHECK (outcome <> '' AND count > 0 AND sum_ms >= 0 AND max_ms >= 0),
  PRIMARY KEY (minute, endpoint, outcome)
) STRICT, WITHOUT ROWID;
