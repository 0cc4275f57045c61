//! `bayplan mcp`: the asking verbs for clients of the Model Context Protocol, over standard input and output.
//!
//! ```text
//!   client ─tools/call─▶ tools (arguments → command line) ─▶ this binary, as a child ─JSON─▶ client
//! ```
//!
//! A question runs in a process of its own: it gets the answer that the command line gives, is ended when it takes too
//! long, and cannot take the server with it. The cluster is the one the server was started for: a client names objects
//! in it and sends manifests, but never a file, an address or a credential.

mod tools;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use tokio::process::Command;
use tokio::sync::Semaphore;

use crate::args::mcp::Mcp;
use crate::args::source::Source;

/// How many questions are answered at a time; each may load a whole cluster.
const QUESTIONS_AT_ONCE: usize = 2;

/// How many questions watch the cluster at a time, beside those that are answered at once.
const WATCHES_AT_ONCE: usize = 1;

/// The longest answer that is passed on: clients hold it in memory and models read little of it.
const ANSWER_BYTES_MAX: usize = 4 << 20;

const INSTRUCTIONS: &str = "Explains what kube-scheduler decides in one Kubernetes cluster: why pods are pending or \
    where they are (why), what would happen if something changed (whatif), how a history would go under other \
    configurations (simulate), and whether the cluster's own scheduler decides as expected (shadow). Answers are exact \
    decisions of the scheduler, as JSON of bayplan.dev/v1. Nothing in the cluster is ever changed.";

/// Serves until the client closes standard input.
pub(crate) async fn run(args: Mcp) -> Result<ExitCode> {
    let nanoseconds = u64::try_from(args.timeout.0).context("--timeout must not be negative")?;
    let timeout = Duration::from_nanos(nanoseconds);
    let binary = std::env::current_exe().context("cannot find the running binary")?;
    let source = source_flags(&args.source)?;
    let (places, watches) = (Semaphore::new(QUESTIONS_AT_ONCE), Semaphore::new(WATCHES_AT_ONCE));
    let is_live = args.source.from.is_empty();
    let server = Server(Arc::new(Questions { binary, source, is_live, timeout, places, watches }));
    let running = server.serve(rmcp::transport::stdio()).await.context("the client did not start a session")?;
    running.waiting().await.context("the session broke off")?;
    Ok(ExitCode::SUCCESS)
}

/// The flags that name the cluster, for the questions' command lines. Questions run in folders of their own, so that
/// nothing a client says names a file here: paths are made absolute.
fn source_flags(source: &Source) -> Result<Vec<OsString>> {
    if source.from.iter().any(|from| from.as_os_str() == "-") {
        anyhow::bail!("standard input belongs to the client: name a file with --from");
    }
    let flag = |flag: &str, value: &Path| -> Result<OsString> {
        let path = std::path::absolute(value).with_context(|| format!("cannot find {}", value.display()))?;
        let mut text = OsString::from(format!("--{flag}="));
        text.push(path);
        Ok(text)
    };
    let from = source.from.iter().map(|value| flag("from", value));
    let kubeconfig = source.kubeconfig.iter().map(|value| flag("kubeconfig", value));
    let config = source.config.iter().map(|value| flag("config", value));
    let context = source.context.iter().map(|value| Ok(format!("--context={value}").into()));
    from.chain(kubeconfig).chain(config).chain(context).collect()
}

#[derive(Clone)]
struct Server(Arc<Questions>);

struct Questions {
    binary: PathBuf,
    source: Vec<OsString>,
    /// Whether it is a cluster that can be watched.
    is_live: bool,
    timeout: Duration,
    places: Semaphore,
    watches: Semaphore,
}

impl Questions {
    /// Asks in a child process; the answer, or what to say about its absence.
    async fn ask(&self, verb: &str, arguments: &serde_json::Map<String, serde_json::Value>) -> Result<String, String> {
        if verb == tools::SHADOW && !self.is_live {
            return Err("shadow watches a live cluster, and this server was started with --from".to_owned());
        }
        let places = if verb == tools::SHADOW { &self.watches } else { &self.places };
        let _place = places.acquire().await.map_err(|_| "the server is ending".to_owned())?;
        let timeout = self.timeout + tools::watches_for(verb, arguments);
        let folder = tempfile::tempdir().map_err(|error| format!("cannot make a temporary folder: {error}"))?;
        let flags = tools::command_line(verb, arguments, folder.path())?;
        let child = Command::new(&self.binary)
            .arg(verb)
            .args(&self.source)
            .args(["-o", "json"])
            .args(flags)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot ask: {error}"))?;
        let ended = tokio::time::timeout(timeout, child.wait_with_output()).await;
        let output = ended
            .map_err(|_| format!("no answer within {timeout:?}: ask about less, or start with a longer --timeout"))?
            .map_err(|error| format!("cannot read the answer: {error}"))?;
        if output.stdout.is_empty() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(said.trim().trim_start_matches("bayplan: ").to_owned());
        }
        if output.stdout.len() > ANSWER_BYTES_MAX {
            let size = output.stdout.len() >> 20;
            return Err(format!("the answer has {size} MiB, more than a client is sent: ask about less"));
        }
        String::from_utf8(output.stdout).map_err(|_| "the answer is not text".to_owned())
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let bayplan = Implementation::new("bayplan", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(bayplan).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let Some(verb) = tools::find(&request.name) else {
            return Err(ErrorData::invalid_params(format!("there is no tool {:?}", request.name), None));
        };
        let result = match self.0.ask(verb, &arguments).await {
            Ok(answer) => {
                let mut result = CallToolResult::success(vec![ContentBlock::text(answer.clone())]);
                result.structured_content = serde_json::from_str(&answer).ok();
                result
            }
            Err(problem) => CallToolResult::error(vec![ContentBlock::text(problem)]),
        };
        Ok(result.into())
    }
}
