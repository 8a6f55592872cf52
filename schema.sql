-- inboxd: the database. This file is the design document of the data, and new files are created from it.
--
-- Times are integer milliseconds since the epoch (suffix _ms), by this machine's clock unless a sentence says otherwise.
-- Money is an integer in the provider's minor unit beside a lower-case currency; it is never scaled, never rounded.
-- A row is found by its own key, never by a time: two events of one second have no order.
-- CHECKs with three or more values use OR: for IN, SQLite builds a temporary table on every write.

-- One row per event and endpoint: the record that makes a redelivery harmless.
-- It is written in the transaction of the event's own effects, and outlives its payload.
CREATE TABLE webhook_inbox (
  id                INTEGER PRIMARY KEY,          -- rises with the order of commits
  provider          TEXT    NOT NULL,             -- the preset's name, or 'custom'
  endpoint          TEXT    NOT NULL,             -- the endpoint's name in the configuration
  event_id          TEXT    NOT NULL,             -- the provider's id; 'body-sha256:<hex>' where a signed body has none
  event_type        TEXT,                         -- NULL: the body names none
  object_id         TEXT,                         -- the business object the event is about
  account           TEXT,                         -- the provider's account, where the event names one
  livemode          INTEGER,                      -- 1 live, 0 test, NULL: the event does not say
  api_version       TEXT,
  headers           TEXT    NOT NULL,             -- JSON object of the few headers the preset keeps; never a signature or credential
  payload           ANY,                          -- the exact bytes: TEXT where valid UTF-8, else BLOB; NULL once purged
  body_sha256       BLOB    NOT NULL,             -- of the payload; kept after the payload is purged, to recognise "same id, other body"
  replay_key        BLOB,                         -- equal for replays of one body under other ids; NULL where ids are signed
  state             TEXT    NOT NULL,
  attempts          INTEGER NOT NULL DEFAULT 0,   -- only grows
  attempts_excused  INTEGER NOT NULL DEFAULT 0,   -- attempts that were not the event's fault: a full disk, a person's retry
  duplicates        INTEGER NOT NULL DEFAULT 0,   -- further deliveries of the same event
  available_at_ms   INTEGER NOT NULL,             -- no attempt before this time
  lease_id          TEXT,                         -- who holds the row while it is 'processing'
  last_error        TEXT,
  error_class       TEXT,                         -- the kind of last_error
  received_at_ms    INTEGER NOT NULL,
  processed_at_ms   INTEGER,
  query             TEXT,                         -- the delivery's query string without '?'; NULL: none
  envelope          TEXT,                         -- for an event of a batch: JSON array of the body's text before and after the events; NULL: it came alone
  fact_key          BLOB,                         -- identifies the event if each subscription has ids of its own (Shopify); NULL: the event id does
  -- 'pending' -> 'processing' -> 'done' | 'ignored' | 'quarantined'; a retry is 'pending' again.
  CHECK (state = 'pending' OR state = 'processing' OR state = 'done'
      OR state = 'ignored' OR state = 'quarantined'),
  -- Exactly the events that need no more work have a time of processing.
  CHECK ((processed_at_ms IS NOT NULL) = (state IN ('done', 'ignored'))),
  -- Exactly the rows in work are leased.
  CHECK ((lease_id IS NOT NULL) = (state = 'processing')),
  -- Excuses never exceed the attempts they excuse.
  CHECK (attempts >= 0 AND attempts_excused BETWEEN 0 AND attempts AND duplicates >= 0),
  -- An empty id would make all events without an id one event.
  CHECK (event_id <> ''),
  CHECK (livemode IN (0, 1)),
  CHECK (error_class = 'handler' OR error_class = 'timeout' OR error_class = 'storage'
      OR error_class = 'parked' OR error_class = 'lost' OR error_class = 'content'),
  CHECK (length(body_sha256) = 32)
) STRICT;

-- The key of deduplication: one provider's event counts once per endpoint. The id comes first, so that an event
-- is found by its id alone, and a comparison ends at the first bytes that differ.
CREATE UNIQUE INDEX webhook_inbox_key ON webhook_inbox (event_id, endpoint, provider);

