-- From schema version 2 to 3: the tables of the built-in handlers, which an application's file does not have.
-- Nothing is booked by an upgrade: the books hold the same lines before and after.
CREATE TABLE ledger_kinds (
  kind    TEXT PRIMARY KEY,
  book    TEXT NOT NULL,
  contra  TEXT NOT NULL,
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
CREATE TABLE ledger_entries_3 (
  id              INTEGER PRIMARY KEY,
  entry_key       TEXT    NOT NULL UNIQUE,
  invoice_id      TEXT,
  kind            TEXT    NOT NULL REFERENCES ledger_kinds (kind),
  amount          INTEGER NOT NULL,
  currency        TEXT    NOT NULL,
  event_id        TEXT    NOT NULL,
  endpoint        TEXT    NOT NULL,
  booked_at_ms    INTEGER NOT NULL,
  object          TEXT    NOT NULL,
  account         TEXT,
  livemode        INTEGER,
  occurred_at_ms  INTEGER,
  CHECK (amount <> 0),
  CHECK (currency <> '' AND currency = lower(currency)),
  CHECK (object <> ''),
  CHECK (livemode IN (0, 1))
) STRICT;
-- Rows keep id, key, amount and event. What their events said of account, mode and time is not guessed.
INSERT INTO ledger_entries_3 (id, entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms, object)
SELECT id, entry_key, invoice_id, kind, amount, currency, event_id, endpoint, booked_at_ms,
       'invoice:' || coalesce(invoice_id, substr(entry_key, 9))
  FROM ledger_entries ORDER BY id;
DROP TABLE ledger_entries;
ALTER TABLE ledger_entries_3 RENAME TO ledger_entries;
CREATE INDEX ledger_entries_object ON ledger_entries (object, kind, currency, amount);
CREATE TRIGGER ledger_entries_are_not_updated BEFORE UPDATE ON ledger_entries
BEGIN SELECT RAISE(ABORT, 'ledger_entries is append-only: book a correcting entry instead'); END;
CREATE TRIGGER ledger_entries_are_not_deleted BEFORE DELETE ON ledger_entries
BEGIN SELECT RAISE(ABORT, 'ledger_entries is append-only: book a correcting entry instead'); END;
CREATE TRIGGER ledger_entries_are_not_replaced BEFORE INSERT ON ledger_entries
WHEN EXISTS (SELECT 1 FROM ledger_entries WHERE entry_key = NEW.entry_key OR id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'ledger_entries is append-only: this entry is in the books'); END;
CREATE VIEW postings (id, entry_key, book, amount, currency, kind, object, event_id) AS
  SELECT e.id, e.entry_key, k.book, e.amount, e.currency, e.kind, e.object, e.event_id
    FROM ledger_entries e JOIN ledger_kinds k ON k.kind = e.kind
  UNION ALL
  SELECT e.id, e.entry_key, k.contra, -e.amount, e.currency, e.kind, e.object, e.event_id
    FROM ledger_entries e JOIN ledger_kinds k ON k.kind = e.kind;
CREATE VIEW cash_entries AS
  SELECT e.* FROM ledger_entries e JOIN ledger_kinds k ON k.kind = e.kind WHERE k.book = 'provider';
CREATE TABLE money_facts (
  object    TEXT NOT NULL,
  field     TEXT NOT NULL,
  value     ANY  NOT NULL,
  event_id  TEXT NOT NULL,
  CHECK (object <> '' AND field <> ''),
  PRIMARY KEY (object, field)
) STRICT, WITHOUT ROWID;
CREATE TABLE subscription_states (
  id                     TEXT    PRIMARY KEY,
  customer_id            TEXT,
  status                 TEXT    NOT NULL,
  products               TEXT    NOT NULL,
  current_period_end_ms  INTEGER,
  cancel_at_ms           INTEGER,
  is_paused              INTEGER NOT NULL,
  account                TEXT,
  livemode               INTEGER,
  told_at_ms             INTEGER NOT NULL,
  told_rank              INTEGER NOT NULL,
  event_id               TEXT    NOT NULL,
  updated_at_ms          INTEGER NOT NULL,
  CHECK (json_valid(products)),
  CHECK (is_paused IN (0, 1) AND livemode IN (0, 1)),
  CHECK (told_rank BETWEEN 1 AND 3)
) STRICT, WITHOUT ROWID;
CREATE VIEW subscription_access (customer, product, until, why) AS
  SELECT s.customer_id, p.value, coalesce(s.cancel_at_ms, s.current_period_end_ms), s.status
    FROM subscription_states s, json_each(s.products) p
   WHERE s.status IN ('trialing', 'active', 'past_due');
ALTER TABLE invoices ADD COLUMN account TEXT;
ALTER TABLE invoices ADD COLUMN livemode INTEGER CHECK (livemode IN (0, 1));
ALTER TABLE invoices ADD COLUMN amount_due INTEGER;
ALTER TABLE invoices ADD COLUMN total INTEGER;
