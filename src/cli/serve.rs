//! `serve`: runs the daemon until a signal stops it.

use crate::config::{Address, Config, Fingerprints, MissingSecrets};
use crate::daemon::{Daemon, Ended, StartError};
use crate::logging;
use crate::signature::Secret;
use crate::store::sqlite_version;
use crate::terminal::counted;
use clap::Args;

use super::{Context, Exit, Failure, allocator, say};

/// Run the daemon; without a configuration file, a development instance in ./inboxd-data
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Listen for webhooks on this port instead of the configured one
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
}

/// Exit 0 after a stop; 75 when the storage failed, 70 when the HTTP server or the writer did: start again.
pub(crate) fn run(args: &ServeArgs, context: &Context) -> Result<(), Failure> {
    allocator::give_back_large_blocks();
    logging::start().map_err(|error| {
        Failure::new(Exit::Failed, "cannot start the thread that writes the log; look at TasksMax")
            .because(error)
    })?;
    let mut config = context.load(MissingSecrets::Make)?;
    if let Some(port) = args.port {
        listen_on(port, &mut config)?;
    }
    if config.file.is_none() {
        logging::tell_each_delivery();
    }
    for warning in &config.warnings {
        log::warn!("{warning}");
    }
    let about = About::of(&config, args.port);
    let mut daemon = Daemon::start_with(config, context.registry()).map_err(refused)?;
    if daemon.wait_until_ready() {
        about.tell(&daemon);
    }
    match daemon.wait() {
        Ended::Stopped => Ok(()),
        Ended::StorageFailed(reason) => {
            Err(Failure::new(Exit::Temporary, format!("the storage failed: {reason}")))
        }
        Ended::WriterPanicked(reason) => {
            Err(Failure::new(Exit::Internal, format!("the writer panicked: {reason}")))
        }
    }
}

/// In a development instance the private listener goes with it, so that two can run side by side.
fn listen_on(port: u16, config: &mut Config) -> Result<(), Failure> {
    let Address::Tcp(address) = &mut config.listen.webhooks else {
        let message = "--port: listen.webhooks is not a host:port; change it in the configuration file";
        return Err(Failure::new(Exit::Usage, message));
    };
    address.set_port(port);
    if let (None, Some(Address::Tcp(admin))) = (&config.file, &mut config.listen.admin) {
        admin.set_port(if port == 0 { 0 } else { port.checked_add(1).unwrap_or(port - 1) });
    }
    Ok(())
}

/// An address in use may be free later; one that this machine doesn't have is a mistake in the configuration.
fn refused(error: StartError) -> Failure {
    use std::io::ErrorKind::{
        AddrInUse, AddrNotAvailable, InvalidInput, NotADirectory, NotFound, PermissionDenied,
        ReadOnlyFilesystem,
    };
    let exit = match error {
        StartError::Storage(error) => return error.into(),
        StartError::Stopped => return Failure::new(Exit::Ok, ""),
        StartError::Listen { ref source, .. } => match source.kind() {
            AddrInUse => Exit::Busy,
            AddrNotAvailable | InvalidInput | NotADirectory | NotFound | PermissionDenied
            | ReadOnlyFilesystem => Exit::Config,
            _ => Exit::Failed,
        },
        StartError::Handlers(_) | StartError::NoSocket(_) => Exit::Config,
        StartError::Other(_) => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

/// The facts that `serve` prints once it runs.
struct About {
    is_development: bool,
    port: Option<u16>,
    public_url: Option<String>,
    data_dir: std::path::PathBuf,
    database: std::path::PathBuf,
    endpoints: Vec<(String, String, String, Vec<Secret>)>,
}

impl About {
    fn of(config: &Config, port: Option<u16>) -> Self {
        let endpoint = |endpoint: &crate::config::Endpoint| {
            (
                endpoint.name.clone(),
                endpoint.provider.clone(),
                endpoint.path.clone(),
                endpoint.secrets.clone(),
            )
        };
        Self {
            is_development: config.file.is_none(),
            port,
            public_url: config.public_url.clone(),
            data_dir: config.data_dir.clone(),
            database: config.database.clone(),
            endpoints: config.endpoints.iter().map(endpoint).collect(),
        }
    }

    /// The flags that `send` needs, because no configuration has the port.
    fn way_to(&self, daemon: &Daemon) -> String {
        let stripe = self.endpoints.iter().find(|(_, provider, ..)| provider == "stripe");
        let (Some(_), Some((_, _, path, secrets))) = (self.port, stripe) else { return String::new() };
        let secret = match secrets.first().and_then(|secret| secret.label().split_once(':')) {
            Some(("env", variable)) => format!("--secret-env {variable}"),
            Some((_, file)) => format!("--secret-file {file}"),
            None => return String::new(),
        };
        format!(" --to {}{path} {secret}", daemon.webhooks().url())
    }

    /// `ready …` is the line that scripts may wait for.
    fn tell(&self, daemon: &Daemon) {
        say(&format!("inboxd {} (SQLite {})", env!("CARGO_PKG_VERSION"), sqlite_version()));
        let events = counted(daemon.events_stored(), "event");
        say(&format!("data     {} ({events} so far)", self.database.display()));
        let base = self.public_url.clone().unwrap_or_else(|| daemon.webhooks().url());
        let fingerprints = Fingerprints::kept(&self.data_dir);
        let shown = |secret: &Secret| format!("{} ({})", secret.label(), fingerprints.text(secret));
        for (name, provider, path, secrets) in &self.endpoints {
            let secrets: Vec<_> = secrets.iter().map(shown).collect();
            say(&format!("endpoint {name}: {provider} -> {base}{path}"));
            say(&format!("         secret {}", secrets.join(", ")));
        }
        let admin = daemon.admin().map_or_else(|| "off".to_owned(), Address::url);
        say(&format!("ready    webhooks {} admin {admin}", daemon.webhooks().url()));
        if self.is_development {
            say("");
            say("This is a development instance: `inboxd init` writes a configuration file for a real one.");
            say(&format!(
                "Try, in another terminal:  inboxd send stripe invoice.paid{}",
                self.way_to(daemon)
            ));
            say("and then:                  inboxd events list");
            say("Each delivery is a line here:");
        }
    }
}
