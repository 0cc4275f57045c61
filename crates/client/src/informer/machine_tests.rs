use bayplan_model::meta::ObjectMeta;
use bayplan_testkit::Rng;
use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize)]
struct View {
    metadata: ObjectMeta,
    #[serde(default, rename = "spec")]
    _spec: u32,
}

impl HasMeta for View {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// `name@version`, with `name@version#uid` for another object of the same name and `!` for one that does not decode.
fn object(text: &str) -> String {
    let (text, spec) = text.strip_suffix('!').map_or((text, "1"), |text| (text, "\"not a number\""));
    let (name, rest) = text.split_once('@').unwrap();
    let (version, uid) = rest.split_once('#').unwrap_or((rest, name));
    format!(r#"{{"metadata":{{"name":"{name}","uid":"{uid}","resourceVersion":"{version}"}},"spec":{spec}}}"#)
}

fn show(events: &[Event<View>]) -> String {
    let name = |v: &View| format!("{}@{}", v.metadata.name, v.metadata.resource_version);
    let texts: Vec<String> = events
        .iter()
        .map(|event| match event {
            Event::Delta(Delta::Added(new)) => format!("+{}", name(new)),
            Event::Delta(Delta::Updated { old, new }) => format!("{}>{}", name(old), name(new)),
            Event::Delta(Delta::Deleted(last)) => format!("-{}", name(last)),
            Event::Synced => "synced".into(),
        })
        .collect();
    texts.join(" ")
}

fn status(words: &[&str]) -> Status {
    let code = words[0];
    let cause = words.get(1).unwrap_or(&"");
    let json = format!(
        r#"{{"kind":"Status","apiVersion":"v1","code":{code},
        "details":{{"retryAfterSeconds":{},"causes":[{{"reason":"{cause}"}}]}}}}"#,
        cause.strip_prefix("after=").unwrap_or("0"),
    );
    serde_json::from_str(&json).unwrap()
}

/// Runs a trace. Each line is what reaches the machine and, after `=>`, what it says: changes for lines and pages, the
/// delay (and `!` when it has something to complain about) for ends, the request for `ask`.
#[track_caller]
fn check(trace: &str) -> Machine<View> {
    let mut machine = Machine::<View>::new();
    for (number, line) in trace.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty()) {
        let (input, expected) = line.split_once("=>").map_or((line, ""), |(a, b)| (a.trim(), b.trim()));
        let words: Vec<&str> = input.split_whitespace().collect();
        let answer = run(&mut machine, &words);
        assert_eq!(answer, expected, "line {number}: {line}");
    }
    machine
}

fn run(machine: &mut Machine<View>, words: &[&str]) -> String {
    let event = |kind: &str, object: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#);
    let bookmark = |version: &str, annotations: &str| {
        event(
            "BOOKMARK",
            &format!(r#"{{"kind":"Pod","metadata":{{"resourceVersion":"{version}","annotations":{annotations}}}}}"#),
        )
    };
    let line = match words {
        ["ask"] => {
            return match machine.next_request() {
                NextRequest::Stream => "stream".into(),
                NextRequest::List { limit, continue_token } => {
                    format!("list {limit} {continue_token}").trim_end().into()
                }
                NextRequest::Watch { resource_version } => format!("watch {resource_version}"),
            };
        }
        ["version"] => return machine.version().unwrap_or("none").into(),
        ["page", version, token, items @ ..] => {
            let items: Vec<String> = items.iter().map(|item| object(item)).collect();
            let token = if *token == "-" { "" } else { token };
            let page = format!(
                r#"{{"kind":"PodList","items":[{}],
                "metadata":{{"resourceVersion":"{version}","continue":"{token}"}}}}"#,
                items.join(",")
            );
            let (events, step) = machine.page(page.as_bytes());
            assert!(matches!(step, RequestEnd::Done));
            return show(&events);
        }
        ["closed", lived] => {
            return end(machine, RequestEnd::Closed { lived: Duration::from_millis(lived.parse().unwrap()) });
        }
        ["broken"] => return end(machine, RequestEnd::Broken(status(&["0"]))),
        ["refused", words @ ..] => return end(machine, RequestEnd::Refused(status(words))),
        ["BOOKMARK", version] => bookmark(version, "null"),
        ["COMPLETE", version] => bookmark(version, r#"{"k8s.io/initial-events-end":"true"}"#),
        ["ERROR", words @ ..] => event("ERROR", &serde_json::to_string(&status(words)).unwrap()),
        ["GARBAGE"] => r#"{"type":"ADDED","obj"#.into(),
        [kind, text] => event(kind, &object(text)),
        _ => panic!("{words:?}"),
    };
    let mut events = Vec::new();
    match machine.line(line.as_bytes(), &mut events) {
        Ok(()) => show(&events),
        Err(step) => end(machine, step),
    }
}