-- Finds the first event of a replay; holds the events of presets with unsigned ids only.
CREATE INDEX webhook_inbox_replay ON webhook_inbox (endpoint, replay_key) WHERE replay_key IS NOT NULL;

-- Finds an event that another subscription delivered before; holds the events of such presets only.
CREATE INDEX webhook_inbox_fact ON webhook_inbox (endpoint, fact_key) WHERE fact_key IS NOT NULL;

-- Events that wait for work or for a person, the oldest of each state first; small however large the table grows.
CREATE INDEX webhook_inbox_unprocessed ON webhook_inbox (state, received_at_ms) WHERE processed_at_ms IS NULL;

-- Events that a worker may claim. The time comes last: a search for ended leases, or for one endpoint's events, would
-- otherwise read the whole backlog.
CREATE INDEX webhook_inbox_due ON webhook_inbox (endpoint, state, available_at_ms)
  WHERE state IN ('pending', 'processing');

-- How many events each endpoint has in each state, so that a count costs the same with ten million events.
-- Triggers maintain it, so it is true whoever writes.
CREATE TABLE webhook_counts (
  endpoint             TEXT    NOT NULL,
  state                TEXT    NOT NULL,          -- webhook_inbox.state
  events               INTEGER NOT NULL,
  duplicates           INTEGER NOT NULL,          -- the sum of webhook_inbox.duplicates
  last_received_at_ms  INTEGER NOT NULL,          -- of the latest event in this state
  PRIMARY KEY (endpoint, state)
) STRICT, WITHOUT ROWID;

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

-- One row per attempt of a worker. Written at the claim, before the work: an attempt that killed the process
-- is the one without an end.
CREATE TABLE webhook_attempts (
  inbox_id       INTEGER NOT NULL REFERENCES webhook_inbox (id) ON DELETE CASCADE,
  number         INTEGER NOT NULL,                -- webhook_inbox.attempts at the claim
  started_at_ms  INTEGER NOT NULL,
  ended_at_ms    INTEGER,
  result         TEXT,                            -- NULL: it runs, or died with its process
  error          TEXT,
  CHECK (result = 'done' OR result = 'ignored' OR result = 'quarantined'
      OR result = 'failed' OR result = 'excused' OR result = 'lost'),
  -- Exactly the ended attempts have a result.
  CHECK ((ended_at_ms IS NOT NULL) = (result IS NOT NULL)),
  PRIMARY KEY (inbox_id, number)
) STRICT, WITHOUT ROWID;

