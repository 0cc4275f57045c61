//! `bayplan backup` and `bayplan restore`: of running and of stopped folders, and what they refuse.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bayplan_store::backup::Backup;

use crate::process::{Server, bayplan, check_failure, run};

fn start(folder: &Path) -> Server {
    Server::start(bayplan(&["apiserver", "--port", "0", "--data-dir", folder.to_str().unwrap()]))
}

/// Backs a folder up; answers what is in the file, and what was said.
#[track_caller]
fn back_up(folder: &Path, file: &Path, more: &[&str]) -> (Backup, String) {
    let (folder, path) = (folder.to_str().unwrap(), file.to_str().unwrap());
    let (code, stdout, stderr) = run(&[&["backup", "-o", path, "--data-dir", folder], more].concat());
    assert_eq!((code, &*stdout), (0, ""), "{stderr}");
    (Backup::read("file", std::fs::File::open(file).unwrap()).unwrap(), stderr)
}

#[test]
fn a_running_and_a_stopped_cluster_are_backed_up_and_restored_with_their_keys() {
    let parent = tempfile::tempdir().unwrap();
    let (data, file, restored) = (parent.path().join("data"), parent.path().join("b"), parent.path().join("restored"));
    let server = start(&data);
    let (running, said) = back_up(&data, &file, &[]);
    assert!(said.starts_with(&format!("{}: ", file.display())), "{said}");
    assert!(said.contains(" objects at revision ") && said.contains("with the cluster's private keys"), "{said}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "keys are in it");
    assert!(server.stop("-INT").0);
    let (stopped, _) = back_up(&data, &file, &[]);
    assert!(stopped.revision >= running.revision && stopped.entries.len() >= running.entries.len());
    assert!(stopped.files.iter().any(|file| file.name == "ca.pem"), "{:?}", stopped.files.len());

    let (path, target) = (file.to_str().unwrap(), restored.to_str().unwrap());
    let (code, stdout, _) = run(&["restore", path, "--check"]);
    assert!(code == 0 && stdout.starts_with(&format!("{path} is whole: ")), "{stdout}");
    let (code, stdout, stderr) = run(&["restore", path, "--data-dir", target]);
    assert_eq!((code, &*stderr), (0, ""), "{stdout}");
    assert!(stdout.ends_with(&format!("Start it with: bayplan up --data-dir {target}\n")), "{stdout}");
    let (again, _) = back_up(&restored, &parent.path().join("again"), &[]);
    assert_eq!((&again.entries, &again.files), (&stopped.entries, &stopped.files));
    assert_eq!(again.revision, stopped.revision + 1_000_000_000);
    assert!(!restored.join("unfinished").exists());
    assert_eq!(start(&restored).stop("-INT"), (true, String::new()), "a cluster runs on it");
    let authority = |folder: &Path| std::fs::read(folder.join("pki/ca.crt")).unwrap();
    assert_eq!(authority(&restored), authority(&data), "its users' certificates are still good");
}

#[test]
fn a_backup_without_keys_becomes_a_cluster_with_new_ones() {
    let parent = tempfile::tempdir().unwrap();
    let (data, file, restored) = (parent.path().join("data"), parent.path().join("b"), parent.path().join("restored"));
    start(&data).stop("-INT");
    let (backup, said) = back_up(&data, &file, &["--without-keys"]);
    assert!(backup.files.is_empty() && said.contains("without keys"), "{said}");
    assert_eq!(run(&["restore", file.to_str().unwrap(), "--data-dir", restored.to_str().unwrap()]).0, 0);
    assert!(!restored.join("pki").exists());
    assert!(start(&restored).stop("-INT").0);
    let authority = |folder: &Path| std::fs::read(folder.join("pki/ca.crt")).unwrap();
    assert_ne!(authority(&restored), authority(&data));
}

#[test]
fn a_backup_that_is_cut_changed_or_newer_is_named_and_nothing_is_written() {
    let parent = tempfile::tempdir().unwrap();
    let (data, file, target) = (parent.path().join("data"), parent.path().join("b"), parent.path().join("new"));
    start(&data).stop("-INT");
    back_up(&data, &file, &[]);
    let whole = std::fs::read(&file).unwrap();
    let (path, target) = (file.to_str().unwrap(), target.to_str().unwrap());
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    let mut newer = whole.clone();
    newer[8] = 9;
    for (bytes, expected) in [
        (&whole[..whole.len() - 1], format!("bayplan: {path} is damaged at byte ")),
        (&changed, format!("bayplan: {path} is damaged at byte ")),
        (b"thesis", format!("bayplan: {path} is damaged at byte 0: expected the header of a backup")),
        (&newer, format!("bayplan: {path} has format version 9, this build reads up to 1: use the newer build that")),
    ] {
        std::fs::write(&file, bytes).unwrap();
        for arguments in [&["restore", path, "--data-dir", target][..], &["restore", path, "--check"]] {
            let (code, stdout, stderr) = run(arguments);
            assert_eq!((code, &*stdout, stderr.lines().count()), (1, "", 1), "{stderr}");
            assert!(stderr.starts_with(&expected), "{stderr}\n{expected}");
        }
        assert!(!Path::new(target).exists());
    }
    let missing = parent.path().join("missing");
    let missing = missing.to_str().unwrap();
    let expected = format!("bayplan: cannot read {missing}: No such file or directory (os error 2)");
    check_failure(&["restore", missing, "--data-dir", target], &expected);
}

#[test]
fn folders_that_do_not_fit_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let (data, file) = (parent.path().join("data"), parent.path().join("b"));
    start(&data).stop("-INT");
    back_up(&data, &file, &[]);
    let (path, folder) = (file.to_str().unwrap(), data.to_str().unwrap());
    let expected = format!("bayplan: the folder {folder} is not empty: choose a new one with --data-dir");
    check_failure(&["restore", path, "--data-dir", folder], &expected);
    let nowhere = parent.path().join("nowhere");
    let nowhere = nowhere.to_str().unwrap();
    let expected = format!("bayplan: {nowhere} is no data folder of Bayplan: name one with --data-dir");
    check_failure(&["backup", "-o", path, "--data-dir", nowhere], &expected);

    // A restore that was interrupted.
    std::fs::write(data.join("unfinished"), "a restore of x.backup").unwrap();
    let expected = format!(
        "bayplan: the data folder {folder} is incomplete: a restore of x.backup into it is under way or was \
         interrupted; if nothing works on it, remove the folder and begin again"
    );
    check_failure(&["up", "--port", "0", "--data-dir", folder], &expected);
    check_failure(&["backup", "-o", path, "--data-dir", folder], &expected);
    check_failure(&["restore", path, "--data-dir", folder], &expected);
    std::fs::remove_file(data.join("unfinished")).unwrap();

    // The folder of a server on etcd.
    std::fs::remove_dir_all(data.join("store")).unwrap();
    let (code, _, stderr) = run(&["backup", "-o", path, "--data-dir", folder]);
    assert_eq!(code, 1);
    assert!(stderr.contains("holds certificates only: the objects of its cluster are in etcd"), "{stderr}");
}
