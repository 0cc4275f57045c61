//! What a user sees of `bayplan` itself: the first screen, the mistakes, and the next run on the same folder.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn bayplan() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bayplan"))
}

fn fails(arguments: &[&str]) -> (i32, String) {
    let output = bayplan().args(arguments).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Starts `up` on a folder and reads its first screen.
fn up(folder: &Path, more: &[&str]) -> (Child, String) {
    let mut process = bayplan()
        .args(["up", "--port", "0", "--nodes", "3", "--data-dir"])
        .arg(folder)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut screen = String::new();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    for line in lines.by_ref() {
        screen.push_str(&line);
        screen.push('\n');
        if line.contains("Ctrl-C") {
            break;
        }
    }
    std::thread::spawn(move || lines.for_each(drop));
    (process, screen)
}

fn interrupt(mut process: Child) -> (bool, String) {
    let id = process.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut stderr = String::new();
    process.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (process.wait().unwrap().success(), stderr)
}

#[test]
fn the_first_screen_says_where_everything_is_and_ctrl_c_ends_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (process, screen) = up(&data, &[]);
    let kubeconfig = data.join("kubeconfig");
    for needle in [&*kubeconfig.to_string_lossy(), "https://127.0.0.1:", "node-0001", "kubectl create deployment"] {
        assert!(screen.contains(needle), "{needle} is missing in\n{screen}");
    }
    let (success, stderr) = interrupt(process);
    assert!(success && stderr.is_empty(), "{stderr}");

    use std::os::unix::fs::PermissionsExt;
    let mut folders = vec![data];
    while let Some(folder) = folders.pop() {
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o077, 0, "{}", folder.display());
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{}", entry.path().display());
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
}

#[test]
fn two_clusters_cannot_share_a_folder_or_a_port() {
    let folder = tempfile::tempdir().unwrap();
    let (process, screen) = up(folder.path(), &[]);
    let (code, stderr) = fails(&["up", "--port", "0", "--data-dir", folder.path().to_str().unwrap()]);
    assert_eq!((code, stderr.lines().count()), (1, 1), "{stderr}");
    assert!(stderr.contains("in use by another process"), "{stderr}");

    let port = screen.split("https://127.0.0.1:").nth(1).unwrap().split_whitespace().next().unwrap();
    let (code, stderr) = fails(&["up", "--in-memory", "--port", port]);
    assert_eq!((code, stderr.lines().count()), (1, 1), "{stderr}");
    assert!(stderr.contains(port) && stderr.contains("in use") && stderr.contains("--port"), "{stderr}");
    interrupt(process);
}

#[test]
fn mistakes_are_told_in_one_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let (code, stderr) = fails(&["up", "--port", "0", "--data-dir", path]);
    assert_eq!((code, stderr.lines().count()), (1, 1), "{stderr}");
    assert!(stderr.starts_with("bayplan: cannot use the data folder") && stderr.contains(path), "{stderr}");

    let (code, stderr) = fails(&["up", "--nodez", "3"]);
    assert_eq!(code, 2);
    assert!(stderr.starts_with("error: unexpected argument '--nodez'"), "{stderr}");

    for command in ["scheduler", "controller-manager"] {
        let (code, stderr) = fails(&[command, "--kubeconfig", "/nonexistent/kubeconfig"]);
        assert_eq!((code, stderr.lines().count()), (1, 1), "{stderr}");
        assert!(stderr.contains("/nonexistent/kubeconfig"), "{stderr}");
    }
}