-- Genuine deliveries whose work failed. Nothing else of such a delivery is stored, because the provider sends it
-- again. A later success removes the row.
CREATE TABLE webhook_failures (
  endpoint     TEXT    NOT NULL,
  event_type   TEXT,
  event_id     TEXT    NOT NULL,
  error        TEXT    NOT NULL,                  -- of the latest attempt
  count        INTEGER NOT NULL,                  -- deliveries that failed
  first_at_ms  INTEGER NOT NULL,
  last_at_ms   INTEGER NOT NULL,
  CHECK (event_id <> '' AND error <> '' AND count > 0),
  PRIMARY KEY (endpoint, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX webhook_failures_last ON webhook_failures (last_at_ms);

-- Other bodies that came under a known event id. Kept with the review of kind 'body_conflict', so that a person can
-- put one to work.
CREATE TABLE webhook_conflicts (
  id              INTEGER PRIMARY KEY,
  inbox_id        INTEGER NOT NULL REFERENCES webhook_inbox (id) ON DELETE CASCADE,  -- the event whose body came first
  event_type      TEXT,
  object_id       TEXT,
  account         TEXT,
  livemode        INTEGER,
  api_version     TEXT,
  headers         TEXT    NOT NULL,               -- as webhook_inbox.headers
  query           TEXT,
  envelope        TEXT,                           -- as webhook_inbox.envelope
  payload         ANY,                            -- as webhook_inbox.payload
  body_sha256     BLOB    NOT NULL,
  received_at_ms  INTEGER NOT NULL,
  event_id        TEXT,                           -- the key under which a person put it to work; NULL: not done
  CHECK (livemode IN (0, 1)),
  CHECK (length(body_sha256) = 32)
) STRICT;

-- Each other body is kept once, however often it comes.
CREATE UNIQUE INDEX webhook_conflicts_key ON webhook_conflicts (inbox_id, body_sha256);

-- BOOKS: the tables of the built-in handlers. An application's own file (`database = …`) does not get them.

-- The state of each invoice, moved by the transitions declared in invoices.rs and by nothing else.
CREATE TABLE invoices (
  id             TEXT    PRIMARY KEY,             -- the provider's invoice id
  customer_id    TEXT,
  status         TEXT    NOT NULL,
  currency       TEXT,                            -- lower case; NULL until an event names it
  amount_paid    INTEGER NOT NULL DEFAULT 0,      -- minor units, with what was paid outside the provider; 0 until paid
  paid_at_ms     INTEGER,                         -- when it became paid here
  created_at_ms  INTEGER NOT NULL,                -- when its first event arrived
  updated_at_ms  INTEGER NOT NULL,                -- when its state last moved
  account        TEXT,                            -- the provider's account; NULL: the endpoint's own
  livemode       INTEGER CHECK (livemode IN (0, 1)),  -- 1 live, 0 test, NULL: no event has said
  amount_due     INTEGER,                         -- what it asks for before any credit note; NULL until it is final
  total          INTEGER,                         -- the same before the customer's credit balance; may be negative
  CHECK (status = 'draft' OR status = 'open' OR status = 'paid'
      OR status = 'void' OR status = 'uncollectible' OR status = 'deleted'),
  -- Exactly the paid invoices have a time of payment.
  CHECK ((paid_at_ms IS NOT NULL) = (status = 'paid')),
  -- Received money is never negative; money that flows back is an entry of its own.
  CHECK (amount_paid >= 0),
  CHECK (currency = lower(currency))
) STRICT, WITHOUT ROWID;

-- An end state is final, whoever writes: a contradiction is a question for a person.
CREATE TRIGGER invoices_end_once BEFORE UPDATE OF status ON invoices
WHEN (OLD.status = 'paid' OR OLD.status = 'void' OR OLD.status = 'deleted') AND NEW.status <> OLD.status
BEGIN SELECT RAISE(ABORT, 'a paid, void or deleted invoice keeps its status'); END;

-- Orders of a shop. The application inserts and updates rows; inboxd moves them to 'paid'.
CREATE TABLE orders (
  account        TEXT,                            -- the provider's account; NULL: the endpoint's own
  id             TEXT    NOT NULL,                -- the shop's own name for it
  status         TEXT    NOT NULL DEFAULT 'awaiting_payment',
  currency       TEXT    NOT NULL,                -- lower case
  total          INTEGER NOT NULL,                -- minor units
  payment_id     TEXT,                            -- the provider's payment; NULL until it is known
  paid_at_ms     INTEGER,                         -- when it became paid here
  updated_at_ms  INTEGER,                         -- when inboxd last wrote the row
  -- 'awaiting_payment' -> 'paid'; further statuses are the application's ('shipped', 'cancelled', ...).
  CHECK (status <> ''),
  -- An order that waits for a payment has no time of payment; one that inboxd marked as paid has a time and a payment.
  CHECK (paid_at_ms IS NULL OR (status <> 'awaiting_payment' AND payment_id IS NOT NULL)),
  CHECK (id <> '' AND total >= 0),
  CHECK (currency <> '' AND currency = lower(currency))
) STRICT;

-- One row per order; two accounts may use the same numbers.
CREATE UNIQUE INDEX orders_key ON orders (coalesce(account, ''), id);
CREATE INDEX orders_payment ON orders (payment_id) WHERE payment_id IS NOT NULL;

-- A paid order never goes back to 'awaiting_payment', whoever writes.
CREATE TRIGGER orders_stay_paid BEFORE UPDATE OF status, paid_at_ms ON orders
WHEN OLD.paid_at_ms IS NOT NULL AND (NEW.paid_at_ms IS NULL OR NEW.status = 'awaiting_payment')
BEGIN SELECT RAISE(ABORT, 'a paid order stays paid'); END;

-- What a line of the books means: the account that its signed amount belongs to, and the account that gets the opposite.
-- So each line balances by itself. Where the account is 'provider', the sign is that of the provider's own balance.
CREATE TABLE ledger_kinds (
  kind    TEXT PRIMARY KEY,
  book    TEXT NOT NULL,
  contra  TEXT NOT NULL,
  -- Money moves from one account to another.
  CHECK (kind <> '' AND book <> '' AND contra <> '' AND book <> contra)
) STRICT, WITHOUT ROWID;

INSERT INTO ledger_kinds (kind, book, contra) VALUES
  ('invoiced',          'receivable',      'sales'),
  ('credit_applied',    'customer_credit', 'sales'),
  ('payment',           'provider',        'receivable'),
  ('paid_outside',      'outside',         'receivable'),
  ('overpaid',          'receivable',      'customer_credit'),
  ('written_off',       'receivable',      'bad_debt'),
  ('credit_note',       'receivable',      'refunds'),
  ('credit_to_balance', 'customer_credit', 'refunds'),
  ('credit_outside',    'outside',         'refunds'),
  ('sale',              'provider',        'sales'),
  ('refund',            'provider',        'refunds'),
  ('dispute',           'provider',        'disputes'),
  ('dispute_fee',       'provider',        'fees'),
  ('fee',               'provider',        'fees'),
  ('payout',            'provider',        'bank'),
  ('topup',             'provider',        'bank'),
  ('converted',         'provider',        'conversion');

-- The books: append-only, one row per money fact, unique by the fact's own key.
CREATE TABLE ledger_entries (
  id              INTEGER PRIMARY KEY,
  entry_key       TEXT    NOT NULL UNIQUE,        -- '<kind>:<id>', then '<kind>:<id>#2': the fact, whatever event told of it
  invoice_id      TEXT,                           -- NULL: it belongs to no invoice, as far as is known
  kind            TEXT    NOT NULL REFERENCES ledger_kinds (kind),
  amount          INTEGER NOT NULL,               -- minor units, signed
  currency        TEXT    NOT NULL,
  event_id        TEXT    NOT NULL,               -- the event that was first to tell
  endpoint        TEXT    NOT NULL,
  booked_at_ms    INTEGER NOT NULL,
  object          TEXT    NOT NULL,               -- what it is about: 'invoice:in_1', 'charge:ch_1', 'refund:paddle/adj_1'
  account         TEXT,                           -- the provider's account; NULL: the endpoint's own
  livemode        INTEGER,                        -- 1 live, 0 test, NULL: nobody said
  occurred_at_ms  INTEGER,                        -- by the sender's clock; NULL: unknown
  -- A line without money says nothing.
  CHECK (amount <> 0),
  CHECK (currency <> '' AND currency = lower(currency)),
  -- What the books hold of an object is the sum over its lines.
  CHECK (object <> ''),
  CHECK (livemode IN (0, 1))
) STRICT;

-- What is booked of an object, summed without reading the rows.
CREATE INDEX ledger_entries_object ON ledger_entries (object, kind, currency, amount);

-- An entry is never edited and never removed; a correction is a new entry.
CREATE TRIGGER ledger_entries_are_not_updated BEFORE UPDATE ON ledger_entries
BEGIN SELECT RAISE(ABORT, 'ledger_entries is append-only: book a correcting entry instead'); END;
CREATE TRIGGER ledger_entries_are_not_deleted BEFORE DELETE ON ledger_entries
BEGIN SELECT RAISE(ABORT, 'ledger_entries is append-only: book a correcting entry instead'); END;
-- REPLACE deletes rows without firing the trigger above.
CREATE TRIGGER ledger_entries_are_not_replaced BEFORE INSERT ON ledger_entries
WHEN EXISTS (SELECT 1 FROM ledger_entries WHERE entry_key = NEW.entry_key OR id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'ledger_entries is append-only: this entry is in the books'); END;

-- Double entry: two postings for each line, so that the sum of each currency is always 0.
CREATE VIEW postings (id, entry_key, book, amount, currency, kind, object, event_id) AS
  SELECT e.id, e.entry_key, k.book, e.amount, e.currency, e.kind, e.object, e.event_id
    FROM ledger_entries e JOIN ledger_kinds k ON k.kind = e.kind
  UNION ALL
  SELECT e.id, e.entry_key, k.contra, -e.amount, e.currency, e.kind, e.object, e.event_id
    FROM ledger_entries e JOIN ledger_kinds k ON k.kind = e.kind;

-- The lines that move what lies with the provider.
CREATE VIEW cash_entries AS
  SELECT e.* FROM ledger_entries e JOIN ledger_kinds k ON k.kind = e.kind WHERE k.book = 'provider';

-- The evidence: what the events have told of each of the provider's objects. A field is set once, or only grows, so that
-- the order in which events arrive leaves no trace. It outlives the events' payloads: the books are made from it.
CREATE TABLE money_facts (
  object    TEXT NOT NULL,                        -- as ledger_entries.object
  field     TEXT NOT NULL,                        -- 'currency', 'refunded', 'refund:re_1', ...
  value     ANY  NOT NULL,                        -- minor units, 1 for what is so, or text
  event_id  TEXT NOT NULL,                        -- the event that was first to tell this value
  CHECK (object <> '' AND field <> ''),
  PRIMARY KEY (object, field)
) STRICT, WITHOUT ROWID;

-- The latest known state of each subscription. It is no money: the newest snapshot counts, an end is an end.
CREATE TABLE subscription_states (
  id                     TEXT    PRIMARY KEY,     -- the provider's subscription id
  customer_id            TEXT,
  status                 TEXT    NOT NULL,        -- the provider's word
  products               TEXT    NOT NULL,        -- JSON array of product ids; of a plan without one, its price's id
  current_period_end_ms  INTEGER,
  cancel_at_ms           INTEGER,
  is_paused              INTEGER NOT NULL,        -- 1: collection is paused
  account                TEXT,
  livemode               INTEGER,
  told_at_ms             INTEGER NOT NULL,        -- the sender's time of the snapshot, in whole seconds
  told_rank              INTEGER NOT NULL,        -- 1 created, 2 updated, 3 ended: of two snapshots of one second the later
  event_id               TEXT    NOT NULL,        -- the event that the snapshot came with
  updated_at_ms          INTEGER NOT NULL,
  CHECK (json_valid(products)),
  CHECK (is_paused IN (0, 1) AND livemode IN (0, 1)),
  CHECK (told_rank BETWEEN 1 AND 3)
) STRICT, WITHOUT ROWID;

-- What an application asks: may this customer use this product, and until when.
CREATE VIEW subscription_access (customer, product, until, why) AS
  SELECT s.customer_id, p.value, coalesce(s.cancel_at_ms, s.current_period_end_ms), s.status
    FROM subscription_states s, json_each(s.products) p
   WHERE s.status IN ('trialing', 'active', 'past_due');

-- END OF BOOKS

-- Requests to be made: written in the event's transaction, sent afterwards.
CREATE TABLE outbox (
  id                INTEGER PRIMARY KEY,          -- rises with the order of commits
  destination       TEXT    NOT NULL,             -- the destination's name in the configuration
  topic             TEXT    NOT NULL,             -- what happened, e.g. 'InvoicePaymentBooked'; for a forward: the event's type
  operation_key     TEXT    NOT NULL UNIQUE,      -- the effect's own key, sent as Idempotency-Key: the same effect is queued once
  endpoint          TEXT    NOT NULL,
  event_id          TEXT    NOT NULL,             -- the event it came from
  object_id         TEXT,                         -- the business object it is about; NULL: rows need no order
  payload           ANY,                          -- the body to send: TEXT where valid UTF-8, else BLOB; NULL once it was sent and purged
  content_type      TEXT    NOT NULL,
  headers           TEXT,                         -- for a forward: JSON of the headers kept from the delivery; NULL: a handler emitted it
  state             TEXT    NOT NULL DEFAULT 'pending',
  attempts          INTEGER NOT NULL DEFAULT 0,   -- counted and committed before a request is made; only grows
  available_at_ms   INTEGER NOT NULL,             -- not sent before this time; while 'sending': when the lease ends
  lease_id          TEXT,                         -- who sends it; a result that names another lease is discarded
  failing_since_ms  INTEGER,                      -- when the first attempt failed; give_up_after counts from here
  first_sent_at_ms  INTEGER,                      -- the first request under this key that may have had its effect
  last_error        TEXT,
  response_status   INTEGER,                      -- of the latest answer
  response_excerpt  TEXT,                         -- the first KiB of its body
  result            TEXT,                         -- what the destination's JSON pointer `result` found in the 2xx
  created_at_ms     INTEGER NOT NULL,
  delivered_at_ms   INTEGER,
  event_type        TEXT,                         -- the type of the event it came from
  query             TEXT,                         -- for a forward: the delivery's query string without '?'
  -- 'pending' -> 'sending' -> 'delivered' | 'dead'; a retry is 'pending' again; 'delivered' is never left.
  CHECK (state = 'pending' OR state = 'sending' OR state = 'delivered' OR state = 'dead'),
  CHECK ((delivered_at_ms IS NOT NULL) = (state = 'delivered')),
  -- A payload is purged only after delivery.
  CHECK (payload IS NOT NULL OR state = 'delivered'),
  -- Exactly the rows being sent are leased.
  CHECK ((lease_id IS NOT NULL) = (state = 'sending')),
  CHECK (operation_key <> '' AND attempts >= 0)
) STRICT;

-- Rows that a dispatcher may claim, in the order in which they are due.
CREATE INDEX outbox_undelivered ON outbox (destination, available_at_ms) WHERE state IN ('pending', 'sending');

-- The rows of one business object that are still to be delivered, in the order of commits.
CREATE INDEX outbox_in_order ON outbox (destination, object_id, id)
  WHERE object_id IS NOT NULL AND state IN ('pending', 'sending');

-- Rows being sent: few, however many wait for the same object.
CREATE INDEX outbox_sending ON outbox (destination, object_id) WHERE state = 'sending';

-- The rows of an event.
CREATE INDEX outbox_event ON outbox (event_id);

-- Rows that were given up: counted by alerts, listed for people.
CREATE INDEX outbox_dead ON outbox (destination) WHERE state = 'dead';

-- One row per attempt at a delivery. Written at the claim, before the request is made.
CREATE TABLE outbox_attempts (
  outbox_id      INTEGER NOT NULL REFERENCES outbox (id) ON DELETE CASCADE,
  number         INTEGER NOT NULL,                -- outbox.attempts at the claim
  started_at_ms  INTEGER NOT NULL,
  duration_ms    INTEGER,
  result         TEXT,                            -- NULL: it runs, or died with its process
  status         INTEGER,                         -- of the answer, if there was one
  excerpt        TEXT,                            -- the first KiB of its body
  error          TEXT,
  CHECK (result = 'delivered' OR result = 'failed' OR result = 'lost'),
  CHECK (result IS NOT NULL OR (status IS NULL AND duration_ms IS NULL)),
  PRIMARY KEY (outbox_id, number)
) STRICT, WITHOUT ROWID;

-- The state of each destination; settings are in the configuration. No row: nothing happened yet.
CREATE TABLE outbox_destinations (
  name                   TEXT    PRIMARY KEY,     -- the destination's name in the configuration
  paused_at_ms           INTEGER,                 -- while this is set, nothing is sent
  paused_because         TEXT,
  circuit_open_since_ms  INTEGER,                 -- while this is set, one request at a time is tried
  next_probe_at_ms       INTEGER,
  stale_results          INTEGER NOT NULL DEFAULT 0,  -- discarded results: they came after their lease was lost
  CHECK ((paused_at_ms IS NULL) = (paused_because IS NULL)),
  CHECK ((circuit_open_since_ms IS NULL) = (next_probe_at_ms IS NULL))
) STRICT, WITHOUT ROWID;

-- Questions for a person, who closes them with a note. 'quarantined', 'contradiction', 'thin_event' and 'replay' close by
-- themselves when the event succeeds, 'undelivered' and 'outcome_unknown' when the row is delivered or put back to work,
-- 'over_reversed' when later evidence says otherwise; 'body_conflict' and 'late_failure' never.
CREATE TABLE reviews (
  id              INTEGER PRIMARY KEY,
  kind            TEXT    NOT NULL,               -- 'quarantined' | 'contradiction' | 'thin_event' | 'over_reversed' | 'late_failure'
                                                  -- | 'body_conflict' | 'replay' | 'undelivered' | 'outcome_unknown'
  subject         TEXT    NOT NULL,               -- '<endpoint>/<event id>', an outbox row's key, or 'charge:ch_1'
  reason          TEXT    NOT NULL,               -- one sentence for a person; no personal data
  endpoint        TEXT    NOT NULL,
  event_id        TEXT    NOT NULL,
  opened_at_ms    INTEGER NOT NULL,
  resolved_at_ms  INTEGER,
  note            TEXT,                           -- what the person decided
  CHECK (kind <> '' AND subject <> '' AND reason <> ''),
  CHECK (resolved_at_ms IS NOT NULL OR note IS NULL)
) STRICT;

-- One open review per subject and kind, however often its cause occurs.
CREATE UNIQUE INDEX reviews_open ON reviews (kind, subject) WHERE resolved_at_ms IS NULL;

-- The reviews of an event, resolved or not.
CREATE INDEX reviews_event ON reviews (event_id);

-- What inboxd remembers about itself, e.g. its last start and purge. In an application's own file, whose
-- user_version is the application's, 'schema_version' stands here.
CREATE TABLE inboxd_meta (
  key            TEXT    PRIMARY KEY,
  value          ANY     NOT NULL,
  updated_at_ms  INTEGER
) STRICT;

-- Who did what by hand, from the page or the command line. Written in the act's own transaction: there is no act
-- without its row, and no row without its act.
CREATE TABLE inboxd_audit (
  id     INTEGER PRIMARY KEY,                     -- rises with time
  at_ms  INTEGER NOT NULL,
  actor  TEXT    NOT NULL,                        -- 'cli:ann', 'socket:ann', 'link:ann', 'token:ops'
  act    TEXT    NOT NULL,                        -- the verb, as the command line has it
  filter TEXT    NOT NULL,                        -- JSON object: what it was done to
  count  INTEGER NOT NULL,                        -- rows that were changed; grows while an act over many rows goes on
  note   TEXT,                                    -- why, in their own words
  CHECK (actor <> '' AND act <> '' AND count >= 0),
  CHECK (json_valid(filter))
) STRICT;

-- What came in and went out in each minute: a chart costs the same with ten million events. Written once a minute from
-- memory, kept 90 days. A minute without a row: nothing happened, or no daemon ran (inboxd_meta 'outages').
CREATE TABLE inboxd_minutes (
  minute    INTEGER NOT NULL,                     -- since the epoch
  endpoint  TEXT    NOT NULL,                     -- of an outcome 'outbox_...' the destination; '': no endpoint was reached
  outcome   TEXT    NOT NULL,                     -- the word of the answer, 'worked', or 'outbox_' and an attempt's result
  count     INTEGER NOT NULL,
  sum_ms    INTEGER NOT NULL,                     -- how long all of them took together
  max_ms    INTEGER NOT NULL,
  CHECK (outcome <> '' AND count > 0 AND sum_ms >= 0 AND max_ms >= 0),
  PRIMARY KEY (minute, endpoint, outcome)
) STRICT, WITHOUT ROWID;
