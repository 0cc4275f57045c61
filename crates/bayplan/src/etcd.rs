//! The store on etcd, as the flags name it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bayplan_apiserver::StoredCodec;
use bayplan_etcd::{ConnectError, EtcdStore, Options, Tls};
use bayplan_kinds::stored_value::StoredForm;
use bayplan_store::Store;
use tokio::time::Instant;

use crate::args::apiserver::Etcd;

/// How long a server waits for an etcd that does not answer yet, as kube-apiserver does before it ends.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// How often it tries meanwhile.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// There, below the prefix, until a migration has written all objects; says which migration.
pub(crate) const UNFINISHED_KEY: &str = "/registry/bayplan.dev/unfinished-migration";

/// Connects for a server: waits for an etcd that is not there yet, and refuses a prefix that holds a part of a cluster.
pub(crate) async fn connect_server(etcd: &Etcd) -> Result<EtcdStore> {
    let begun = Instant::now();
    let mut told = false;
    let store = loop {
        match EtcdStore::connect(options(etcd)?).await {
            Ok(store) => break store,
            Err(error @ ConnectError::Unreachable(_)) if begun.elapsed() < WAIT_MAX => {
                if !told {
                    tracing::warn!("{error}; trying for {} s", WAIT_MAX.as_secs());
                    told = true;
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(error) => return Err(anyhow!("--etcd-servers: {error}")),
        }
    };
    if told {
        tracing::warn!(after = ?begun.elapsed(), "etcd answers");
    }
    check_finished(&store, &etcd.etcd_prefix).await?;
    tracing::info!(etcd = store.describe(), "the objects are in etcd");
    Ok(store)
}

/// Connects at once or not at all.
pub(crate) async fn connect(etcd: &Etcd) -> Result<EtcdStore> {
    Ok(EtcdStore::connect(options(etcd)?).await?)
}

/// Refuses a prefix that a migration did not finish: what is there may be a part only.
pub(crate) async fn check_finished(store: &EtcdStore, prefix: &str) -> Result<()> {
    let Some(entry) = store.get(UNFINISHED_KEY).await? else { return Ok(()) };
    bail!(
        "the prefix {prefix} in etcd is incomplete: {} into it is under way or was interrupted; if nothing works on \
         it, remove it (etcdctl del --prefix {}/) and begin again",
        String::from_utf8_lossy(&entry.value),
        prefix.trim_end_matches('/')
    )
}

/// The flags as the store takes them; files are read each time, as they may have been renewed.
fn options(etcd: &Etcd) -> Result<Options> {
    let mut codec = StoredCodec::new(StoredForm::default(), &etcd.etcd_prefix);
    if let Some(path) = &etcd.encryption_provider_config {
        let flag = || format!("--encryption-provider-config {}", path.display());
        let text = std::fs::read_to_string(path).with_context(flag)?;
        codec = codec.with_encryption(&text).with_context(flag)?;
    }
    let read = |flag: &str, path: &Option<PathBuf>| match path {
        None => Ok(None),
        Some(path) => std::fs::read(path).map(Some).map_err(|error| anyhow!("{flag} {}: {error}", path.display())),
    };
    let certificate = read("--etcd-certfile", &etcd.etcd_certfile)?;
    let key = read("--etcd-keyfile", &etcd.etcd_keyfile)?;
    let tls = Tls { ca_pem: read("--etcd-cafile", &etcd.etcd_cafile)?, identity_pem: certificate.zip(key) };
    let mut options = Options::new(etcd.etcd_servers.iter().cloned());
    options.tls = Some(tls);
    options.prefix.clone_from(&etcd.etcd_prefix);
    options.codec = Arc::new(codec);
    Ok(options)
}
