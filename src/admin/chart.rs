//! Charts of a day as inline SVG, with the same numbers as a table.
//!
//! All is integers, and every text goes through maud. A chart costs what its columns cost, however many events there are.

use maud::{Markup, html};

use super::frame::{cell, grouped, shown, table};

/// Columns of a day: one for each ten minutes.
pub const COLUMNS: usize = 144;

/// Minutes of one column.
pub const COLUMN_MINUTES: i64 = 10;

/// Of one column, in units of the drawing.
const COLUMN_WIDTH: usize = 7;

/// Of the part above the axis, and of that below it.
const HEIGHT: i64 = 140;

/// Room for the numbers on the left.
const LEFT: usize = 48;

/// The values of one kind, a column each.
#[derive(Debug, Clone)]
pub struct Series {
    /// What is counted.
    pub name: String,
    /// How it is drawn: a class of the stylesheet.
    pub class: &'static str,
    /// Whether it is drawn below the axis.
    pub is_below: bool,
    /// A value for each column.
    pub values: Vec<i64>,
}

impl Series {
    /// Without a value yet.
    pub fn new(name: impl Into<String>, class: &'static str, is_below: bool) -> Self {
        Self { name: name.into(), class, is_below, values: vec![0; COLUMNS] }
    }

    /// Adds to a column; what lies outside the day is left out.
    pub fn add(&mut self, column: Option<usize>, value: i64) {
        if let Some(known) = column.and_then(|column| self.values.get_mut(column)) {
            *known = known.saturating_add(value);
        }
    }

    /// The largest of a column and a value.
    pub fn raise(&mut self, column: Option<usize>, value: i64) {
        if let Some(known) = column.and_then(|column| self.values.get_mut(column)) {
            *known = (*known).max(value);
        }
    }
}

/// The classes of series that are told apart by colour.
pub const CLASSES: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];

/// A chart of stacked bars.
#[derive(Debug)]
pub struct Chart<'a> {
    /// What it shows.
    pub title: &'a str,
    /// What a value is, e.g. `events`.
    pub unit: &'a str,
    /// Drawn on top of each other, the first at the axis.
    pub series: &'a [Series],
    /// When each column begins, in milliseconds since the epoch.
    pub begins_ms: &'a [i64],
    /// Columns in which no daemon ran: from one, to before another.
    pub gaps: &'a [(usize, usize)],
    /// Columns in which the daemon started.
    pub starts: &'a [usize],
}

