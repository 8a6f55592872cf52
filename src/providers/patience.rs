//! How long each provider sends a failed delivery again before it gives up.

use std::time::Duration;

use super::preset::Preset;

/// Where nothing is known: as long as most do.
const USUAL: Duration = Duration::from_hours(72);

/// From the first failed delivery of an event to the last that the provider makes; zero where it makes no other.
pub fn gives_up_after(provider: &str, preset: &Preset) -> Duration {
    if !preset.retries_by_itself {
        return Duration::ZERO;
    }
    match provider {
        "lemonsqueezy" => Duration::from_mins(10),
        "slack" | "discord" | "dropbox" => Duration::from_mins(15),
        "zoom" => Duration::from_mins(90),
        "polar" => Duration::from_hours(3),
        "shopify" | "shopify_events" => Duration::from_hours(4),
        "mailgun" => Duration::from_hours(8),
        "typeform" => Duration::from_hours(10),
        "razorpay" | "sendgrid" | "xero" => Duration::from_hours(24),
        "svix" | "clerk" | "resend" => Duration::from_hours(28),
        "pagerduty" => Duration::from_hours(48),
        "standardwebhooks" => Duration::from_hours(75),
        _ => USUAL,
    }
}
