//! A chunked body, decoded in place (RFC 9112, section 7.1).
//!
//! Pure: it is shown the bytes that have arrived and never reads by itself. Extensions and trailers
//! are checked, bounded and dropped; nothing of them reaches an application.

use super::head::is_token_byte;
use super::refusal::Refusal;
use crate::intake::answer::Refused;

/// Chunk extensions and trailers of one body, in bytes.
const EXTRA_BYTES_MAX: usize = 16 << 10;
const LINE_BYTES_MAX: usize = 4 << 10;

/// How far the decoding has come. Of the bytes shown, the first `decoded` are body, and those from
/// `consumed` on are still encoded; what lies between is used up.
#[derive(Debug)]
pub(super) struct Decoder {
    body_bytes_max: usize,
    pub(super) decoded: usize,
    pub(super) consumed: usize,
    extra: usize,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    Data(usize),
    DataEnd,
    Trailer,
    Complete,
}

impl Decoder {
    pub(super) fn new(body_bytes_max: usize) -> Self {
        Self { body_bytes_max, decoded: 0, consumed: 0, extra: 0, state: State::Size }
    }

    /// Decodes what it can; whether the body is complete.
    pub(super) fn advance(&mut self, bytes: &mut [u8]) -> Result<bool, Refusal> {
        loop {
            let progressed = match self.state {
                State::Complete => return Ok(true),
                State::Size => self.size(bytes)?,
                State::Data(left) => self.data(bytes, left),
                State::DataEnd => self.data_end(bytes)?,
                State::Trailer => self.trailer(bytes)?,
            };
            if !progressed {
                return Ok(false);
            }
        }
    }

    /// The caller has moved the encoded rest to where the decoded bytes end.
    pub(super) fn closed_up(&mut self) {
        self.consumed = self.decoded;
    }

    fn size(&mut self, bytes: &[u8]) -> Result<bool, Refusal> {
        let Some(line) = self.line(bytes)? else {
            return Ok(false);
        };
        let digits = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
        if digits == 0 || line.get(digits).is_some_and(|byte| *byte != b';') {
            return Err(Refusal::bad("a malformed chunk size"));
        }
        self.count_extra(line.len() - digits)?;
        let size = line[..digits]
            .iter()
            .fold(0_usize, |sum, digit| sum.saturating_mul(16).saturating_add(hex_value(*digit)));
        if size > self.body_bytes_max - self.decoded {
            return Err(Refusal::new(Refused::BodyTooLarge, "chunks beyond the body limit"));
        }
        self.consumed += line.len() + 2;
        self.state = if size == 0 { State::Trailer } else { State::Data(size) };
        Ok(true)
    }

    fn data(&mut self, bytes: &mut [u8], left: usize) -> bool {
        let take = left.min(bytes.len() - self.consumed);
        bytes.copy_within(self.consumed..self.consumed + take, self.decoded);
        self.consumed += take;
        self.decoded += take;
        self.state = if take == left { State::DataEnd } else { State::Data(left - take) };
        take == left
    }

    fn data_end(&mut self, bytes: &[u8]) -> Result<bool, Refusal> {
        match &bytes[self.consumed..] {
            [b'\r', b'\n', ..] => {
                self.consumed += 2;
                self.state = State::Size;
                Ok(true)
            }
            [] | [b'\r'] => Ok(false),
            _ => Err(Refusal::bad("a chunk longer than its size")),
        }
    }

    fn trailer(&mut self, bytes: &[u8]) -> Result<bool, Refusal> {
        let Some(line) = self.line(bytes)? else {
            return Ok(false);
        };
        let length = line.len();
        if length == 0 {
            self.state = State::Complete;
        } else {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            if name.is_empty() || name.len() == length || !name.iter().copied().all(is_token_byte) {
                return Err(Refusal::bad("a malformed trailer"));
            }
        }
        self.count_extra(length)?;
        self.consumed += length + 2;
        Ok(true)
    }

    /// The next line without its CRLF, once all of it is there.
    fn line<'a>(&self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, Refusal> {
        let rest = &bytes[self.consumed..];
        let end = rest.iter().take(LINE_BYTES_MAX).position(|byte| byte.is_ascii_control() && *byte != b'\t');
        match end.map(|end| &rest[end..]) {
            Some([b'\r', b'\n', ..]) => Ok(end.map(|end| &rest[..end])),
            Some([b'\r']) => Ok(None),
            Some(_) => Err(Refusal::bad("a control byte in the chunk framing")),
            None if rest.len() >= LINE_BYTES_MAX => {
                Err(Refusal::bad("a line over 4 KiB in the chunk framing"))
            }
            None => Ok(None),
        }
    }

    fn count_extra(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.extra += bytes;
        if self.extra > EXTRA_BYTES_MAX {
            Err(Refusal::bad("chunk extensions and trailers over 16 KiB"))
        } else {
            Ok(())
        }
    }
}

