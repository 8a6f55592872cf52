//! How many of its digits a provider puts behind the decimal point of each currency: for display and export only.
//!
//! A stored amount is never scaled. The tables are the providers' own, and differ from ISO 4217 and from each other: Stripe
//! sends Icelandic króna and Ugandan shilling times a hundred, and Malagasy ariary as whole units. A code that is not known
//! here is shown as the raw integer, in "minor units". Decimal texts become integers by shifting digits, never through
//! floating point.

/// Stripe's zero-decimal currencies ("Supported currencies" in its documentation).
const STRIPE_ZERO: [&str; 15] =
    ["bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf"];

/// Stripe's three-decimal currencies; the last digit is always 0.
const STRIPE_THREE: [&str; 5] = ["bhd", "jod", "kwd", "omr", "tnd"];

/// ISO 4217's currencies without minor units.
const ISO_ZERO: [&str; 17] = [
    "bif", "clp", "djf", "gnf", "isk", "jpy", "kmf", "krw", "pyg", "rwf", "ugx", "uyi", "vnd", "vuv", "xaf",
    "xof", "xpf",
];

/// ISO 4217's currencies with three decimals.
const ISO_THREE: [&str; 7] = ["bhd", "iqd", "jod", "kwd", "lyd", "omr", "tnd"];

/// Razorpay's, by its documentation; all others have two.
const RAZORPAY_THREE: [&str; 3] = ["kwd", "bhd", "omr"];

/// Currencies of two decimals, so that an unknown code is not taken for one.
const TWO: &str = "aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bmd bnd bob brl bsd btn bwp byn bzd cad cdf chf cny \
    cop crc cup cve czk dkk dop dzd egp ern etb eur fjd fkp gbp gel ghs gip gmd gtq gyd hkd hnl htg huf idr ils inr iqd irr \
    isk jmd kes kgs khr kpw kyd kzt lak lbp lkr lrd lsl lyd mad mdl mga mkd mmk mnt mop mru mur mvr mwk mxn myr mzn nad ngn \
    nio nok npr nzd pab pen pgk php pkr pln qar ron rsd rub sar sbd scr sdg sek sgd shp sle sll sos srd ssp std stn svc syp szl thb \
    tjs tmt top try ttd twd tzs uah ugx usd uyu uzs ves wst xcd yer zar zmw";

/// Digits behind the decimal point; `None` for a code that is not known.
pub fn exponent(provider: &str, currency: &str) -> Option<usize> {
    let is_in = |list: &[&str]| list.contains(&currency);
    let is_two = || TWO.split_whitespace().any(|code| code == currency);
    let (zero, three): (&[&str], &[&str]) = match provider {
        "stripe" => (&STRIPE_ZERO, &STRIPE_THREE),
        "razorpay" => (&["jpy"], &RAZORPAY_THREE),
        _ => (&ISO_ZERO, &ISO_THREE),
    };
    if is_in(zero) {
        Some(0)
    } else if is_in(three) {
        Some(3)
    } else if is_two() || is_in(&ISO_ZERO) || is_in(&ISO_THREE) {
        Some(2)
    } else {
        None
    }
}

/// The provider that an object of the books is about: it stands in the object's name, except Stripe.
pub fn provider_of(object: &str) -> &str {
    let id = object.split_once(':').map_or(object, |(_, id)| id);
    id.split_once('/').map_or("stripe", |(provider, _)| provider)
}

/// An amount with its decimal point, e.g. `-12.34`; the raw integer where the currency is not known.
pub fn decimal(provider: &str, amount: i128, currency: &str) -> String {
    let digits = exponent(provider, currency).unwrap_or(0);
    let sign = if amount < 0 { "-" } else { "" };
    let text = format!("{:0width$}", amount.unsigned_abs(), width = digits + 1);
    match digits {
        0 => format!("{sign}{text}"),
        digits => format!("{sign}{}.{}", &text[..text.len() - digits], &text[text.len() - digits..]),
    }
}

/// As [`decimal`], with the code: `-12.34 EUR`, or `1234 XYZ minor units`.
pub fn shown(provider: &str, amount: i128, currency: &str) -> String {
    let code = currency.to_ascii_uppercase();
    let amount_text = decimal(provider, amount, currency);
    if exponent(provider, currency).is_none() {
        return format!("{amount_text} {code} minor units");
    }
    // sent times a hundred, and nothing below a whole unit exists
    let is_odd = provider == "stripe" && matches!(currency, "isk" | "ugx") && amount % 100 != 0;
    if is_odd { format!("{amount_text} {code} (no whole amount)") } else { format!("{amount_text} {code}") }
}

/// The integer that a decimal text stands for. More digits than the currency has are taken only if they are zeros.
pub fn minor_units(text: &str, digits: usize) -> Option<i64> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let kept = fraction.len().min(digits);
    if fraction[kept..].bytes().any(|digit| digit != b'0') {
        return None;
    }
    let shifted = format!("{whole}{}{}", &fraction[..kept], "0".repeat(digits - kept));
    shifted.parse::<i64>().ok()?.checked_mul(sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_exception_of_stripe_and_iso_is_named() {
        for (currency, stripe, iso) in [
            ("usd", 2, 2),
            ("eur", 2, 2),
            ("jpy", 0, 0),
            ("krw", 0, 0),
            ("isk", 2, 0),
            ("ugx", 2, 0),
            ("mga", 0, 2),
            ("huf", 2, 2),
            ("twd", 2, 2),
            ("idr", 2, 2),
            ("cop", 2, 2),
            ("bhd", 3, 3),
            ("jod", 3, 3),
            ("kwd", 3, 3),
            ("omr", 3, 3),
            ("tnd", 3, 3),
            ("iqd", 2, 3),
            ("lyd", 2, 3),
        ] {
            assert_eq!(exponent("stripe", currency), Some(stripe), "stripe {currency}");
            assert_eq!(exponent("square", currency), Some(iso), "iso {currency}");
        }
        assert_eq!((exponent("razorpay", "jpy"), exponent("razorpay", "kwd")), (Some(0), Some(3)));
        assert_eq!(exponent("razorpay", "jod"), Some(2));
        assert_eq!(exponent("stripe", "xyz"), None);
    }

    #[test]
    fn amounts_are_shown_with_the_digits_of_their_currency() {
        for (amount, currency, shown_as) in [
            (1234, "eur", "12.34 EUR"),
            (-5, "usd", "-0.05 USD"),
            (500, "jpy", "500 JPY"),
            (92_000, "kwd", "92.000 KWD"),
            (150_000, "isk", "1500.00 ISK"),
            (150_001, "ugx", "1500.01 UGX (no whole amount)"),
            (77, "xyz", "77 XYZ minor units"),
        ] {
            assert_eq!(shown("stripe", amount, currency), shown_as);
        }
    }

    #[test]
    fn decimal_texts_are_shifted_and_never_rounded() {
        for (text, digits, units) in [
            ("209.00", 2, Some(20_900)),
            ("209", 2, Some(20_900)),
            ("79.6", 2, Some(7_960)),
            ("-0.05", 2, Some(-5)),
            ("822.0160", 3, Some(822_016)),
            ("822.0160", 2, None),
            ("822.0100", 2, Some(82_201)),
            ("500", 0, Some(500)),
            ("500.00", 0, Some(500)),
            ("500.5", 0, None),
            ("", 2, None),
            (".5", 2, None),
            ("1e3", 2, None),
            ("1,000.00", 2, None),
            ("92233720368547758.08", 2, None),
        ] {
            assert_eq!(minor_units(text, digits), units, "{text}");
        }
    }
}
