-- From schema version 1 to 2: the tables that every file has.
ALTER TABLE webhook_inbox ADD COLUMN query TEXT;
ALTER TABLE webhook_inbox ADD COLUMN envelope TEXT;
ALTER TABLE webhook_inbox ADD COLUMN fact_key BLOB;
CREATE INDEX webhook_inbox_fact ON webhook_inbox (endpoint, fact_key) WHERE fact_key IS NOT NULL;
DROP INDEX webhook_inbox_key;
CREATE UNIQUE INDEX webhook_inbox_key ON webhook_inbox (event_id, endpoint, provider);
DROP INDEX webhook_inbox_due;
CREATE INDEX webhook_inbox_due ON webhook_inbox (endpoint, state, available_at_ms)
  WHERE state IN ('pending', 'processing');
DROP INDEX webhook_inbox_unprocessed;
CREATE INDEX webhook_inbox_unprocessed ON webhook_inbox (state, received_at_ms) WHERE processed_at_ms IS NULL;
CREATE TABLE webhook_counts (
  endpoint             TEXT    NOT NULL,
  state                TEXT    NOT NULL,
  events               INTEGER NOT NULL,
  duplicates           INTEGER NOT NULL,
  last_received_at_ms  INTEGER NOT NULL,
  PRIMARY KEY (endpoint, state)
) STRICT, WITHOUT ROWID;
INSERT INTO webhook_counts (endpoint, state, events, duplicates, last_received_at_ms)
SELECT endpoint, state, count(*), sum(duplicates), max(received_at_ms) FROM webhook_inbox GROUP BY endpoint, state;
CREATE TRIGGER webhook_inbox_counts_insert AFTER INSERT ON webhook_inbox
BEGIN
  INSERT INTO webhook_counts (endpoint, state, events, duplicates, last_received_at_ms)
  VALUES (NEW.endpoint, NEW.state, 1, NEW.duplicates, NEW.received_at_ms)
  ON CONFLICT (endpoint, state) DO UPDATE
     SET events = events + 1, duplicates = duplicates + NEW.duplicates,
         last_received_at_ms = max(last_received_at_ms, NEW.received_at_ms);
END;
CREATE TRIGGER webhook_inbox_counts_update AFTER UPDATE OF state, duplicates ON webhook_inbox
BEGIN
  UPDATE webhook_counts SET events = events - 1, duplicates = duplicates - OLD.duplicates
   WHERE endpoint = OLD.endpoint AND state = OLD.state;
  INSERT INTO webhook_counts (endpoint, state, events, duplicates, last_received_at_ms)
  VALUES (NEW.endpoint, NEW.state, 1, NEW.duplicates, NEW.received_at_ms)
  ON CONFLICT (endpoint, state) DO UPDATE
     SET events = events + 1, duplicates = duplicates + NEW.duplicates,
         last_received_at_ms = max(last_received_at_ms, NEW.received_at_ms);
END;
CREATE TRIGGER webhook_inbox_counts_delete AFTER DELETE ON webhook_inbox
BEGIN
  UPDATE webhook_counts SET events = events - 1, duplicates = duplicates - OLD.duplicates
   WHERE endpoint = OLD.endpoint AND state = OLD.state;
END;
CREATE TABLE webhook_failures (
  endpoint     TEXT    NOT NULL,
  event_type   TEXT,
  event_id     TEXT    NOT NULL,
  error        TEXT    NOT NULL,
  count        INTEGER NOT NULL,
  first_at_ms  INTEGER NOT NULL,
  last_at_ms   INTEGER NOT NULL,
  CHECK (event_id <> '' AND error <> '' AND count > 0),
  PRIMARY KEY (endpoint, event_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX webhook_failures_last ON webhook_failures (last_at_ms);
CREATE TABLE webhook_conflicts (
  id              INTEGER PRIMARY KEY,
  inbox_id        INTEGER NOT NULL REFERENCES webhook_inbox (id) ON DELETE CASCADE,
  event_type      TEXT,
  object_id       TEXT,
  account         TEXT,
  livemode        INTEGER,
  api_version     TEXT,
  headers         TEXT    NOT NULL,
  query           TEXT,
  envelope        TEXT,
  payload         ANY,
  body_sha256     BLOB    NOT NULL,
  received_at_ms  INTEGER NOT NULL,
  event_id        TEXT,
  CHECK (livemode IN (0, 1)),
  CHECK (length(body_sha256) = 32)
) STRICT;
-- The same other body is kept once, however often it comes.
CREATE UNIQUE INDEX webhook_conflicts_key ON webhook_conflicts (inbox_id, body_sha256);
ALTER TABLE outbox ADD COLUMN event_type TEXT;
ALTER TABLE outbox ADD COLUMN query TEXT;
CREATE INDEX outbox_sending ON outbox (destination, object_id) WHERE state = 'sending';
CREATE INDEX outbox_event ON outbox (event_id);
CREATE INDEX reviews_event ON reviews (event_id);
