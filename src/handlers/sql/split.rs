//! Cuts a file into its statements and knows where each begins.
//!
//! It knows only the lexical rules that this needs: comments, quotes, and that a trigger's body ends at `; END ;`.
//! What a statement means is left to SQLite.

/// One statement of a file, without the semicolon that ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// From its first word on.
    pub(super) text: &'a str,
    /// Where that is in the file, in bytes.
    pub(super) start: usize,
    /// Its first word, as typed; empty where it begins with something else.
    pub(super) verb: &'a str,
}

/// The statements of a file, in order; comments between them belong to none.
pub(super) fn statements(sql: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut open: Option<Open> = None;
    for token in (Tokens { sql, at: 0 }) {
        let text = &sql[token.start..token.end];
        if text == ";" && open.as_ref().is_none_or(Open::may_end) {
            pieces.extend(open.take().map(|open| open.close(sql)));
        } else {
            open.get_or_insert_with(|| Open::at(&token)).note(&token, text);
        }
    }
    pieces.extend(open.map(|open| open.close(sql)));
    pieces
}

/// The clauses that resolve a conflict in silence (`INSERT OR IGNORE`, `REPLACE INTO`, `ON CONFLICT REPLACE`), with the
/// place of each in bytes. `ON CONFLICT … DO NOTHING` names its key and is none.
pub(super) fn silent_clauses(sql: &str) -> Vec<(usize, String)> {
    let tokens: Vec<_> = Tokens { sql, at: 0 }.collect();
    let word = |index: usize| {
        let token = tokens.get(index).filter(|token| token.is_word);
        token.map(|token| sql[token.start..token.end].to_ascii_uppercase()).unwrap_or_default()
    };
    let clause = |index: usize| {
        let words = [word(index), word(index + 1), word(index + 2)];
        match [&*words[0], &*words[1], &*words[2]] {
            ["INSERT" | "UPDATE", "OR", "IGNORE" | "REPLACE"] | ["ON", "CONFLICT", "IGNORE" | "REPLACE"] => {
                Some((tokens[index].start, words.join(" ")))
            }
            // the second half of INSERT OR REPLACE INTO is reported already
            ["REPLACE", "INTO", _] if index.checked_sub(1).is_none_or(|before| word(before) != "OR") => {
                Some((tokens[index].start, "REPLACE INTO".to_owned()))
            }
            _ => None,
        }
    };
    (0..tokens.len()).filter_map(clause).collect()
}

/// Line and column, both from 1, the column in characters.
pub(super) fn position(sql: &str, offset: usize) -> (usize, usize) {
    let before = sql.get(..offset).unwrap_or(sql);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

/// Where a function is called with a text that is written out as its first argument: the text, and where it is in
/// the statement, in bytes. An expression that only begins with a text is none.
pub(super) fn literal_arguments(sql: &str, function: &str) -> Vec<(String, usize)> {
    let tokens: Vec<_> = (Tokens { sql, at: 0 }).collect();
    let text = |token: &Token| &sql[token.start..token.end];
    let calls = tokens.windows(4).filter(|window| {
        text(&window[0]).eq_ignore_ascii_case(function) && text(&window[1]) == "(" && text(&window[3]) == ","
    });
    let literals = calls.filter_map(|window| {
        let inner = text(&window[2]).strip_prefix('\'')?.strip_suffix('\'')?;
        Some((inner.replace("''", "'"), window[2].start))
    });
    literals.collect()
}

/// A statement whose end has not come yet.
struct Open {
    start: usize,
    end: usize,
    verb_end: usize,
    tokens: usize,
    is_create: bool,
    is_trigger: bool,
    /// The last two tokens, as far as they can end a trigger.
    before_last: Mark,
    last: Mark,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Semicolon,
    End,
    Other,
}

impl Open {
    fn at(token: &Token) -> Self {
        Self {
            start: token.start,
            end: token.end,
            verb_end: if token.is_word { token.end } else { token.start },
            tokens: 0,
            is_create: false,
            is_trigger: false,
            before_last: Mark::Other,
            last: Mark::Other,
        }
    }

    fn note(&mut self, token: &Token, text: &str) {
        if self.tokens == 0 {
            self.is_create = text.eq_ignore_ascii_case("create");
        } else if self.is_create && self.tokens <= 2 && text.eq_ignore_ascii_case("trigger") {
            self.is_trigger = true;
        }
        self.tokens += 1;
        self.end = token.end;
        self.before_last = self.last;
        self.last = match text {
            ";" => Mark::Semicolon,
            word if word.eq_ignore_ascii_case("end") => Mark::End,
            _ => Mark::Other,
        };
    }

    fn may_end(&self) -> bool {
        !self.is_trigger || (self.before_last == Mark::Semicolon && self.last == Mark::End)
    }

    fn close(self, sql: &str) -> Piece<'_> {
        Piece { text: &sql[self.start..self.end], start: self.start, verb: &sql[self.start..self.verb_end] }
    }
}

struct Token {
    start: usize,
    end: usize,
    is_word: bool,
}