fn end(machine: &mut Machine<View>, step: RequestEnd) -> String {
    let (delay, error) = machine.end(step, &mut || 0.0);
    format!("{}ms{}", delay.as_millis(), if error.is_some() { "!" } else { "" })
}

#[test]
fn the_initial_state_is_streamed_and_then_followed() {
    check(
        "ask => stream
         ADDED a@3 => +a@3
         ADDED b@5 => +b@5
         COMPLETE 7 => synced
         MODIFIED a@8 => a@3>a@8
         DELETED b@9 => -b@9
         ADDED c@10 => +c@10
         closed 300000 => 0ms
         ask => watch 10",
    );
}

#[test]
fn a_server_that_cannot_stream_is_listed_page_by_page_from_then_on() {
    for code in [400, 422] {
        check(&format!(
            "ask => stream
             refused {code} => 0ms
             ask => list 500
             page 7 next a@3 b@5 => +a@3 +b@5
             ask => list 500 next
             page 7 - c@6 => +c@6 synced
             ask => watch 7
             refused 410 => 0ms!
             ask => list 500
             page 9 - a@3 b@8 => b@5>b@8 -c@6
             ask => watch 9"
        ));
    }
}

#[test]
fn a_server_that_fails_to_stream_is_listed_and_asked_again_next_time() {
    check(
        "ask => stream
         refused 500 => 0ms
         ask => list 500
         refused 500 => 800ms!
         ask => list 500
         page 7 - a@3 => +a@3 synced
         ask => watch 7
         refused 410 => 0ms!
         ask => stream",
    );
}

#[test]
fn a_server_that_takes_the_stream_for_a_plain_watch_is_listed() {
    check(
        "ask => stream
         ADDED a@3 => +a@3
         BOOKMARK 9 => 0ms
         ask => list 500
         page 9 - a@3 => synced
         ask => watch 9",
    );
}

#[test]
fn bookmarks_move_the_place_to_resume_from() {
    check(
        "ask => stream
         COMPLETE 7 => synced
         BOOKMARK 20
         broken => 800ms!
         ask => watch 20",
    );
}

#[test]
fn the_version_moves_with_all_that_is_read_once_the_state_is_complete() {
    check(
        "ask => stream
         ADDED a@3 => +a@3
         version => none
         COMPLETE 7 => synced
         version => 7
         MODIFIED a@9 => a@3>a@9
         version => 9
         ADDED unreadable@11!
         version => 11
         BOOKMARK 20
         version => 20
         ERROR 410 => 0ms!
         version => none",
    );
}

#[test]
fn a_relist_tells_exactly_the_difference() {
    check(
        "ask => stream
         ADDED same@1 => +same@1
         ADDED changed@2 => +changed@2
         ADDED gone@3 => +gone@3
         ADDED reborn@4#first => +reborn@4
         COMPLETE 5 => synced
         ERROR 410 => 0ms!
         ask => stream
         ADDED same@1
         ADDED changed@8 => changed@2>changed@8
         ADDED reborn@9#second => -reborn@4 +reborn@9
         ADDED new@7 => +new@7
         COMPLETE 9 => -gone@3
         MODIFIED new@10 => new@7>new@10",
    );
}

#[test]
fn an_interrupted_stream_starts_over_and_forgets_nothing_that_is_still_there() {
    check(
        "ask => stream
         ADDED a@1 => +a@1
         ADDED b@2 => +b@2
         broken => 800ms!
         ask => stream
         ADDED a@1
         COMPLETE 9 => -b@2 synced",
    );
}

#[test]
fn a_failed_page_is_asked_for_again_and_an_expired_one_starts_over_without_pages() {
    check(
        "ask => stream
         refused 422 => 0ms
         ask => list 500
         page 7 next a@3 => +a@3
         ask => list 500 next
         refused 500 => 800ms!
         ask => list 500 next
         refused 410 => 0ms!
         ask => list 0
         page 9 - b@8 => +b@8 -a@3 synced
         ask => watch 9",
    );
}

#[test]
fn duplicates_and_events_from_the_past_are_not_passed_on() {
    check(
        "ask => stream
         COMPLETE 1 => synced
         ADDED a@5 => +a@5
         ADDED a@5
         MODIFIED a@4
         DELETED a@3
         MODIFIED a@6 => a@5>a@6
         DELETED unknown@9
         MODIFIED late@10 => +late@10",
    );
}

#[test]
fn a_restored_server_may_go_back_in_time() {
    check(
        "ask => stream
         ADDED a@50 => +a@50
         COMPLETE 60 => synced
         refused 504 ResourceVersionTooLarge => 0ms!
         ask => stream
         ADDED a@10 => a@50>a@10
         COMPLETE 12",
    );
}

#[test]
fn failures_back_off_until_something_arrives() {
    check(
        "ask => stream
         COMPLETE 7 => synced
         ERROR 500 => 800ms!
         ask => watch 7
         refused 429 => 1600ms!
         ask => watch 7
         refused 429 after=5 => 5000ms!
         ask => watch 7
         refused 503 => 2500ms!
         ask => watch 7
         GARBAGE => 800ms!
         ask => watch 7
         ADDED a@8 => +a@8
         ERROR 500 => 800ms!
         ask => watch 8",
    );
}

