//! Tables with aligned columns, which fit into a terminal's width.
//!
//! Output into a pipe or a file is never cut.

use std::io::{IsTerminal as _, stdout};

use crate::terminal::printable;

/// The space between two columns.
const GAP: usize = 2;

/// The width of a terminal that does not report one.
const USUAL_WIDTH: usize = 80;

/// A column of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    name: &'static str,
    /// The narrowest width if room is short; `None`: the column is never cut.
    min: Option<usize>,
    /// If that is still too wide, columns are left out, those of the highest rank first; 0: never.
    rank: u8,
}

/// A column that is always shown in full.
pub(crate) const fn whole(name: &'static str) -> Column {
    Column { name, min: None, rank: 0 }
}

/// A column that may be cut to `min` characters, and with a rank above 0 be left out.
pub(crate) const fn flexible(name: &'static str, min: usize, rank: u8) -> Column {
    Column { name, min: Some(min), rank }
}

/// A list whose rows are all known, or come one after the other.
#[derive(Debug)]
pub(crate) struct List<'a> {
    columns: &'a [Column],
    width: Option<usize>,
    widths: Vec<usize>,
    is_begun: bool,
}

impl<'a> List<'a> {
    /// As wide as the terminal, or with `is_wide` as wide as its contents.
    pub(crate) fn new(columns: &'a [Column], is_wide: bool) -> Self {
        Self::within(columns, if is_wide { None } else { terminal_width() })
    }

    fn within(columns: &'a [Column], width: Option<usize>) -> Self {
        let widths = columns.iter().map(|column| column.name.chars().count()).collect();
        Self { columns, width, widths, is_begun: false }
    }

    /// Formats these rows, [`printable`]; the head precedes the very first row.
    pub(crate) fn lay_out(&mut self, rows: &[Vec<String>]) -> String {
        let rows: Vec<Vec<_>> =
            rows.iter().map(|row| row.iter().map(|cell| printable(cell).into_owned()).collect()).collect();
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let widths = fit(self.columns, &self.widths, self.width);
        let mut text = String::new();
        if !std::mem::replace(&mut self.is_begun, true) {
            text.push_str(&line(self.columns.iter().map(|column| column.name), &widths));
        }
        for row in &rows {
            text.push_str(&line(row.iter().map(String::as_str), &widths));
        }
        text
    }
}

/// The width of each column; `None`: it is left out.
fn fit(columns: &[Column], natural: &[usize], width: Option<usize>) -> Vec<Option<usize>> {
    let mut widths: Vec<Option<usize>> = natural.iter().copied().map(Some).collect();
    let Some(width) = width else { return widths };
    let least = |(column, natural): (&Column, &usize)| column.min.map_or(*natural, |min| min.min(*natural));
    let least: Vec<_> = columns.iter().zip(natural).map(least).collect();
    loop {
        let kept: Vec<_> = (0..columns.len()).filter(|at| widths[*at].is_some()).collect();
        let total: usize =
            kept.iter().map(|at| least[*at]).sum::<usize>() + GAP * kept.len().saturating_sub(1);
        let last = kept.iter().copied().filter(|at| columns[*at].rank > 0).max_by_key(|at| columns[*at].rank);
        match last {
            Some(at) if total > width => widths[at] = None,
            _ => break,
        }
    }
    let used = |widths: &[Option<usize>]| {
        let kept: Vec<usize> = widths.iter().copied().flatten().collect();
        kept.iter().sum::<usize>() + GAP * kept.len().saturating_sub(1)
    };
    // the least important columns shrink first, those without a rank last
    let mut order: Vec<_> = (0..columns.len()).filter(|at| columns[*at].min.is_some()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(columns[*at].rank));
    for at in order {
        let over = used(&widths).saturating_sub(width);
        if let Some(now) = widths[at] {
            widths[at] = Some(now.saturating_sub(over).max(least[at]));
        }
    }
    widths
}

fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[Option<usize>]) -> String {
    let kept = cells.zip(widths).filter_map(|(cell, width)| width.map(|width| cut(cell, width)));
    let line = kept.collect::<Vec<_>>().join(&" ".repeat(GAP));
    format!("{}\n", line.trim_end())
}

fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return format!("{cell:<width$}");
    }
    let kept: String = cell.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// The width of the terminal on stdout.
fn terminal_width() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    let reported = rustix::termios::tcgetwinsize(stdout()).map_or(0, |size| usize::from(size.ws_col));
    Some(if reported == 0 { USUAL_WIDTH } else { reported })
}

/// Columns that line up, made [`printable`]: a sender chooses ids, an alias chooses a column's name.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut lines = vec![head.iter().map(|name| printable(name)).collect::<Vec<_>>()];
    lines.extend(rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..head.len()).map(|column| Some(width(column))).collect();
    lines.iter().map(|cells| line(cells.iter().map(AsRef::as_ref), &widths)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] =
        [whole("WHEN"), flexible("EVENT", 6, 0), flexible("TYPE", 5, 1), flexible("OBJECT", 4, 2)];

    fn row(cells: [&str; 4]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    fn lay_out(width: Option<usize>) -> String {
        let rows = [row(["10:00", "evt_123456", "invoice.paid", "in_1234"])];
        List::within(&COLUMNS, width).lay_out(&rows)
    }

    #[test]
    fn what_goes_into_a_file_is_whole_and_what_goes_to_a_terminal_is_as_wide_as_it() {
        assert_eq!(
            lay_out(None),
            "WHEN   EVENT       TYPE          OBJECT\n10:00  evt_123456  invoice.paid  in_1234\n"
                .replace("\\\n", "\n")
        );
        assert_eq!(lay_out(Some(40)), lay_out(None));
        for width in 20..40 {
            let text = lay_out(Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
    }

    #[test]
    fn the_least_important_column_is_cut_first_and_then_left_out() {
        assert_eq!(lay_out(Some(37)).lines().last().unwrap(), "10:00  evt_123456  invoice.paid  in_…");
        assert_eq!(lay_out(Some(35)).lines().last().unwrap(), "10:00  evt_123456  invoice.p…  in_…");
        assert_eq!(lay_out(Some(24)).lines().last().unwrap(), "10:00  evt_123456  invo…");
    }

    #[test]
    fn rows_that_come_later_stand_under_the_same_head() {
        let mut list = List::within(&COLUMNS, None);
        assert_eq!(list.lay_out(&[row(["1", "a", "b", "c"])]).lines().count(), 2);
        assert_eq!(
            list.lay_out(&[row(["2", "long_id", "b", "c"])]),
            "2     long_id  b     c\n".replace("\\\n", "\n")
        );
    }
}
