//! The logs of simulated pods: what a pod says of itself, as lines with times.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;

use bayplan_kinds::Kind;
use bayplan_listener::ResponseBody;
use bayplan_model::status::Status;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use jiff::Timestamp;
use serde_json::Value;

use super::containers::{self, Run};
use super::log_options::{LogOptions, Since};
use super::{check_simulated, list, text};
use crate::negotiation::Format;
use crate::request::ListOptions;
use crate::server::RequestContext;
use crate::{status_errors, watch};

/// What the containers of a pod print, in place of the story of their life.
const LOGS: &str = "bayplan.dev/logs";
/// How long a log is followed, as upstream's connections to kubelets.
const FOLLOWED_SECONDS_MAX: i64 = 4 * 3600;

/// Answers a request for a log.
pub(super) async fn answer(
    context: &RequestContext<'_>,
    resource: &'static Kind,
) -> Result<Response<ResponseBody>, Status> {
    let name = context.info.name.as_str();
    let options = LogOptions::parse(context.query, name)?;
    let pod = super::pod(context, resource, name).await?;
    let container = text(containers::chosen(&pod, &options.container)?, "name").to_owned();
    let node = text(&pod["spec"], "nodeName");
    if node.is_empty() {
        let mut response = Response::new(Empty::new().boxed_unsync());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    }
    check_simulated(context, node).await?;
    let run = containers::run(&pod, &container, options.previous)?;
    let lines = lines(&pod, &container, &run);
    let mut printer = Printer { left: options.bytes.unwrap_or(usize::MAX), timestamps: options.timestamps };
    let first = printer.print(wanted(&lines, &options, context.shared.registry.now()));
    let over = run.ended.is_some() || printer.left == 0;
    if !options.follow || over {
        return Ok(plain(Full::from(first).boxed_unsync()));
    }
    let Some(held) = context.shared.usage.stream(&context.user.name) else {
        return Err(status_errors::too_many_requests("too many streams are open, please try again later", 1));
    };
    let events = changes(context, resource, text(&pod["metadata"], "resourceVersion")).await?;
    let follower = Follower {
        events,
        container,
        run: run.id.to_owned(),
        printed: lines.into_iter().collect(),
        printer,
        pending: VecDeque::from([first]),
        over: false,
        _held: Box::new(held),
    };
    let chunks = futures::stream::unfold(follower, |mut follower| async move {
        let chunk = follower.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(chunk)), follower))
    });
    Ok(plain(StreamBody::new(chunks).boxed_unsync()))
}

fn plain(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

type Events = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// The changes of the pod from a version on.
async fn changes(context: &RequestContext<'_>, resource: &'static Kind, version: &str) -> Result<Events, Status> {
    let shared = context.shared;
    let options = ListOptions {
        field_selector: format!("metadata.name={}", context.info.name),
        resource_version: version.to_owned(),
        timeout_seconds: Some(FOLLOWED_SECONDS_MAX),
        ..ListOptions::default()
    };
    let events = watch::open(
        shared.registry.clone(),
        resource,
        &context.info.namespace,
        &options,
        Format::JSON,
        shared.stopping.subscribe(),
        &|_| Ok(Box::new(())),
        shared.metrics.watch_series(resource),
    );
    Ok(Box::pin(events.await?))
}

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Line {
    at: Timestamp,
    text: String,
}

/// What a run of a container has printed so far.
fn lines(pod: &Value, container: &str, run: &Run<'_>) -> Vec<Line> {
    let time = |text: &str| text.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    let started = time(run.started);
    let metadata = &pod["metadata"];
    if let Some(given) = metadata["annotations"][LOGS].as_str() {
        return given.lines().map(|text| Line { at: started, text: text.to_owned() }).collect();
    }
    let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
    let node = text(&pod["spec"], "nodeName");
    let all = ["initContainers", "containers", "ephemeralContainers"].map(|field| list(&pod["spec"], field)).concat();
    let own = all.iter().find(|own| text(own, "name") == container);
    let image = own.map_or("", |own| text(own, "image"));
    let mut lines = vec![
        Line { at: started, text: format!("container {container} of pod {namespace}/{name} started on node {node}") },
        Line { at: started, text: format!("it is simulated: nothing of its image {image} runs") },
    ];
    let is_main = list(&pod["spec"], "containers").iter().any(|main| text(main, "name") == container);
    let ready = list(&pod["status"], "conditions").iter().find(|condition| text(condition, "type") == "Ready");
    if let Some(ready) = ready.filter(|ready| is_main && run.ended.is_none() && text(ready, "status") == "True") {
        lines.push(Line { at: time(text(ready, "lastTransitionTime")).max(started), text: "the pod is ready".into() });
    }
    if let Some(ended) = &run.ended {
        let text = format!("container {container} ended with exit code {} ({})", ended.exit_code, ended.reason);
        lines.push(Line { at: time(ended.at), text });
    }
    lines
}

/// The lines that the options leave.
fn wanted<'a>(lines: &'a [Line], options: &LogOptions, now: Timestamp) -> &'a [Line] {
    let from = match options.since {
        Since::Start => Timestamp::MIN,
        Since::Time(time) => time,
        Since::Seconds(seconds) => {
            Timestamp::from_second(now.as_second().saturating_sub(seconds)).unwrap_or(Timestamp::MIN)
        }
    };
    let recent = &lines[lines.partition_point(|line| line.at < from)..];
    &recent[recent.len() - options.tail.unwrap_or(usize::MAX).min(recent.len())..]
}

