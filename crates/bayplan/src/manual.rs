//! `bayplan completions` and `bayplan man`: the command line's definition in the forms that shells and `man` read.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::args::{Cli, Completions, Man};

/// Writes a shell's completion script.
pub(crate) fn write_completions(args: &Completions, out: &mut impl Write) -> Result<()> {
    // clap_complete panics when it cannot write; a closed pipe is no reason to.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "bayplan", &mut script);
    Ok(out.write_all(&script)?)
}

/// Writes the manual page of `bayplan`, or of every command into a folder.
pub(crate) fn write_manual(args: &Man, out: &mut impl Write) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    match &args.output_dir {
        None => Ok(clap_mangen::Man::new(command).render(out)?),
        Some(folder) => {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            write_pages(&command, folder)
        }
    }
}

fn write_pages(command: &clap::Command, folder: &Path) -> Result<()> {
    let mut page = Vec::new();
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        write_pages(subcommand, folder)?;
    }
    Ok(())
}
