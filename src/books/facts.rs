//! The table `money_facts`: what the events have told of each of the provider's objects.
//!
//! An event never changes a fact: it joins what it tells to what is known. A field is set once, or it is a maximum, or it
//! is so from now on; a field that belongs to a set is named `<set>:<member>`. Joins commute and repeat harmlessly, so
//! that the order and the number of events leave no trace. What contradicts a fact is refused, and then nothing of its
//! event may stay: the caller rolls back.

use std::fmt;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Transaction};

/// Why nothing can be booked.
#[derive(Debug)]
pub enum BooksError {
    /// SQLite refused a statement.
    Sql(rusqlite::Error),
    /// What is told cannot be true together with what is known. The sentence says why, without personal data.
    Contradiction(String),
}

impl From<rusqlite::Error> for BooksError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl fmt::Display for BooksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sql(error) => write!(f, "SQL: {error}"),
            Self::Contradiction(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for BooksError {}

/// A value that is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told<'a> {
    /// Minor units, or 1 for what is so.
    Number(i64),
    /// An id, a currency.
    Text(&'a str),
}

impl From<i64> for Told<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a str> for Told<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl Told<'_> {
    fn is(self, known: ValueRef<'_>) -> bool {
        match (self, known) {
            (Self::Number(told), ValueRef::Integer(known)) => told == known,
            (Self::Text(told), ValueRef::Text(known)) => told.as_bytes() == known,
            _ => false,
        }
    }
}

impl rusqlite::ToSql for Told<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(match self {
            Self::Number(number) => (*number).into(),
            Self::Text(text) => (*text).into(),
        })
    }
}

/// Sets a field once. Whether it is told for the first time.
///
/// # Errors
/// A contradiction where the field is known with another value.
pub fn once<'a>(
    tx: &Transaction<'_>,
    (object, field): (&str, &str),
    value: impl Into<Told<'a>>,
    event_id: &str,
) -> Result<bool, BooksError> {
    let value = value.into();
    if tx.prepare_cached(ONCE)?.execute((object, field, value, event_id))? == 1 {
        return Ok(true);
    }
    let is_same = tx.prepare_cached(FIND)?.query_row((object, field), |row| Ok(value.is(row.get_ref(0)?)))?;
    if is_same {
        return Ok(false);
    }
    Err(BooksError::Contradiction(format!("another {} than before ({})", words(field), id_of(object))))
}

/// Raises a maximum. Whether that changed it.
///
/// # Errors
/// Any SQLite error.
pub fn most(
    tx: &Transaction<'_>,
    (object, field): (&str, &str),
    value: i64,
    event_id: &str,
) -> rusqlite::Result<bool> {
    Ok(tx.prepare_cached(MOST)?.execute((object, field, value, event_id))? == 1)
}

/// From now on this is so. Whether it was not before.
///
/// # Errors
/// Any SQLite error.
pub fn mark(tx: &Transaction<'_>, (object, field): (&str, &str), event_id: &str) -> rusqlite::Result<bool> {
    Ok(tx.prepare_cached(ONCE)?.execute((object, field, 1, event_id))? == 1)
}

/// The number in a field.
///
/// # Errors
/// Any SQLite error; the field holds no number.
pub fn number(conn: &Connection, object: &str, field: &str) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(FIND)?.query_row((object, field), |row| row.get(0)).optional()
}

/// The text in a field.
///
/// # Errors
/// Any SQLite error; the field holds no text.
pub fn text(conn: &Connection, object: &str, field: &str) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached(FIND)?.query_row((object, field), |row| row.get(0)).optional()
}

/// The members of one of an object's sets.
///
/// # Errors
/// Any SQLite error.
pub fn members(conn: &Connection, object: &str, set: &str) -> rusqlite::Result<Vec<String>> {
    conn.prepare_cached(MEMBERS)?.query_map((object, set), |row| row.get(0))?.collect()
}

/// All that is known of one object. Of a set of numbers the sum is kept and not each member: a charge can have ten
/// thousand refunds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    numbers: Vec<(String, i64)>,
    texts: Vec<(String, String)>,
    sums: Vec<(String, i128)>,
}

impl Evidence {
    /// Reads it in one go.
    ///
    /// # Errors
    /// Any SQLite error.
    pub fn of(conn: &Connection, object: &str) -> rusqlite::Result<Self> {
        let mut evidence = Self::default();
        let mut statement = conn.prepare_cached(ABOUT)?;
        let mut rows = statement.query([object])?;
        while let Some(row) = rows.next()? {
            let field = row.get_ref(0)?.as_str()?;
            match row.get_ref(1)? {
                ValueRef::Integer(number) => evidence.note_number(field, number),
                other => evidence.texts.push((field.to_owned(), other.as_str()?.to_owned())),
            }
        }
        Ok(evidence)
    }

    fn note_number(&mut self, field: &str, number: i64) {
        let Some((set, _)) = field.split_once(':') else {
            self.numbers.push((field.to_owned(), number));
            return;
        };
        // members of one set come one after the other
        match self.sums.last_mut().filter(|(name, _)| name == set) {
            Some((_, sum)) => *sum += i128::from(number),
            None => self.sums.push((set.to_owned(), i128::from(number))),
        }
    }

    /// The number in a field.
    pub fn number(&self, field: &str) -> Option<i128> {
        self.numbers.iter().find(|(name, _)| name == field).map(|(_, number)| i128::from(*number))
    }

