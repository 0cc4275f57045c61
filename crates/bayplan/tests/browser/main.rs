//! The page in a real browser: what a user sees and does, without a screen.
//!
//! Needs chromium and chromedriver, so that it is ignored unless it is asked for. With `BAYPLAN_SCREENSHOTS=FOLDER` it
//! writes pictures of what it sees.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking and tells what it measured")]

mod clusters;
mod driver;
mod process;

use std::path::Path;

use clusters::{large, pod};
use driver::{Browser, eventually};
use process::{Served, create_pod};

/// What the console says while the server is away.
const AWAY: &[&str] = &["Failed to load resource", "net::ERR_"];

/// The longest a selection may take on 20,000 nodes: a second is what users are promised of a release build on a
/// machine of their own; CI has a debug build and shares two processors.
const SELECTION_MS_MAX: u64 = 3000;

#[test]
#[ignore = "needs chromium and chromedriver"]
fn the_page_of_up_explains_a_pod_tries_a_change_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let arguments = ["up", "--port", "0", "--data-dir", data, "--nodes", "6", "--node-cpu", "4"];
    let served = Served::start(&arguments);
    let kubeconfig = folder.path().join("data/kubeconfig");
    let create = |name: &str, cpu: &str| create_pod(&kubeconfig, &pod(name, cpu, "1Gi", None));
    create("small", "1");
    create("big", "9");

    let browser = Browser::start(1500, 900);
    browser.open(&served.url);
    browser.wait_for("document.documentElement.dataset.ready");
    assert_eq!(browser.run("return location.href"), format!("{}/", served.origin()), "the token is not in the address");
    browser.wait_for("document.querySelector('[data-pod=\"default/big\"]')");

    // It explains a pending pod.
    browser.click("[data-pod='default/big']");
    browser.wait_for("document.querySelector('#detail .refusal')");
    assert!(browser.text("#detail").contains("Insufficient cpu"), "{}", browser.text("#detail"));
    assert!(browser.text("#legend").contains("NodeResourcesFit"), "{}", browser.text("#legend"));

    // A change is tried, and the difference is shown.
    browser.click("[data-try='0']");
    browser.wait_for("document.querySelector('[data-difference]')");
    assert!(browser.text("[data-difference]").contains("fits now"), "{}", browser.text("[data-difference]"));
    browser.picture("try");
    browser.press("\u{e00c}");
    browser.wait_for("!document.querySelector('[data-difference]')");

    // Pods come and are placed without a reload.
    create("late", "1");
    browser.wait_for("document.querySelector('#decisions').innerText.includes('default/late')");
    create("late-and-big", "8");
    browser.wait_for("document.querySelector('[data-pod=\"default/late-and-big\"]')");

    // The slider goes over the decision log, and the map with it.
    browser.wait_for("document.querySelector('#decisions-about').innerText.includes('from the decision log')");
    browser.wait_for("document.querySelector('#decisions').innerText.includes('default/late-and-big')");
    slide(&browser, 0);
    assert!(browser.text("#decisions-about").contains("taken back on the map"), "{}", browser.text("#decisions-about"));
    assert!(browser.text("#legend").contains("cpu 0 %"), "{}", browser.text("#legend"));
    browser.press("n");
    browser.wait_for("!document.querySelector('#legend').innerText.includes('cpu 0 %')");
    assert_eq!(browser.complaints(&[]), [] as [String; 0]);

    // The server goes and comes back; the page says so, and finds it by itself.
    let origin = served.origin().to_owned();
    served.stop();
    browser.wait_for("!document.querySelector('#notice').hidden");
    assert!(browser.text("#notice").contains("reconnects by itself"), "{}", browser.text("#notice"));
    let served = Served::start(&arguments);
    assert_eq!(served.origin(), origin, "the page is where it was");
    browser.wait_for("document.querySelector('#notice').hidden");
    create("after", "1");
    browser.wait_for("document.querySelector('#decisions').innerText.includes('default/after')");
    assert!(browser.text("#detail").contains("default"), "the selected pod is still explained");

    assert_eq!(browser.complaints(AWAY), [] as [String; 0]);
    let elsewhere: Vec<String> = browser.requests().into_iter().filter(|url| !url.starts_with(&origin)).collect();
    assert_eq!(elsewhere, [] as [String; 0], "the page asks nobody else");
    served.stop();

    shows_a_log(&browser, &folder.path().join("data/decisions.jsonl"));
}

