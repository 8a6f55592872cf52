//! Fields of a provider's object, read with nothing taken for granted. An error says what is wrong with
//! the field, without its value.

use serde_json::Value;

/// An id as Stripe writes them: up to 255 bytes. Null and "" are no id; the error says what else is wrong.
pub(super) fn id_text(id: &Value) -> Result<Option<&str>, &'static str> {
    match id {
        Value::Null => Ok(None),
        Value::String(id) if id.is_empty() => Ok(None),
        Value::String(id) if id.len() > ID_BYTES_MAX => Err("is longer than 255 bytes"),
        Value::String(id) if id.chars().any(char::is_control) => Err("contains control characters"),
        Value::String(id) => Ok(Some(id)),
        _ => Err("is not text"),
    }
}

const ID_BYTES_MAX: usize = 255;

/// A time in seconds since 1970, as milliseconds. `None` where it cannot be the time of an event: before 1970 or after
/// the year 9999, as milliseconds taken for seconds are.
pub(super) fn time_ms(seconds: &Value) -> Option<i64> {
    let seconds = seconds.as_i64().filter(|seconds| (0..YEAR_10000_S).contains(seconds))?;
    Some(seconds * 1000)
}

const YEAR_10000_S: i64 = 253_402_300_800;

/// A whole number of minor units, exactly as sent; the error says what is wrong with it.
pub(super) fn amount(amount: Option<&Value>) -> Result<i64, &'static str> {
    match amount {
        None | Some(Value::Null) => Err("is missing"),
        Some(Value::Number(number)) => match number.as_i64() {
            Some(amount) if amount >= 0 => Ok(amount),
            Some(_) => Err("is negative"),
            None => Err("is not a whole number of 64 bits"),
        },
        Some(_) => Err("is not a number"),
    }
}

/// As [`amount`], where less than nothing has a meaning.
pub(super) fn signed_amount(amount: Option<&Value>) -> Result<i64, &'static str> {
    match amount {
        None | Some(Value::Null) => Err("is missing"),
        Some(Value::Number(number)) => number.as_i64().ok_or("is not a whole number of 64 bits"),
        Some(_) => Err("is not a number"),
    }
}

/// The id of an object: a string, or the object that was expanded in its place.
pub(super) fn reference<'a>(id: &'a Value, what: &str) -> Result<Option<&'a str>, String> {
    let id = if id.is_object() { &id["id"] } else { id };
    id_text(id).map_err(|problem| format!("{what} {problem}"))
}

/// A currency code in lower case, or none.
pub(super) fn currency(currency: &Value) -> Result<Option<String>, String> {
    match currency {
        Value::Null => Ok(None),
        Value::String(code) if is_currency_code(code) => Ok(Some(code.to_ascii_lowercase())),
        _ => Err("the currency is not a code of three letters".to_owned()),
    }
}

/// ISO 4217, which is what Stripe's money is in.
pub(super) fn is_currency_code(code: &str) -> bool {
    code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With milliseconds for seconds, `money export` of the whole books failed for ever.
    #[test]
    fn what_cannot_be_the_time_of_an_event_is_no_time() {
        assert_eq!(time_ms(&1_796_119_716.into()), Some(1_796_119_716_000));
        assert_eq!(time_ms(&0.into()), Some(0));
        for seconds in [-5, 1_796_119_716_000, YEAR_10000_S, i64::MAX] {
            assert_eq!(time_ms(&seconds.into()), None, "{seconds}");
        }
    }
}