/// Everything but white space and comments.
struct Tokens<'a> {
    sql: &'a str,
    at: usize,
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        let bytes = self.sql.as_bytes();
        loop {
            let start = self.at;
            let first = *bytes.get(start)?;
            let rest = &self.sql[start..];
            let (length, is_token) = match first {
                b if b.is_ascii_whitespace() => (1, false),
                b'-' if rest.starts_with("--") => (rest.find('\n').unwrap_or(rest.len()), false),
                b'/' if rest.starts_with("/*") => {
                    (rest[2..].find("*/").map_or(rest.len(), |end| end + 4), false)
                }
                b'\'' | b'"' | b'`' => (quoted(rest, first), true),
                b'[' => (rest.find(']').map_or(rest.len(), |end| end + 1), true),
                b if is_word_byte(b) => {
                    (rest.bytes().position(|b| !is_word_byte(b)).unwrap_or(rest.len()), true)
                }
                _ => (1, true),
            };
            self.at = start + length;
            if is_token {
                return Some(Token { start, end: self.at, is_word: is_word_byte(first) });
            }
        }
    }
}

/// The length of a quoted text; the quote doubled stands for itself.
fn quoted(rest: &str, quote: u8) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        if bytes[at] != quote {
            at += 1;
        } else if bytes.get(at + 1) == Some(&quote) {
            at += 2;
        } else {
            return at + 1;
        }
    }
    bytes.len()
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sql: &str) -> Vec<&str> {
        statements(sql).into_iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn a_file_is_cut_at_the_semicolons_that_end_statements_and_at_no_other() {
        assert_eq!(texts("SELECT 1; SELECT 2"), ["SELECT 1", "SELECT 2"]);
        assert_eq!(texts("-- a; b\nSELECT 1 /* ; */ ;;\n; -- end"), ["SELECT 1"]);
        assert_eq!(
            texts("SELECT ';', \"a;b\", [c;d], `e;f`, 'it''s;';"),
            ["SELECT ';', \"a;b\", [c;d], `e;f`, 'it''s;'"]
        );
        assert_eq!(texts("SELECT 'not closed; SELECT 2"), ["SELECT 'not closed; SELECT 2"]);
        assert_eq!(texts("  \n -- nothing"), Vec::<&str>::new());
        assert_eq!(texts("SELECT 'ä' ; SELECT é"), ["SELECT 'ä'", "SELECT é"]);
    }

    #[test]
    fn a_trigger_ends_at_its_own_end_and_not_at_that_of_a_case() {
        let sql = "CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE b SET x = CASE WHEN 1 THEN 2 END; \
                   SELECT 1; END; SELECT 2;";
        let pieces = statements(sql);
        assert_eq!(pieces.len(), 2);
        assert!(pieces[0].text.ends_with("SELECT 1; END"), "{}", pieces[0].text);
        assert_eq!((pieces[1].text, pieces[1].verb), ("SELECT 2", "SELECT"));
    }

    #[test]
    fn a_first_argument_counts_where_it_is_a_text_and_nothing_else() {
        let found = |sql: &str| literal_arguments(sql, "send");
        assert_eq!(
            found("SELECT send('app', 1), SEND ( /* to */ 'o''x' , 2)"),
            [("app".to_owned(), 12), ("o'x".to_owned(), 39)]
        );
        for none in
            ["SELECT send(:to, 1)", "SELECT send('a' || x, 1)", "SELECT 'send(''a'', 1)'", "-- send('a', 1)"]
        {
            assert_eq!(found(none), [], "{none}");
        }
    }

    #[test]
    fn silent_clauses_are_found_in_any_case_and_not_in_comments_or_texts() {
        let found = |sql: &str| silent_clauses(sql).into_iter().map(|(_, clause)| clause).collect::<Vec<_>>();
        assert_eq!(found("insert /* x */ or\nIgnore INTO t VALUES (1)"), ["INSERT OR IGNORE"]);
        assert_eq!(found("WITH a AS (SELECT 1) INSERT OR REPLACE INTO t SELECT 1"), ["INSERT OR REPLACE"]);
        assert_eq!(
            found("UPDATE OR IGNORE t SET a = 1; REPLACE INTO t VALUES (1)"),
            ["UPDATE OR IGNORE", "REPLACE INTO"]
        );
        assert_eq!(found("CREATE TABLE t (a UNIQUE ON CONFLICT REPLACE)"), ["ON CONFLICT REPLACE"]);
        assert_eq!(
            found(
                "INSERT INTO t VALUES ('INSERT OR IGNORE', replace(a, b, c)) -- OR IGNORE\nON CONFLICT (a) DO NOTHING"
            ),
            Vec::<String>::new()
        );
        assert_eq!(silent_clauses("SELECT 1;\n  INSERT OR IGNORE INTO t VALUES (1)")[0].0, 12);
    }

    #[test]
    fn a_position_counts_lines_and_characters_from_one() {
        assert_eq!(position("abc", 0), (1, 1));
        assert_eq!(position("ä\nöx", 5), (2, 2));
        assert_eq!(position("a", 99), (1, 2));
    }
}
