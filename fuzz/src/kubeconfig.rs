//! Kubeconfigs, from a file as every command reads them.

use std::path::PathBuf;
use std::sync::LazyLock;

use bayplan_client::Config;
use tempfile::TempDir;

use crate::bounded;

/// Bytes allocated for each byte of a kubeconfig. YAML aliases are bounded by the parser, and the file is read and
/// parsed once for each of the two contexts.
const FACTOR: u64 = 8192;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

/// Files without an end; whoever writes the kubeconfig of a person may have them read what they like, and run it.
const ENDLESS: [&[u8]; 2] = [b"/dev", b"/proc"];

pub(crate) fn run(data: &[u8]) {
    if ENDLESS.iter().any(|path| data.windows(path.len()).any(|window| window == *path)) {
        return;
    }
    let path: PathBuf = FOLDER.path().join(format!("config-{:?}", std::thread::current().id()));
    std::fs::write(&path, data).expect("a file of ours");
    bounded::work(data.len(), FACTOR, "a kubeconfig", || {
        for context in [None, Some("other")] {
            match Config::load(Some(&path), context, None) {
                Ok(config) => {
                    let scheme = config.server.scheme_str();
                    assert!(matches!(scheme, Some("http" | "https")), "{:?}", config.server);
                    assert!(config.server.host().is_some_and(|host| !host.is_empty()), "{:?}", config.server);
                }
                Err(error) => {
                    let text = error.to_string();
                    bounded::text(data.len(), "a kubeconfig", &text);
                    assert!(!text.trim().is_empty(), "an error without a word: {error:?}");
                }
            }
        }
    });
}