/// What was logged is shown without the cluster.
fn shows_a_log(browser: &Browser, log: &Path) {
    let served = Served::start(&["page", "--log", log.to_str().unwrap()]);
    browser.open(&served.url);
    browser.wait_for("document.documentElement.dataset.ready");
    assert!(browser.text("#decisions").contains("default/after"), "{}", browser.text("#decisions"));
    assert!(browser.text("#decisions").contains("default/late"), "the log of the run before is read, too");
    assert!(browser.text("#counts").contains('6'), "{}", browser.text("#counts"));
    browser.picture("log");
    slide(browser, 3);
    browser.prefer("dark");
    browser.picture("log-dark");
    assert_eq!(browser.complaints(AWAY), [] as [String; 0]);
    served.stop();
}

/// Moves the slider behind so many decisions.
fn slide(browser: &Browser, to: usize) {
    browser.run(&format!(
        "const slider = document.querySelector('#slider'); slider.value = '{to}'; \
         slider.dispatchEvent(new Event('input'))"
    ));
}

#[test]
#[ignore = "needs chromium and chromedriver"]
fn the_report_of_a_simulation_opens_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_bayplan"))
        .args(["simulate", "--from", "cluster.yaml", "--arrivals", "arrivals.jsonl", "-o", "html"])
        .args(["--config", "spread=", "--config", "packed=packed.yaml"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/whatif"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(&report, output.stdout).unwrap();
    let browser = Browser::start(1300, 1500);
    browser.open(&format!("file://{}", report.display()));
    assert_eq!(browser.run("return document.querySelectorAll('figure svg path.line').length"), 14);
    assert!(browser.text("table").contains("pending pod-minutes"), "{}", browser.text("table"));
    browser.picture("simulation");
    browser.prefer("dark");
    browser.picture("simulation-dark");
    assert_eq!(browser.complaints(&[]), [] as [String; 0]);
}

#[test]
#[ignore = "needs chromium and chromedriver"]
fn twenty_thousand_nodes_are_drawn_and_answer_a_selection() {
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("cluster.json");
    std::fs::write(&dump, large(20_000).to_string()).unwrap();
    let served = Served::start(&["page", "--from", dump.to_str().unwrap()]);
    let browser = Browser::start(1600, 1000);
    browser.open(&served.url);
    browser.wait_for("document.documentElement.dataset.ready");
    let loaded = browser.run("return Math.round(performance.now())");
    browser.wait_for("Number(document.querySelector('#map').dataset.drawn) > 0");
    browser.picture("large-utilisation");

    let mut slowest = 0;
    for template in ["training", "cache", "huge", "gated"] {
        browser.run("delete document.documentElement.dataset.answered");
        browser.click(&format!("[data-pod^='default/{template}']"));
        browser.wait_for("document.documentElement.dataset.answered");
        let took: u64 = browser.text_of_data("answered").parse().unwrap();
        println!("{template}: answered and drawn after {took} ms");
        slowest = slowest.max(took);
        browser.picture(&format!("large-{template}"));
    }
    println!("20,000 nodes: ready after {loaded} ms, the slowest selection took {slowest} ms");
    assert!(slowest <= SELECTION_MS_MAX, "a selection took {slowest} ms");

    // Every tile answers to the pointer.
    browser.click("[data-pod^='default/training']");
    browser.wait_for("document.querySelector('#legend').innerText.includes('NodeResourcesFit')");
    browser.point(700, 400);
    browser.wait_for("!document.querySelector('#tip').hidden");
    assert!(browser.text("#tip").starts_with("node-"), "{}", browser.text("#tip"));
    browser.run(
        "window.frames_ = []; \
         const draw = () => { frames_.push(performance.now()); requestAnimationFrame(draw); }; draw()",
    );
    for step in 0..40 {
        browser.point(400 + step * 10, 300 + step * 5);
    }
    let slow = browser.run("return Math.max(...frames_.slice(1).map((at, i) => at - frames_[i]))");
    println!("the longest frame while the pointer moves over them took {slow} ms");
    assert_eq!(browser.complaints(&[]), [] as [String; 0]);
}

#[test]
#[ignore = "needs chromium and chromedriver"]
fn the_keyboard_is_enough_and_the_page_fits_any_window_in_both_themes() {
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("cluster.json");
    std::fs::write(&dump, large(400).to_string()).unwrap();
    let served = Served::start(&["page", "--from", dump.to_str().unwrap()]);
    let browser = Browser::start(1500, 900);
    browser.prefer("light");
    browser.open(&served.url);
    browser.wait_for("document.documentElement.dataset.ready");

    // The first pod with j, the map with m and the arrows, a node with Enter, and back.
    browser.press("j");
    browser.wait_for("document.querySelector('#detail h2')?.innerText.startsWith('training')");
    for (key, pressed) in [("2", "score"), ("3", "utilisation"), ("1", "refusing filter")] {
        browser.press(key);
        assert_eq!(browser.text("#colour-by [aria-pressed=true]"), pressed);
    }
    for pressed in ["pool", "none", "zone"] {
        browser.press("g");
        assert_eq!(browser.text("#group-by [aria-pressed=true]"), pressed);
    }
    browser.press("m");
    browser.press("\u{e014}");
    browser.press("\u{e014}");
    browser.press("\u{e007}");
    browser.wait_for("document.querySelector('#detail h2')?.innerText.startsWith('node-')");
    browser.picture("node");
    browser.press("\u{e00c}");
    browser.wait_for("document.querySelector('#detail h2')?.innerText.startsWith('training')");
    browser.press("/");
    for letter in "cache".chars() {
        browser.press(&letter.to_string());
    }
    browser.press("\u{e007}");
    browser.wait_for("document.querySelector('#detail h2')?.innerText.startsWith('cache')");
    browser.press("\u{e00c}");
    browser.press("?");
    browser.wait_for("document.querySelector('#keys').open");
    browser.picture("keys");
    browser.press("\u{e00c}");
    browser.wait_for("!document.querySelector('#keys').open");
    browser.press("[");
    browser.wait_for("document.querySelector('#decisions-about').innerText.includes('taken back')");
    browser.press("n");

    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for (width, height) in [(1920, 1080), (1500, 900), (1100, 800), (800, 900), (390, 844)] {
            browser.resize(width, height);
            browser.wait_for(&format!("innerWidth === {width}"));
            let wide = browser.run("return document.documentElement.scrollWidth");
            assert!(wide.as_u64().unwrap() <= u64::from(width), "{wide} pixels at {width}, {scheme}");
            browser.picture(&format!("{scheme}-{width}"));
        }
    }
    let ground = |browser: &Browser| browser.run("return getComputedStyle(document.body).backgroundColor");
    let dark = ground(&browser);
    browser.press("t");
    assert_ne!(ground(&browser), dark, "t changes the theme");
    assert_eq!(browser.complaints(&[]), [] as [String; 0]);
}

