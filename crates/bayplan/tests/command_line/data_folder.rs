//! What `bayplan up` does to folders, and what it refuses.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::process::{Server, bayplan, check_failure, run};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn start(folder: &Path) -> Server {
    Server::start(bayplan(&["apiserver", "--port", "0", "--data-dir", folder.to_str().unwrap()]))
}

#[test]
fn everything_in_a_new_folder_is_private() {
    let parent = tempfile::tempdir().unwrap();
    let data = parent.path().join("data");
    start(&data).stop("-INT");
    let mut folders = vec![data];
    while let Some(folder) = folders.pop() {
        assert_eq!(mode(&folder) & 0o077, 0, "{}", folder.display());
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            assert_eq!(mode(&entry.path()) & 0o077, 0, "{}", entry.path().display());
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
}

#[test]
fn a_folder_that_was_there_keeps_its_mode_and_its_secrets_stay_private() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    start(folder.path()).stop("-INT");
    assert_eq!(mode(folder.path()), 0o755);
    for entry in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
        assert_eq!(mode(&entry.path()) & 0o077, 0, "{}", entry.path().display());
    }
    // The next run knows the folder as its own.
    assert!(start(folder.path()).stop("-INT").0);
}

#[test]
fn a_folder_with_other_files_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("thesis.txt"), "chapter 1").unwrap();
    let path = folder.path().to_str().unwrap();
    let expected = format!(
        "bayplan: the data folder {path} is neither empty nor Bayplan's: choose another with --data-dir, or use \
         --in-memory"
    );
    check_failure(&["up", "--port", "0", "--data-dir", path], &expected);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_folder_that_cannot_be_one_is_named_with_the_cause_once() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for path in [path.to_owned(), format!("{path}/below")] {
        let expected = format!(
            "bayplan: cannot use the data folder {path}: Not a directory (os error 20); \
             choose another with --data-dir, or use --in-memory"
        );
        check_failure(&["up", "--port", "0", "--data-dir", &path], &expected);
    }
}

#[test]
fn a_second_bayplan_learns_who_has_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let path = folder.path().to_str().unwrap();
    let expected = format!(
        "bayplan: another Bayplan (pid {}) uses the data folder {path}: choose another with --data-dir, or use \
         --in-memory",
        server.id()
    );
    check_failure(&["up", "--port", "0", "--data-dir", path], &expected);
    assert!(server.stop("-INT").0);
}

#[test]
fn a_start_that_fails_leaves_nothing_behind() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let parent = tempfile::tempdir().unwrap();
    let data = parent.path().join("new/data");
    let expected = format!("bayplan: port {port} is in use: choose another with --port, or let --port 0 find one");
    check_failure(&["up", "--port", &port, "--data-dir", data.to_str().unwrap()], &expected);
    check_failure(&["up", "--port", &port, "--in-memory"], &expected);
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);

    // A kubeconfig below a file cannot be written.
    let file = tempfile::NamedTempFile::new().unwrap();
    let kubeconfig = file.path().join("config");
    let data = parent.path().to_str().unwrap();
    let (code, _, stderr) =
        run(&["up", "--port", "0", "--data-dir", data, "--write-kubeconfig", kubeconfig.to_str().unwrap()]);
    assert_eq!((code, stderr.lines().count()), (1, 1), "{stderr}");
    assert!(stderr.starts_with("bayplan: cannot write the kubeconfig: "), "{stderr}");
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_that_lost_its_objects_is_refused_until_that_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert!(start(folder.path()).stop("-INT").0);
    let store = folder.path().join("store");
    let segment = store.join("log-00000000000000000002.segment");
    let whole = std::fs::read(&segment).unwrap();

    let told = |found: &str| {
        let (code, stdout, stderr) = run(&["apiserver", "--port", "0", "--data-dir", path]);
        let begin = format!(
            "bayplan: the store in {path} has lost objects that it held: acknowledged writes are missing: {found}, \
             though "
        );
        let end = "; restore the folder from a backup, or start with what is left: --accept-lost-writes";
        assert_eq!((code, &*stdout), (1, ""), "{stderr}");
        assert!(stderr.starts_with(&begin) && stderr.trim_end().ends_with(end), "{stderr}");
    };
    for (len, found) in [(5, "log-00000000000000000002.segment is cut to 5 bytes"), (28, "the log ends at revision 1")]
    {
        std::fs::write(&segment, &whole[..len]).unwrap();
        told(found);
        assert_eq!(std::fs::read(&segment).unwrap().len(), len, "nothing is changed");
    }
    std::fs::remove_file(&segment).unwrap();
    told("the folder has no log segment and no snapshot");
    // The certificates alone tell that there was a store.
    std::fs::remove_file(store.join("marker")).unwrap();
    told("the folder has no log segment and no snapshot");

    let again = |more: &[&str]| {
        let mut command = bayplan(&["apiserver", "--port", "0", "--data-dir", path]);
        command.args(more);
        Server::start(command).stop("-INT")
    };
    let (ended_well, stderr) = again(&["--accept-lost-writes"]);
    assert!(ended_well && stderr.contains("the store goes on with what is left"), "{stderr}");
    assert_eq!(again(&[]), (true, String::new()), "it is whole again");
}
