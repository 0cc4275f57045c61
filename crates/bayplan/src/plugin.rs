//! `bayplan plugin`: the same binary under the names by which kubectl finds its plugins.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::args::{Plugin, PluginAction};

/// The verbs that kubectl offers, and the names by which it looks for them.
const PLUGINS: [(&str, &str); 2] = [("kubectl-why", "why"), ("kubectl-whatif", "whatif")];

/// The arguments with the verb that the program's name stands for: `kubectl-why x` is `bayplan why x`.
pub(crate) fn with_verb(mut arguments: Vec<String>) -> Vec<String> {
    let called = arguments.first().map(PathBuf::from).unwrap_or_default();
    let name = called.file_stem().unwrap_or_default().to_string_lossy().replace('_', "-");
    if let Some((_, verb)) = PLUGINS.iter().find(|(plugin, _)| *plugin == name) {
        arguments.insert(1, (*verb).to_owned());
    }
    arguments
}

pub(crate) fn run(args: &Plugin, out: &mut impl Write) -> Result<()> {
    let PluginAction::Install { dir } = &args.action;
    let binary = std::env::current_exe().context("cannot find this binary")?;
    let folder = match dir {
        Some(dir) => dir.clone(),
        None => binary.parent().context("this binary is in no folder")?.to_owned(),
    };
    for (name, verb) in PLUGINS {
        let link = folder.join(name);
        install(&binary, &link)?;
        writeln!(out, "{}: `kubectl {verb}` is `bayplan {verb}`", link.display())?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|entry| entry == folder) {
        writeln!(out, "kubectl finds them once {} is in PATH", folder.display())?;
    }
    Ok(())
}

/// Makes a link to the binary. A link that is there already is replaced; anything else is left alone.
fn install(binary: &Path, link: &Path) -> Result<()> {
    let cannot = || format!("cannot make the link {}: choose a folder with --dir", link.display());
    match std::fs::symlink_metadata(link) {
        Ok(there) if !there.is_symlink() => bail!("{} is there already and is not a link", link.display()),
        Ok(_) => std::fs::remove_file(link).with_context(cannot)?,
        Err(_) => {}
    }
    std::os::unix::fs::symlink(binary, link).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_by_which_the_binary_is_called_chooses_the_verb() {
        for (given, expected) in [
            (vec!["/usr/bin/kubectl-why", "pod/x"], vec!["/usr/bin/kubectl-why", "why", "pod/x"]),
            (vec!["kubectl-whatif", "-h"], vec!["kubectl-whatif", "whatif", "-h"]),
            (vec!["bayplan", "why"], vec!["bayplan", "why"]),
            (vec![], vec![]),
        ] {
            let given = given.into_iter().map(str::to_owned).collect();
            assert_eq!(with_verb(given), expected);
        }
    }
}
