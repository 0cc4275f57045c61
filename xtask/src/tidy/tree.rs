//! The files that the rules read: the working tree, or a sample in a test.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 2] = [".git", "target"];

/// Paths relative to the root, with `/`, and what is in them. Files that are not text are there with no text.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder)? {
                let entry = entry?;
                if SKIPPED.iter().any(|name| entry.file_name() == *name) {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else if let Ok(path) = entry.path().strip_prefix(root) {
                    let text = String::from_utf8(std::fs::read(entry.path())?).unwrap_or_default();
                    tree.files.insert(path.to_string_lossy().replace('\\', "/"), text);
                }
            }
        }
        Ok(tree)
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        Tree { files: files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect() }
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether there is a file or a folder of that path.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        path.is_empty() || self.files.contains_key(path) || self.under(path).next().is_some()
    }

    /// The files in a folder and the folders in it.
    pub(crate) fn under(&self, folder: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{folder}/");
        let from = self.files.range(prefix.clone()..);
        from.map(|(path, _)| path.as_str()).take_while(move |path| path.starts_with(&prefix))
    }

    /// Files whose name ends with `.` and `extension`.
    pub(crate) fn with_extension(&self, extension: &str) -> impl Iterator<Item = (&str, &str)> {
        let ending = format!(".{extension}");
        let found = self.files.iter().filter(move |(path, _)| path.ends_with(&ending));
        found.map(|(path, text)| (path.as_str(), text.as_str()))
    }
}