#[test]
#[ignore = "needs chromium and chromedriver"]
fn the_policy_holds_and_strangers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("cluster.json");
    let mut cluster = large(10);
    // A name no API server would take, but a file can hold.
    let hostile = "<img src=x onerror=alert(1)><script>alert(1)</script>";
    cluster["items"].as_array_mut().unwrap().push(pod(hostile, "1000", "1Gi", None));
    std::fs::write(&dump, cluster.to_string()).unwrap();
    let served = Served::start(&["page", "--from", dump.to_str().unwrap()]);
    let browser = Browser::start(1200, 800);
    browser.open(served.origin());
    assert!(browser.text("body").contains("the URL that bayplan printed"), "{}", browser.text("body"));
    assert_eq!(browser.complaints(AWAY), [] as [String; 0]);

    browser.open(&served.url);
    browser.wait_for("document.documentElement.dataset.ready");
    browser.click("[data-pod*='onerror']");
    browser.wait_for("document.querySelector('#detail h2')?.innerText.includes('onerror')");
    assert_eq!(browser.run("return document.querySelectorAll('#detail img, #detail script, #groups img').length"), 0);
    assert_eq!(browser.complaints(&[]), [] as [String; 0]);

    browser.run(
        "window.violations = []; document.addEventListener('securitypolicyviolation', (event) => \
         violations.push(event.violatedDirective)); const script = document.createElement('script'); \
         script.textContent = 'window.ran = true'; document.body.append(script); const image = new Image(); \
         image.src = 'http://127.0.0.1:9/x.png'; fetch('http://127.0.0.1:9/').catch(() => {});",
    );
    eventually("the policy refuses script, image and request", || {
        browser.run("return violations.length").as_u64() >= Some(3)
    });
    assert_eq!(browser.run("return window.ran ?? false"), false);
}