#[test]
fn a_watch_closed_at_once_is_a_failure_unless_it_said_something() {
    check(
        "ask => stream
         COMPLETE 7 => synced
         closed 500 => 0ms
         ask => watch 7
         closed 500 => 800ms!
         ask => watch 7
         closed 999 => 1600ms!
         ask => watch 7
         closed 1000 => 0ms
         ask => watch 7
         closed 1 => 800ms!
         ask => watch 7
         BOOKMARK 9
         closed 1 => 0ms",
    );
}

#[test]
fn a_server_that_always_forgets_is_not_hammered() {
    check(
        "ask => stream
         COMPLETE 7 => synced
         ERROR 410 => 0ms!
         ask => stream
         COMPLETE 8
         ERROR 410 => 1600ms!
         ask => stream
         COMPLETE 9
         MODIFIED a@10 => +a@10
         ERROR 410 => 0ms!",
    );
}

/// A server that is away, then starts and cannot answer yet, and then is back; its history may be gone.
struct Restart {
    rng: Rng,
    away: Duration,
    starting: Duration,
    forgotten: bool,
}

impl Restart {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut millis = |most: usize| Duration::from_millis(rng.below(most) as u64);
        let (away, starting) = (millis(60_000), millis(10_000));
        Restart { forgotten: rng.below(2) == 0, rng, away, starting }
    }

    fn back(&self) -> Duration {
        self.away + self.starting
    }

    /// How a request ends that is sent at this time, and after how long; none when it is served.
    fn answer(&mut self, at: Duration, request: &NextRequest) -> Option<(Duration, RequestEnd)> {
        let lived = Duration::from_millis(self.rng.below(300) as u64);
        if at < self.away {
            let end = match self.rng.below(4) {
                0 => RequestEnd::Broken(status(&["0"])),
                _ => RequestEnd::Refused(status(&["0"])),
            };
            return Some((lived, end));
        }
        if at < self.back() {
            let end = match self.rng.below(8) {
                0 => RequestEnd::Refused(status(&["503"])),
                1 => RequestEnd::Refused(status(&["403"])),
                2 => RequestEnd::Refused(status(&["500"])),
                3 => RequestEnd::Refused(status(&["429", "after=1"])),
                4 => RequestEnd::Broken(status(&["0"])),
                _ => RequestEnd::Closed { lived },
            };
            return Some((lived, end));
        }
        let is_watch = matches!(request, NextRequest::Watch { .. });
        let gone = is_watch && std::mem::take(&mut self.forgotten);
        gone.then(|| (lived, RequestEnd::Refused(status(&["410"]))))
    }
}

#[test]
fn every_informer_is_in_sync_within_15_seconds_after_a_server_is_back() {
    let mut longest = Duration::ZERO;
    for seed in 0..5_000 {
        let mut server = Restart::new(seed);
        let mut machine = Machine::<View>::new();
        if seed % 3 > 0 {
            // It was watching before; otherwise it starts during the outage.
            run(&mut machine, &["ask"]);
            run(&mut machine, &["COMPLETE", "7"]);
        }
        let (mut now, mut jitter) = (Duration::ZERO, Rng::new(seed + 1_000_000));
        loop {
            let request = machine.next_request();
            let Some((took, end)) = server.answer(now, &request) else { break };
            let (delay, _) = machine.end(end, &mut || jitter.below(1000) as f64 / 1000.0);
            now += took + delay;
        }
        let late = now.saturating_sub(server.back());
        assert!(late <= Duration::from_secs(15), "seed {seed}: {late:?} after it was back");
        longest = longest.max(late);
    }
    assert!(longest > Duration::from_secs(3), "{longest:?}: the delays were never long, so this shows nothing");
}

#[test]
fn an_undecodable_object_is_counted_and_hides_nothing_else() {
    let machine = check(
        "ask => stream
         ADDED bad@1!
         ADDED a@2 => +a@2
         COMPLETE 3 => synced
         MODIFIED a@4!
         broken => 800ms!
         ask => watch 4
         ADDED b@5 => +b@5
         ERROR 410 => 0ms!
         ask => stream
         ADDED a@4!
         ADDED b@5
         COMPLETE 6
         MODIFIED bad@7 => +bad@7
         DELETED a@8! => -a@2",
    );
    assert_eq!(machine.undecodable, 3);
}

#[test]
fn an_empty_list_with_null_items_is_a_complete_state() {
    let mut machine = Machine::<View>::new();
    machine.next_request();
    machine.end(RequestEnd::Refused(status(&["422"])), &mut || 0.0);
    machine.next_request();
    let (events, _) = machine.page(br#"{"metadata":{"resourceVersion":"3"},"items":null}"#);
    assert_eq!(show(&events), "synced");
}