/// Writes lines, up to a number of bytes.
struct Printer {
    left: usize,
    timestamps: bool,
}

impl Printer {
    fn print(&mut self, lines: &[Line]) -> Bytes {
        let mut out = String::new();
        for line in lines {
            if self.timestamps {
                out.push_str(&format!("{:.9} ", line.at));
            }
            out.push_str(&line.text);
            out.push('\n');
        }
        let mut out = out.into_bytes();
        out.truncate(self.left);
        self.left -= out.len();
        Bytes::from(out)
    }
}

/// A log that is followed until its container ends.
struct Follower {
    events: Events,
    container: String,
    /// The id of the run.
    run: String,
    /// Its lines that are printed, or left out.
    printed: HashSet<Line>,
    printer: Printer,
    pending: VecDeque<Bytes>,
    over: bool,
    /// The stream counts as its user's.
    _held: Box<dyn Send>,
}

impl Follower {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.pending.pop_front() {
                return Some(chunk);
            }
            if self.over {
                return None;
            }
            let events = self.events.next().await?;
            for event in events.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                self.see(&serde_json::from_slice(event).unwrap_or_default());
            }
        }
    }

    /// Prints what an event of the pod adds.
    fn see(&mut self, event: &Value) {
        if self.over || !matches!(text(event, "type"), "ADDED" | "MODIFIED") {
            self.over = true;
            return;
        }
        let pod = &event["object"];
        let run = containers::run(pod, &self.container, false).ok().filter(|run| run.id == self.run);
        let Some(run) = run else {
            self.over = true;
            return;
        };
        let lines = lines(pod, &self.container, &run);
        let new: Vec<Line> = lines.into_iter().filter(|line| !self.printed.contains(line)).collect();
        if !new.is_empty() {
            self.pending.push_back(self.printer.print(&new));
            self.printed.extend(new);
        }
        self.over = run.ended.is_some() || self.printer.left == 0;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(state: Value) -> Value {
        json!({
            "metadata": {"name": "web", "namespace": "ns"},
            "spec": {"nodeName": "node-0001", "containers": [{"name": "c", "image": "nginx"}]},
            "status": {
                "containerStatuses": [{"name": "c", "containerID": "bayplan://u/c/0", "state": state}],
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}],
            },
        })
    }

    fn running() -> Value {
        pod(json!({"running": {"startedAt": "2026-01-01T00:00:01Z"}}))
    }

    fn ended() -> Value {
        pod(json!({"terminated": {
            "startedAt": "2026-01-01T00:00:01Z", "finishedAt": "2026-01-01T00:01:00Z", "exitCode": 1,
            "reason": "Error", "containerID": "bayplan://u/c/0",
        }}))
    }

    fn printed(pod: &Value, query: &str) -> String {
        let options = LogOptions::parse(&crate::request::Query::parse(query), "web").unwrap();
        let lines = lines(pod, "c", &containers::run(pod, "c", false).unwrap());
        let mut printer = Printer { left: options.bytes.unwrap_or(usize::MAX), timestamps: options.timestamps };
        let now = "2026-01-01T00:00:10Z".parse().unwrap();
        String::from_utf8(printer.print(wanted(&lines, &options, now)).to_vec()).unwrap()
    }

    #[test]
    fn a_pod_tells_its_life_in_lines() {
        let started = "container c of pod ns/web started on node node-0001\n\
            it is simulated: nothing of its image nginx runs\n";
        assert_eq!(printed(&running(), ""), format!("{started}the pod is ready\n"));
        assert_eq!(printed(&ended(), ""), format!("{started}container c ended with exit code 1 (Error)\n"));
    }

    #[test]
    fn options_select_lines_and_bytes() {
        for (query, expected) in [
            ("tailLines=1", "the pod is ready\n"),
            ("tailLines=0", ""),
            ("sinceSeconds=6", "the pod is ready\n"),
            ("sinceTime=2026-01-01T00:00:05Z", "the pod is ready\n"),
            ("sinceTime=2027-01-01T00:00:05Z", ""),
            ("limitBytes=9", "container"),
            ("tailLines=1&timestamps=true", "2026-01-01T00:00:05.000000000Z the pod is ready\n"),
        ] {
            assert_eq!(printed(&running(), query), expected, "{query}");
        }
    }

    #[test]
    fn an_annotation_gives_the_text() {
        let mut pod = running();
        pod["metadata"]["annotations"] = json!({LOGS: "one\ntwo"});
        assert_eq!(printed(&pod, ""), "one\ntwo\n");
        assert_eq!(printed(&pod, "tailLines=1&timestamps=1"), "2026-01-01T00:00:01.000000000Z two\n");
    }

    #[tokio::test]
    async fn a_follower_prints_what_is_new_until_the_run_is_over() {
        let event = |pod: Value| Bytes::from(format!("{}\n", json!({"type": "MODIFIED", "object": pod})));
        let events = futures::stream::iter([event(running()), event(ended()), event(running())]);
        let mut follower = Follower {
            events: Box::pin(events),
            container: "c".to_owned(),
            run: "bayplan://u/c/0".to_owned(),
            printed: HashSet::new(),
            printer: Printer { left: usize::MAX, timestamps: false },
            pending: VecDeque::new(),
            over: false,
            _held: Box::new(()),
        };
        let first = follower.next().await.unwrap();
        assert!(first.ends_with(b"the pod is ready\n"), "{first:?}");
        assert_eq!(follower.next().await.unwrap(), "container c ended with exit code 1 (Error)\n");
        assert_eq!(follower.next().await, None);
    }
}
