//! The books end the same in every order: random histories of a shop, told in eight API generations, shuffled and repeated.
//!
//! `INBOXD_HISTORIES` says how many (2,000 where nothing is said), `INBOXD_SEED` where to begin: a failure names the seed of
//! its history, and `INBOXD_HISTORIES=1 INBOXD_SEED=<seed>` repeats it.

#![allow(clippy::unwrap_used, reason = "in a test, a failed unwrap is the failure")]

mod contradictions;
mod elsewhere;
mod rig;
mod shop;
mod subscriptions;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use inboxd::handlers::Handled;
use rig::{Balances, Books, database};
use rusqlite::Connection;
use shop::{GENERATIONS, Random, Shop, Told};

/// Up to so many events are delivered in every order.
const EVERY_ORDER_EVENTS_MAX: usize = 6;

/// Orders of a longer history.
const SHUFFLES: usize = 40;

fn number(name: &str, default: u64) -> u64 {
    #[allow(clippy::disallowed_methods, reason = "what the person who runs the test wants")]
    let given = std::env::var(name);
    given.ok().map_or(default, |text| text.parse().unwrap())
}

/// What every order must lead to.
struct Expected<'a> {
    shop: &'a Shop,
    seed: u64,
    objects: Option<Balances>,
}

impl Expected<'_> {
    fn told(&self) -> String {
        let mut told = format!("seed {}\n", self.seed);
        for event in &self.shop.events {
            writeln!(
                told,
                "{} {} {} {}",
                event.endpoint, event.id, event.event_type, event.body["data"]["object"]
            )
            .unwrap();
        }
        told
    }

    /// The end of one order.
    fn check(&mut self, books: &mut Books<'_>, order: &[&Told]) {
        assert!(books.questions.is_empty(), "{:?}\n{}", books.questions, self.told());
        let balances = books.balances();
        if let Some(objects) = &self.objects {
            // whatever was true of them in the first order
            assert_eq!(&balances, objects, "{}\nin the order {:?}", self.told(), names(order));
            assert_eq!(alarms(books), self.alarms(), "{}\nin the order {:?}", self.told(), names(order));
            return;
        }
        let truth: BTreeMap<_, _> = self
            .shop
            .truth
            .iter()
            .map(|((kind, currency), amount)| (((*kind).to_owned(), (*currency).to_owned()), *amount))
            .collect();
        assert_eq!(books.sums(), truth, "{}\nin the order {:?}", self.told(), names(order));
        let unbalanced =
            "SELECT count(*) FROM (SELECT 1 FROM postings GROUP BY currency HAVING sum(amount) <> 0)";
        assert_eq!(books.number(unbalanced), 0);
        assert_eq!(alarms(books), self.alarms(), "{}", self.told());
        for ((object, account, _), amount) in &balances {
            let is_settled = account != "receivable" || !object.starts_with("invoice:") || *amount == 0;
            let id = object.split_once(':').unwrap().1;
            let notes: i64 = note_balance(books, id);
            assert!(
                is_settled || *amount + notes == 0 || self.shop.open.contains(id),
                "{object} is left with {amount}\n{}",
                self.told()
            );
        }
        self.objects = Some(balances);
    }

    fn alarms(&self) -> BTreeSet<String> {
        self.shop.over_reversed.iter().map(|charge| format!("over_reversed {charge}")).collect()
    }
}

fn alarms(books: &Books<'_>) -> BTreeSet<String> {
    let asked = books.column("SELECT kind || ' ' || subject FROM reviews WHERE resolved_at_ms IS NULL");
    asked.into_iter().collect()
}

/// What credit notes took off an invoice is in lines of their own.
fn note_balance(books: &Books<'_>, invoice: &str) -> i64 {
    let lines = books.column(&format!(
        "SELECT CAST(coalesce(sum(amount), 0) AS TEXT) FROM ledger_entries WHERE invoice_id = '{invoice}' AND kind = 'credit_note'"
    ));
    lines[0].parse().unwrap()
}

fn names(order: &[&Told]) -> Vec<String> {
    order.iter().map(|told| format!("{} {}", told.id, told.event_type)).collect()
}

