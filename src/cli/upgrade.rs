//! `upgrade`: inboxd's tables in an application's own file, from an older version to this one's.

use crate::config::MissingSecrets;
use crate::store::open::{self, Upgraded};
use clap::Args;

use super::{Context, Exit, Failure, put};

/// Upgrade inboxd's tables in an application's own file
///
/// `serve` upgrades a file of inboxd's own by itself
#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// Do it; without this flag, only say what would be done
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print the statements, for the sqlite3 shell
    #[arg(long, conflicts_with = "yes")]
    pub(crate) print: bool,
}

/// Upgrades while inboxd is stopped, or says what it would do.
pub(crate) fn run(args: &UpgradeArgs, context: &Context) -> Result<(), Failure> {
    let config = context.load(MissingSecrets::ReadNone)?;
    if config.embedded.is_none() {
        return put(
            "the file is inboxd's own: `inboxd serve` upgrades it at its start, after it has made a copy\n",
        );
    }
    let path = &config.database;
    let Upgraded::From(from) = open::upgrade_embedded(path, true)? else {
        return put(&format!("{} is up to date\n", path.display()));
    };
    if args.yes {
        // an older daemon would continue on tables that it does not know
        let lock = open::lock_data_dir(&config.data_dir)?;
        open::upgrade_embedded(path, false)?;
        drop(lock);
        return put(&format!("{}: inboxd's tables are upgraded\n", path.display()));
    }
    if args.print {
        return put(&open::upgrade_script(from).unwrap_or_default());
    }
    let advice = "stop inboxd, copy the file, then add --yes; or --print shows the statements";
    Err(Failure::new(
        Exit::Refused,
        format!(
            "{}: would upgrade inboxd's tables from version {from}, in one transaction during which the application cannot \
             write, and touch nothing else; {advice}",
            path.display()
        ),
    ))
}