fn hex_value(digit: u8) -> usize {
    usize::from(match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type BodyAndRest = (Vec<u8>, Vec<u8>);

    /// Decodes in steps of `step` bytes: the body and what follows it.
    fn decode(encoded: &[u8], step: usize, body_bytes_max: usize) -> Result<Option<BodyAndRest>, Refusal> {
        let mut decoder = Decoder::new(body_bytes_max);
        let mut bytes = Vec::new();
        for piece in encoded.chunks(step) {
            bytes.extend_from_slice(piece);
            let complete = decoder.advance(&mut bytes)?;
            bytes.drain(decoder.decoded..decoder.consumed);
            decoder.closed_up();
            if complete {
                let rest = bytes.split_off(decoder.decoded);
                return Ok(Some((bytes, rest)));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_body_comes_out_the_same_however_it_is_cut() {
        let cases: [(&str, &str); 6] = [
            ("0\r\n\r\n", ""),
            ("5\r\nhello\r\n0\r\n\r\n", "hello"),
            ("5;x=y\r\nhello\r\n1;\"q\"\r\n!\r\n000;z\r\nX-T: 1\r\nY:\r\n\r\n", "hello!"),
            ("0000000000000000000000000A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
            ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n"),
            ("1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n", "abc"),
        ];
        for (encoded, body) in cases {
            for step in 1..=encoded.len() {
                let (decoded, rest) = decode(encoded.as_bytes(), step, 10).unwrap().unwrap();
                assert_eq!(
                    (str::from_utf8(&decoded), rest.len()),
                    (Ok(body), 0),
                    "{encoded:?} in steps of {step}"
                );
            }
            let followed = format!("{encoded}GET /");
            assert_eq!(decode(followed.as_bytes(), 1000, 10).unwrap().unwrap().1, b"GET /");
        }
    }

    #[test]
    fn malformed_or_oversized_chunks_are_refused() {
        let (bad, large) = (400, 413);
        let long_line = format!("1;{}\r\n", "x".repeat(5000));
        let much_extra = format!("1;{}\r\na\r\n", "x".repeat(2000)).repeat(9);
        let many_trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(5000));
        let huge = format!("{}\r\n", "f".repeat(40));
        let cases = [
            ("zz\r\n", bad),
            ("\r\n", bad),
            ("+1\r\na\r\n", bad),
            ("-1\r\na\r\n", bad),
            ("0x1\r\na\r\n", bad),
            (" 1\r\na\r\n", bad),
            ("1 \r\na\r\n", bad),
            ("1\na\n0\n\n", bad),
            ("1\r\nab\r\n", bad),
            ("1\r\na\n", bad),
            ("1\r\na0\r\n\r\n", bad),
            ("1;a\nb\r\n", bad),
            ("1;a\rb\r\n", bad),
            ("0\r\nX y\r\n\r\n", bad),
            ("0\r\n: y\r\n\r\n", bad),
            ("0\r\nX : y\r\n\r\n", bad),
            ("0\r\n folded\r\n\r\n", bad),
            ("0\r\nX: a\0\r\n\r\n", bad),
            (&long_line, bad),
            (&much_extra, bad),
            (&many_trailers, bad),
            ("b\r\n", large),
            ("ffffffffffffffff\r\n", large),
            (&huge, large),
            ("a\r\n0123456789\r\n1\r\n", large),
        ];
        for (encoded, status) in cases {
            for step in [1, 7, encoded.len()] {
                let refused = decode(encoded.as_bytes(), step, 10).unwrap_err();
                assert_eq!(refused.status_and_word().0, status, "{:?}", &encoded[..encoded.len().min(40)]);
            }
        }
    }

    #[test]
    fn no_prefix_is_taken_for_a_whole_body() {
        let encoded = b"5;x\r\nhello\r\n0\r\nX: y\r\n\r\n";
        for length in 0..encoded.len() {
            assert_eq!(decode(&encoded[..length], 3, 10), Ok(None), "{length}");
        }
    }
}
