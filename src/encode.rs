//! Bytes as plain ASCII: hex digits and percent-encoding.
//!
//! This module only writes. Each reader of such text decides for itself how strict to be.

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        digits.extend(digits_of(*byte, b"0123456789abcdef"));
    }
    digits
}

/// Each byte that is not plain becomes `%` and two upper-case hex digits (RFC 3986, section 2.1).
pub(crate) fn percent_encoded(text: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.extend(digits_of(byte, b"0123456789ABCDEF"));
        }
    }
    encoded
}

/// Letters, digits and `-._~`, which need no encoding in any part of a URL or form (RFC 3986, section 2.3).
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn digits_of(byte: u8, digits: &[u8; 16]) -> [char; 2] {
    [byte >> 4, byte & 15].map(|half| char::from(digits[usize::from(half)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_hex_digits() {
        assert_eq!(hex(&[0x00, 0x0f, 0xa5, 0xff]), "000fa5ff");
        assert_eq!(hex(b""), "");
    }

    #[test]
    fn what_is_not_plain_is_percent_encoded_byte_by_byte() {
        assert_eq!(percent_encoded("a b/ä~", is_unreserved), "a%20b%2F%C3%A4~");
        assert_eq!(percent_encoded("%\n", |byte| byte == b'%'), "%%0A");
    }
}
