//! The arguments of `bayplan migrate`.

use std::path::PathBuf;

use bayplan_scheduler::config::GoDuration;
use clap::{ArgGroup, Args};

use super::apiserver::Etcd;
use super::go;

/// From where to where.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").args(["from", "from_etcd"]).required(true))]
#[command(group = ArgGroup::new("target").args(["to", "to_etcd"]).required(true))]
pub(crate) struct Migrate {
    /// The data folder to take the objects from; no cluster may run on it. It stays as it is.
    #[arg(long, value_name = "FOLDER", requires = "to_etcd")]
    pub(crate) from: Option<PathBuf>,
    /// The members of the etcd cluster to write the objects to, http or https. Nothing may be behind the prefix yet.
    #[arg(long, value_name = "URLS", value_delimiter = ',', requires = "from")]
    pub(crate) to_etcd: Vec<String>,
    /// The members of the etcd cluster to take the objects from. It stays as it is; its API servers must have ended.
    #[arg(long, value_name = "URLS", value_delimiter = ',', requires = "to")]
    pub(crate) from_etcd: Vec<String>,
    /// The data folder to make: new, empty, or one of a server on etcd, which holds certificates only.
    #[arg(long, value_name = "FOLDER", requires = "from_etcd")]
    pub(crate) to: Option<PathBuf>,
    /// The authority of etcd's certificates.
    #[arg(long, value_name = "PATH", help_heading = "etcd")]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// The client certificate for etcd.
    #[arg(long, value_name = "PATH", requires = "etcd_keyfile", help_heading = "etcd")]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "PATH", requires = "etcd_certfile", help_heading = "etcd")]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// What all keys in etcd begin with.
    #[arg(long, value_name = "PATH", default_value = "/registry", help_heading = "etcd")]
    pub(crate) etcd_prefix: String,
    /// How objects are, or will be, encrypted in etcd; a data folder is not encrypted.
    #[arg(long, value_name = "PATH", help_heading = "etcd")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
    /// How long events are kept in etcd from now on.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = go::duration, help_heading = "etcd")]
    pub(crate) event_ttl: GoDuration,
}

impl Migrate {
    /// How to reach etcd, on whichever side it is.
    pub(crate) fn etcd(&self) -> Etcd {
        Etcd {
            etcd_servers: [&*self.from_etcd, &*self.to_etcd].concat(),
            etcd_cafile: self.etcd_cafile.clone(),
            etcd_certfile: self.etcd_certfile.clone(),
            etcd_keyfile: self.etcd_keyfile.clone(),
            etcd_prefix: self.etcd_prefix.clone(),
            encryption_provider_config: self.encryption_provider_config.clone(),
        }
    }
}
