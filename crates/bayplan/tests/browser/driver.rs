//! A browser without a screen: Debian's chromium, driven through chromedriver, which speaks JSON over plain HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bayplan_testkit::free_ports;
use serde_json::{Value, json};

/// How long the page may take for anything; shared machines stall.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether something has happened.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A browser with one tab; ended with the test.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start(width: u32, height: u32) -> Browser {
        let [port] = free_ports();
        let profile = tempfile::tempdir().unwrap();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is installed (apt-get install chromium chromium-driver)");
        let mut browser = Browser { driver, port, session: String::new(), _profile: profile };
        eventually("chromedriver answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let mut arguments: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]
        .map(str::to_owned)
        .into();
        arguments.push(format!("--user-data-dir={}", browser._profile.path().display()));
        arguments.push(format!("--window-size={width},{height}"));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments, "binary": "/usr/bin/chromium"},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let made = browser.command("POST", "/session", Some(&wanted));
        browser.session = made["sessionId"].as_str().expect("a session").to_owned();
        browser.resize(width, height);
        browser
    }

    fn command(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.port,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let (head, body) = answer_of(stream);
        assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {body:.600}");
        serde_json::from_str::<Value>(&body).expect("JSON")["value"].take()
    }

    fn in_session(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        self.command(method, &format!("/session/{}{path}", self.session), body)
    }

    pub(crate) fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.in_session("POST", "/goog/cdp/execute", Some(&json!({"cmd": command, "params": parameters})))
    }

    pub(crate) fn resize(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// What the user's system prefers.
    pub(crate) fn prefer(&self, scheme: &str) {
        let preferred = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", &preferred);
    }

    pub(crate) fn open(&self, url: &str) {
        self.in_session("POST", "/url", Some(&json!({ "url": url })));
    }

    /// Runs a script in the page; its `return` is the answer.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.in_session("POST", "/execute/sync", Some(&json!({"script": script, "args": []})))
    }

    /// The text of the first element that a selector finds; empty when there is none.
    pub(crate) fn text(&self, selector: &str) -> String {
        let found = self.run(&format!("return document.querySelector({})?.innerText ?? ''", json!(selector)));
        found.as_str().unwrap_or_default().to_owned()
    }

    /// What the page notes about itself on its root element.
    pub(crate) fn text_of_data(&self, name: &str) -> String {
        let noted = self.run(&format!("return document.documentElement.dataset[{}] ?? ''", json!(name)));
        noted.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn click(&self, selector: &str) {
        eventually(&format!("{selector} is there"), || {
            self.run(&format!("return document.querySelector({}) !== null", json!(selector))) == true
        });
        self.run(&format!("document.querySelector({}).click()", json!(selector)));
    }

    /// Presses a key, as the keyboard would.
    pub(crate) fn press(&self, key: &str) {
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": [
            {"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]}]});
        self.in_session("POST", "/actions", Some(&actions));
    }

    /// Moves the pointer to a point of the page.
    pub(crate) fn point(&self, x: u32, y: u32) {
        let actions = json!({"actions": [{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"},
            "actions": [{"type": "pointerMove", "duration": 0, "x": x, "y": y}]}]});
        self.in_session("POST", "/actions", Some(&actions));
    }

    /// Waits until a script is true.
    #[track_caller]
    pub(crate) fn wait_for(&self, condition: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.run(&format!("return Boolean({condition})")) != true {
            assert!(Instant::now() < deadline, "{condition} does not hold; the page says:\n{}", self.text("body"));
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// What the console said since it was last asked, but for `tolerated` messages.
    pub(crate) fn complaints(&self, tolerated: &[&str]) -> Vec<String> {
        let entries = self.in_session("POST", "/se/log", Some(&json!({"type": "browser"})));
        let messages =
            entries.as_array().into_iter().flatten().map(|entry| entry["message"].as_str().unwrap_or_default());
        let serious = messages.filter(|message| !tolerated.iter().any(|tolerated| message.contains(tolerated)));
        serious.map(str::to_owned).collect()
    }

    /// The URLs that the page asked for since this was last called; the browser's own start page does not count.
    pub(crate) fn requests(&self) -> Vec<String> {
        let entries = self.in_session("POST", "/se/log", Some(&json!({"type": "performance"})));
        let events = entries.as_array().into_iter().flatten().filter_map(|entry| {
            let event: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &event["message"];
            let asked = &message["params"];
            let is_ours = asked["documentURL"].as_str().is_some_and(|document| document.starts_with("http"));
            let is_request = message["method"] == "Network.requestWillBeSent";
            (is_request && is_ours).then(|| asked["request"]["url"].clone())
        });
        events.filter_map(|url| url.as_str().map(str::to_owned)).collect()
    }

    /// Writes a picture of the page into the folder of `BAYPLAN_SCREENSHOTS`, if it is set.
    pub(crate) fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("BAYPLAN_SCREENSHOTS") else { return };
        let taken = self.in_session("GET", "/screenshot", None);
        let png = STANDARD.decode(taken.as_str().unwrap_or_default()).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), png).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.in_session("DELETE", "", None);
        }
        // Without its driver the browser ends by itself.
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The head and the body of an answer. chromedriver keeps connections open, whatever it is told.
fn answer_of(stream: TcpStream) -> (String, String) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "chromedriver closed the connection: {head}");
    }
    let lengths = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = lengths.next().expect("a length").1.trim().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// Waits until something is true.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(LOOK_AGAIN);
    }
}
