//! API servers that are measured side by side, each in a process of its own: ours on its own store, ours on etcd, and
//! kube-apiserver on the same etcd.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bayplan_apiserver::certificates::{Names, Pki, kubeconfig};
use bayplan_bench::e2e;
use bayplan_bench::measurement::cpu_seconds_of;
use bayplan_bench::report::ProcessCost;
use bayplan_client::Client;
use jiff::Timestamp;
use tempfile::TempDir;

use crate::args::{Bench, BenchServer};

/// How long a server may take to be ready on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long etcd may take to answer a question about itself.
const ASK_DEADLINE: Duration = Duration::from_secs(5);

/// A server that is ended with its measurement.
pub(super) struct MeasuredServer {
    process: Child,
    clients: e2e::Cluster,
    name: &'static str,
    /// Where etcd answers, if the server is on it.
    etcd: Option<String>,
    _folder: TempDir,
}

impl MeasuredServer {
    /// Starts a server and waits until it is ready.
    pub(super) async fn start(server: BenchServer, args: &Bench) -> Result<MeasuredServer> {
        let folder = tempfile::Builder::new().prefix("bayplan-bench-").tempdir()?;
        let etcd = (server != BenchServer::Embedded).then(|| args.etcd_servers.join(","));
        // Every measurement has a prefix of its own, so that none begins with what another left.
        let prefix = format!("/bayplan-bench-{}-{}", Timestamp::now().as_millisecond(), std::process::id());
        let (process, kubeconfigs, name) = match server {
            BenchServer::KubeApiserver => {
                let binary = args.kube_apiserver.as_ref().context("--kube-apiserver names no binary")?;
                let (process, kubeconfigs) = kube_apiserver(binary, folder.path(), &args.etcd_servers, &prefix)?;
                (process, kubeconfigs, "kube-apiserver")
            }
            BenchServer::Embedded | BenchServer::Etcd => {
                let (process, kubeconfigs) = own(folder.path(), etcd.as_deref(), &prefix)?;
                (process, kubeconfigs, "API server")
            }
        };
        let mut started = Started(Some(process));
        let [admin, scheduler] = kubeconfigs;
        let clients = e2e::Cluster { admin: client(&admin).await?, scheduler: client(&scheduler).await? };
        ready(&clients.admin, &mut started).await?;
        let process = started.0.take().context("it is taken once")?;
        Ok(MeasuredServer { process, clients, name, etcd, _folder: folder })
    }

    pub(super) fn clients(&self) -> &e2e::Cluster {
        &self.clients
    }

    /// What the server and its etcd have used so far.
    pub(super) fn costs(&self) -> Vec<ProcessCost> {
        let server = ProcessCost { name: self.name.to_owned(), cpu_seconds: cpu_seconds_of(self.process.id()) };
        let etcd = self.etcd.as_deref().and_then(etcd_cpu_seconds);
        let etcd = etcd.map(|cpu_seconds| ProcessCost { name: "etcd".to_owned(), cpu_seconds });
        [Some(server), etcd].into_iter().flatten().collect()
    }
}

impl Drop for MeasuredServer {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// A process that ends unless its start succeeds.
struct Started(Option<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(end);
    }
}

fn end(process: &mut Child) {
    // It may have ended by itself.
    let _ = process.kill();
    let _ = process.wait();
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    Ok(Client::from_kubeconfig(Some(kubeconfig), None).await?)
}

async fn ready(client: &Client, started: &mut Started) -> Result<()> {
    let begun = Instant::now();
    while let Err(status) = client.get("/readyz", "*/*").await {
        if let Some(Ok(Some(ended))) = started.0.as_mut().map(Child::try_wait) {
            bail!("the API server ended with {ended}");
        }
        if begun.elapsed() > PATIENCE {
            bail!("the API server is not ready after {} s: {status}", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// This program's API server; its administrator measures, and the scheduler acts as one too.
fn own(folder: &Path, etcd: Option<&str>, prefix: &str) -> Result<(Child, [PathBuf; 2])> {
    let data = folder.join("data");
    let mut command = Command::new(std::env::current_exe().context("cannot find this program again")?);
    command.args(["apiserver", "--port", "0", "--data-dir"]).arg(&data);
    if let Some(etcd) = etcd {
        command.args(["--etcd-servers", etcd, "--etcd-prefix", prefix]);
    }
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start a server")?;
    let stdout = process.stdout.take().context("its output is a pipe")?;
    // Its first screen ends with how to stop it; what fails before that is said on standard error.
    let mut lines = BufReader::new(stdout).lines();
    let up = lines.by_ref().map_while(Result::ok).any(|line| line.contains("Ctrl-C"));
    if !up {
        end(&mut process);
        bail!("the API server did not start");
    }
    let kubeconfig = data.join("kubeconfig");
    Ok((process, [kubeconfig.clone(), kubeconfig]))
}

fn kube_apiserver(binary: &Path, folder: &Path, etcd: &[String], prefix: &str) -> Result<(Child, [PathBuf; 2])> {
    let pki = Pki::open(&folder.join("pki"), &Names::standard(None, [10, 0, 0, 1].into()), Timestamp::now())?;
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let url = format!("https://127.0.0.1:{port}");
    let kubeconfigs = [("admin", &pki.admin), ("scheduler", &pki.scheduler)].map(|(name, identity)| {
        let path = folder.join(format!("{name}.kubeconfig"));
        kubeconfig::write(&path, &url, &pki.authority.certificate, identity).map(|()| path)
    });
    let [admin, scheduler] = kubeconfigs;
    let file = |name: &str| folder.join("pki").join(name).display().to_string();
    // The certificate is also the public half of the key that signs tokens.
    let identity = file("apiserver.pem");
    let log = std::fs::File::create(folder.join("kube-apiserver.log"))?;
    let mut command = Command::new(binary);
    command.args([
        format!("--etcd-servers={}", etcd.join(",")),
        format!("--etcd-prefix={prefix}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--tls-cert-file={identity}"),
        format!("--tls-private-key-file={identity}"),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--service-account-key-file={identity}"),
        format!("--service-account-signing-key-file={identity}"),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        // Nobody makes service accounts here, and nobody removes the taints of new nodes.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
    ]);
    let process = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
    let process = process.map_err(|error| anyhow!("--kube-apiserver {}: {error}", binary.display()))?;
    Ok((process, [admin?, scheduler?]))
}

/// The processor time of all members that tell it: etcd shows its metrics where its clients connect.
fn etcd_cpu_seconds(addresses: &str) -> Option<f64> {
    let told = addresses.split(',').map(|address| ask_etcd(address).and_then(|text| cpu_seconds_in(&text)));
    told.sum()
}

fn ask_etcd(address: &str) -> Option<String> {
    let address = address.strip_prefix("http://")?.trim_end_matches('/');
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(ASK_DEADLINE)).ok()?;
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn cpu_seconds_in(metrics: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix("process_cpu_seconds_total "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcds_processor_time_is_found_among_its_metrics() {
        let metrics = "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 12.5\nprocess_max_fds 9\n";
        assert_eq!(cpu_seconds_in(metrics), Some(12.5));
        assert_eq!(cpu_seconds_in("process_max_fds 9\n"), None);
    }
}
