//! `bayplan` in the background, and objects in its cluster.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bayplan_client::Client;
use bayplan_model::api::{Api, Request, Resource, Verb};
use serde_json::Value;

/// A `bayplan` that serves a page; ended with the test.
pub(crate) struct Served {
    process: Child,
    /// The URL with the token.
    pub(crate) url: String,
}

impl Served {
    /// Starts a command and reads the URL from what it prints.
    pub(crate) fn start(arguments: &[&str]) -> Served {
        let mut process = Command::new(env!("CARGO_BIN_EXE_bayplan"))
            .args(arguments)
            .env_remove("RUST_LOG")
            .env_remove("KUBECONFIG")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut url = None;
        for line in lines.by_ref() {
            url = url.or(line.find("http://").map(|at| line[at..].trim().to_owned()));
            if line.contains("Ctrl-C") {
                break;
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        Served { process, url: url.expect("a page with a URL") }
    }

    /// The page without its token.
    pub(crate) fn origin(&self) -> &str {
        self.url.split_once("/?token=").expect("a token").0
    }

    /// Stops it as Ctrl-C does.
    pub(crate) fn stop(mut self) {
        assert!(Command::new("kill").args(["-INT", &self.process.id().to_string()]).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Creates a pod in the namespace `default`.
pub(crate) fn create_pod(kubeconfig: &Path, pod: &Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::from_kubeconfig(Some(kubeconfig), None).await.unwrap();
        let resource = Resource::new("", "v1", "pods");
        let create = Verb::Create(pod.to_string().into());
        client.call(Request::collection(&resource, "default", create)).await.unwrap();
    });
}