impl Chart<'_> {
    /// The drawing, its key and its numbers.
    pub fn draw(&self) -> Markup {
        let width = LEFT + COLUMNS * COLUMN_WIDTH;
        let has_below = self.series.iter().any(|series| series.is_below);
        let below = if has_below { HEIGHT / 2 } else { 0 };
        let height = HEIGHT + below + 34;
        let axis = HEIGHT + 12;
        html! {
            figure {
                svg role="img" viewBox=(format!("0 0 {width} {height}")) aria-label=(self.title) {
                    title { (self.title) }
                    desc { (self.summary()) }
                    @for (from, to) in self.gaps {
                        rect .gap x=(x(*from)) y="12" width=((to - from) * COLUMN_WIDTH) height=(HEIGHT + below) {}
                    }
                    (self.bars(false, axis, HEIGHT))
                    @if has_below { (self.bars(true, axis, below)) }
                    line .axis x1=(LEFT) y1=(axis) x2=(width) y2=(axis) {}
                    @for start in self.starts {
                        line .mark x1=(x(*start)) y1="12" x2=(x(*start)) y2=(axis) {}
                    }
                    text x="0" y="22" { (grouped(self.top(false))) }
                    @if has_below { text x="0" y=(axis + below) { (grouped(self.top(true))) } }
                    @for (column, begins_ms) in self.begins_ms.iter().enumerate().filter(|(at, _)| at % 24 == 0) {
                        text x=(x(column)) y=(height - 6) { (clock(*begins_ms)) }
                    }
                }
                figcaption {
                    (self.title)
                    ul .key {
                        @for series in self.series {
                            li .(series.class) { i aria-hidden="true" {} span { (shown(&series.name)) @if series.is_below { " (below)" } } }
                        }
                        @if !self.gaps.is_empty() { li .quiet { i aria-hidden="true" {} span { "no daemon ran" } } }
                    }
                }
                (self.numbers())
            }
        }
    }

    /// The largest sum of a column.
    fn top(&self, is_below: bool) -> i64 {
        let sum = |column: usize| {
            let side = self.series.iter().filter(|series| series.is_below == is_below);
            side.map(|series| series.values.get(column).copied().unwrap_or(0)).sum::<i64>()
        };
        (0..COLUMNS).map(sum).max().unwrap_or(0)
    }

    fn bars(&self, is_below: bool, axis: i64, height: i64) -> Markup {
        let top = self.top(is_below).max(1);
        let mut heights = Heights([0; COLUMNS]);
        html! {
            @for series in self.series.iter().filter(|series| series.is_below == is_below) {
                @for (column, value) in series.values.iter().enumerate().filter(|(_, value)| **value > 0) {
                    @let bar = (value.saturating_mul(height) / top).max(1);
                    @let from = heights.stack(column, bar);
                    rect .(series.class) x=(x(column)) width=(COLUMN_WIDTH - 1) height=(bar)
                        y=(if is_below { axis + from + 1 } else { axis - from - bar }) {}
                }
            }
        }
    }

    fn total(series: &Series) -> i64 {
        series.values.iter().fold(0, |sum, value| sum.saturating_add(*value))
    }

    fn summary(&self) -> String {
        let parts = self.series.iter().map(|series| {
            let most = series.values.iter().copied().max().unwrap_or(0);
            format!(
                "{}: {} {}, at most {} in ten minutes",
                shown(&series.name),
                grouped(Self::total(series)),
                self.unit,
                grouped(most)
            )
        });
        parts.collect::<Vec<_>>().join("; ")
    }

    /// The same numbers, by the hour.
    fn numbers(&self) -> Markup {
        let hours = COLUMNS / 6;
        let mut columns = vec!["From (UTC)"];
        columns.extend(self.series.iter().map(|series| series.name.as_str()));
        let row = |hour: usize| {
            let begins_ms = self.begins_ms.get(hour * 6).copied().unwrap_or(0);
            let of = |series: &Series| {
                let part = series.values.iter().skip(hour * 6).take(6);
                cell(grouped(part.fold(0, |sum, value| sum.saturating_add(*value))))
            };
            std::iter::once(cell(clock(begins_ms))).chain(self.series.iter().map(of)).collect()
        };
        let rows: Vec<Vec<Markup>> = (0..hours).map(row).collect();
        html! {
            details {
                summary { "The numbers by the hour" }
                (table(&format!("{} ({})", self.title, self.unit), &columns, &rows))
            }
        }
    }
}

/// How high the bars of each column stand.
struct Heights([i64; COLUMNS]);

impl Heights {
    /// Where the next bar of a column begins.
    fn stack(&mut self, column: usize, bar: i64) -> i64 {
        let Some(height) = self.0.get_mut(column) else { return 0 };
        let begins = *height;
        *height += bar;
        begins
    }
}

fn x(column: usize) -> usize {
    LEFT + column * COLUMN_WIDTH
}

/// Hours and minutes in UTC.
fn clock(at_ms: i64) -> String {
    let minutes = at_ms.div_euclid(60_000).rem_euclid(24 * 60);
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stand_on_each_other_and_within_the_drawing() {
        let (mut good, mut bad) = (Series::new("a<b", "s0", false), Series::new("refused", "sbad", true));
        good.add(Some(0), i64::MAX / 2);
        good.add(Some(143), 1);
        good.add(Some(144), 1);
        bad.add(Some(3), 7);
        let begins_ms: Vec<i64> = (0..144).map(|at| at * 600_000).collect();
        let series = [good, bad];
        let chart = Chart {
            title: "t",
            unit: "events",
            series: &series,
            begins_ms: &begins_ms,
            gaps: &[(1, 2)],
            starts: &[2],
        };
        let text = chart.draw().into_string();
        assert!(
            text.contains("role=\"img\"") && text.contains("a&lt;b") && text.contains("<desc>"),
            "{text}"
        );
        assert!(text.matches("<rect").count() == 4, "{text}");
        assert!(!text.contains("height=\"-") && !text.contains("y=\"-"), "{text}");
    }
}