fn entries(books: &Books<'_>) -> i64 {
    books.number("SELECT count(*) FROM ledger_entries")
}

fn deliver(books: &mut Books<'_>, expected: &Expected<'_>, told: &Told) {
    let handled = books.deliver(told);
    let is_fine = matches!(handled, Handled::Applied | Handled::Ignored);
    assert!(is_fine, "{handled:?} {}\n{}", told.id, expected.told());
}

/// As [`deliver`]; and what the event is not about must not change.
fn deliver_and_look(books: &mut Books<'_>, expected: &Expected<'_>, told: &Told) {
    let last = books.number("SELECT coalesce(max(id), 0) FROM ledger_entries");
    deliver(books, expected, told);
    for object in books.booked_after(last) {
        let id = object.split_once(':').unwrap().1;
        // a credit note may have waited for its refund
        let is_named =
            told.body.to_string().contains(&format!("\"{id}\"")) || object.starts_with("credit_note:");
        assert!(is_named, "{} changed {object}", told.id);
    }
}

/// All permutations, each prefix delivered once.
fn every_order<'e>(
    books: &mut Books<'_>,
    expected: &mut Expected<'_>,
    rest: &mut Vec<&'e Told>,
    order: &mut Vec<&'e Told>,
    orders: &AtomicUsize,
) {
    if rest.is_empty() {
        expected.check(books, order);
        orders.fetch_add(1, Ordering::Relaxed);
        return;
    }
    for turn in 0..rest.len() {
        let told = rest.remove(turn);
        order.push(told);
        books.mark();
        deliver(books, expected, told);
        every_order(books, expected, rest, order, orders);
        books.back();
        order.pop();
        rest.insert(turn, told);
    }
}

/// One history in all its orders.
fn tell(conn: &Connection, seed: u64, versions: &[&'static str], orders: &AtomicUsize) {
    let shop = Shop::history(seed, versions);
    let mut random = shop.random.clone();
    let mut expected = Expected { shop: &shop, seed, objects: None };
    let events: Vec<_> = shop.events.iter().collect();
    let mut books = Books::begin(conn);
    if events.len() <= EVERY_ORDER_EVENTS_MAX {
        every_order(&mut books, &mut expected, &mut events.clone(), &mut Vec::new(), orders);
    }
    let shuffles = if events.len() <= EVERY_ORDER_EVENTS_MAX { 2 } else { SHUFFLES };
    for _ in 0..shuffles {
        let mut order = events.clone();
        // copies, anywhere
        for _ in 0..random.below(events.len() + 1) {
            order.push(events[random.below(events.len())]);
        }
        random.shuffle(&mut order);
        books.mark();
        for told in &order {
            deliver_and_look(&mut books, &expected, told);
        }
        expected.check(&mut books, &order);
        let before = entries(&books);
        order.iter().take(5).for_each(|told| deliver(&mut books, &expected, told));
        assert_eq!(entries(&books), before, "a repetition was booked\n{}", expected.told());
        books.back();
        orders.fetch_add(1, Ordering::Relaxed);
    }
}

/// One generation, or two endpoints of different generations at once.
fn versions(seed: u64) -> Vec<&'static str> {
    let mut random = Random::new(seed ^ 0x5eed);
    let first = GENERATIONS[usize::try_from(seed % 8).unwrap()];
    let second = random.pick(&GENERATIONS);
    if random.one_in(4) && second != first { vec![first, second] } else { vec![first] }
}

#[test]
fn every_history_ends_in_the_same_books_in_every_order_and_generation() {
    let histories = number("INBOXD_HISTORIES", 2_000);
    let first = number("INBOXD_SEED", 1);
    let (next, orders) = (AtomicU64::new(first), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let conn = database();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + histories {
                        return;
                    }
                    tell(&conn, seed, &versions(seed), &orders);
                }
            });
        }
    });
    let said = format!("{histories} histories from seed {first}, {} orders", orders.load(Ordering::Relaxed));
    assert!(orders.load(Ordering::Relaxed) > usize::try_from(histories).unwrap(), "{said}");
    drop(std::io::Write::write_all(&mut std::io::stderr(), format!("{said}\n").as_bytes()));
}