    /// The text in a field.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.texts.iter().find(|(name, _)| name == field).map(|(_, text)| text.as_str())
    }

    /// Whether something is so.
    pub fn is(&self, field: &str) -> bool {
        self.number(field).is_some_and(|number| number != 0)
    }

    /// The sum over the members of a set; 0 where it has none.
    pub fn sum(&self, set: &str) -> i128 {
        self.sums.iter().find(|(name, _)| name == set).map_or(0, |(_, sum)| *sum)
    }

    /// The members of a set of texts: their names and values.
    pub fn members<'e>(&'e self, set: &str) -> impl Iterator<Item = (&'e str, &'e str)> {
        self.texts.iter().filter_map(move |(field, text)| {
            let (name, member) = field.split_once(':')?;
            (name == set).then_some((member, text.as_str()))
        })
    }
}

/// One fact, for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// e.g. `charge:ch_1`
    pub object: String,
    /// e.g. `refund:re_1`
    pub field: String,
    /// As it is shown.
    pub value: String,
    /// The event that was first to tell.
    pub event_id: String,
}

/// The facts about an object, by their fields, at most `limit`.
///
/// # Errors
/// Any SQLite error.
pub fn about(conn: &Connection, object: &str, limit: u32) -> rusqlite::Result<Vec<Fact>> {
    conn.prepare_cached(LIST)?.query_map((object, limit), fact)?.collect()
}

fn fact(row: &rusqlite::Row<'_>) -> rusqlite::Result<Fact> {
    Ok(Fact { object: row.get(0)?, field: row.get(1)?, value: row.get(2)?, event_id: row.get(3)? })
}

/// Credit notes that name a refund of which no event has told, at most `limit`.
///
/// # Errors
/// Any SQLite error.
pub fn waiting_notes(conn: &Connection, limit: u32) -> rusqlite::Result<Vec<Fact>> {
    conn.prepare_cached(WAITING_NOTES)?.query_map([limit], fact)?.collect()
}

/// Charges of which more was refunded than the refunds that are known by name, at most `limit`: the value is the rest.
///
/// # Errors
/// Any SQLite error.
pub fn unnamed_refunds(conn: &Connection, limit: u32) -> rusqlite::Result<Vec<Fact>> {
    conn.prepare_cached(UNNAMED_REFUNDS)?.query_map([limit], fact)?.collect()
}

/// Charges that refunds or disputes name, and of which no event has told, at most `limit`.
///
/// # Errors
/// Any SQLite error.
pub fn unknown_charges(conn: &Connection, limit: u32) -> rusqlite::Result<Vec<Fact>> {
    conn.prepare_cached(UNKNOWN_CHARGES)?.query_map([limit], fact)?.collect()
}

/// A field as a person reads it.
fn words(field: &str) -> String {
    let (set, member) = field.split_once(':').unwrap_or((field, ""));
    match (set, member) {
        ("due", _) => "amount due".to_owned(),
        ("livemode", _) => "mode (live or test)".to_owned(),
        (set, "") => set.replace('_', " "),
        ("txn", member) => format!("amount of {member}"),
        (set, member) => format!("amount of {} {member}", set.replace('_', " ")),
    }
}

/// The provider's id in an object's name.
pub fn id_of(object: &str) -> &str {
    object.split_once(':').map_or(object, |(_, id)| id)
}

const ONCE: &str = "
    INSERT INTO main.money_facts (object, field, value, event_id)
    VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (object, field) DO NOTHING";

const MOST: &str = "
    INSERT INTO main.money_facts AS known (object, field, value, event_id)
    VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (object, field) DO UPDATE
       SET value = excluded.value, event_id = excluded.event_id
     WHERE excluded.value > known.value";

const FIND: &str = "
    SELECT value FROM main.money_facts WHERE object = ?1 AND field = ?2";

const MEMBERS: &str = "
    SELECT substr(field, length(?2) + 2)
      FROM main.money_facts
     WHERE object = ?1 AND field >= ?2 || ':' AND field < ?2 || ';'";

const ABOUT: &str = "
    SELECT field, value FROM main.money_facts WHERE object = ?1 ORDER BY field";

const LIST: &str = "
    SELECT object, field, CAST(value AS TEXT), event_id
      FROM main.money_facts
     WHERE object = ?1
     ORDER BY field
     LIMIT ?2";

const WAITING_NOTES: &str = "
    SELECT object, substr(field, 7), '', event_id
      FROM main.money_facts AS note
     WHERE object >= 'credit_note:' AND object < 'credit_note;' AND field >= 'names:' AND field < 'names;'
       AND NOT EXISTS (SELECT 1 FROM main.money_facts
                        WHERE object = note.object
                          AND field IN ('refund:' || substr(note.field, 7), 'own:' || substr(note.field, 7)))
     LIMIT ?1";

const UNNAMED_REFUNDS: &str = "
    SELECT object, 'refunded',
           CAST(value - coalesce((SELECT sum(value) FROM main.money_facts
                                   WHERE object = charge.object AND field >= 'refund:' AND field < 'refund;'), 0) AS TEXT),
           event_id
      FROM main.money_facts AS charge
     WHERE object >= 'charge:' AND object < 'charge;' AND field = 'refunded'
       AND value > coalesce((SELECT sum(value) FROM main.money_facts
                              WHERE object = charge.object AND field >= 'refund:' AND field < 'refund;'), 0)
                 + coalesce((SELECT value FROM main.money_facts WHERE object = charge.object AND field = 'released'), 0)
     LIMIT ?1";

const UNKNOWN_CHARGES: &str = "
    SELECT object, field, CAST(value AS TEXT), event_id
      FROM main.money_facts AS charge
     WHERE object >= 'charge:' AND object < 'charge;'
       AND (field >= 'refund:' AND field < 'refund;' OR field >= 'dispute:' AND field < 'dispute;')
       AND NOT EXISTS (SELECT 1 FROM main.money_facts WHERE object = charge.object AND field = 'amount')
     LIMIT ?1";
